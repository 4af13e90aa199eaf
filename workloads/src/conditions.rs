//! The conditions of a replay, and those under which a program was recorded.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;

/// The conditions of a replay: the rules that the reference follows, and the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplayConditions {
    /// The release of PyTorch that the reference reproduces.
    pub release: Release,
    /// Bytes of device memory.
    pub capacity: u64,
    /// Bytes of it that others hold: other processes, the CUDA context, libraries.
    pub others: u64,
    /// The most bytes that the process may reserve, as with `torch.cuda.set_per_process_memory_fraction`.
    pub limit: Option<u64>,
    /// Where the device places memory.
    pub addresses: AddressPolicy,
}

impl ReplayConditions {
    /// A device of `capacity` bytes for the process alone, without a limit.
    #[must_use]
    pub fn on(capacity: u64) -> Self {
        Self {
            release: Release::DEFAULT,
            capacity,
            others: 0,
            limit: None,
            addresses: AddressPolicy::default(),
        }
    }

    /// Bytes of the device that others leave.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.others)
    }

    /// Bytes that the process may reserve.
    #[must_use]
    pub fn available(&self) -> u64 {
        let free = self.free();
        self.limit.map_or(free, |limit| limit.min(free))
    }

    /// A device of what others leave, for the process alone.
    #[must_use]
    pub fn without_others(self) -> Self {
        Self {
            capacity: self.free(),
            others: 0,
            ..self
        }
    }
}

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
