//! The conditions under which a program was recorded.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;

/// The conditions under which a program was recorded, as the header of a trace names them. Replays take them for those that
/// are not given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedConditions {
    /// The number of the recorded device.
    pub device: u32,
    /// The settings string.
    pub conf: String,
    /// The release of PyTorch.
    pub release: Release,
    /// Where the device placed memory.
    pub addresses: AddressPolicy,
    /// Bytes of device memory, if known.
    pub capacity: Option<u64>,
    /// The most bytes that the process could reserve, if known.
    pub limit: Option<u64>,
    /// Bytes that it could not reserve, if the limit is only known to lie below.
    pub limit_below: Option<u64>,
}
