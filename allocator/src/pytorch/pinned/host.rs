//! The memory that CUDA pins for the host, and the calls that pin and release it.

use std::fmt;

use super::stats::Totals;
use crate::settings::Settings;

/// Memory that CUDA pinned: its number, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Region(u32);

/// A call that pinned or released host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are the arguments of the calls")]
pub enum HostCall {
    /// `cudaHostAlloc`
    Alloc { bytes: u64, region: Region },
    /// `cudaFreeHost`
    Free { region: Region },
    /// `cudaHostRegister` of memory from `malloc`
    Register { bytes: u64, region: Region },
    /// `cudaHostUnregister`, before the memory is freed
    Unregister { region: Region },
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// Formats the call as one line: name, arguments.
impl fmt::Display for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Alloc { bytes, region } => write!(f, "host_alloc {bytes} {region}"),
            Self::Free { region } => write!(f, "host_free {region}"),
            Self::Register { bytes, region } => write!(f, "host_register {bytes} {region}"),
            Self::Unregister { region } => write!(f, "host_unregister {region}"),
        }
    }
}

/// Memory pinned in advance (`pinned_reserve_segment_size_mb`), which serves requests until it is used up. Nothing
/// in it is used by another block later, and it is never returned.
#[derive(Debug)]
struct Reserve {
    left: u64,
}

impl Reserve {
    /// Blocks in the reserve start at multiples of this size.
    const PAGE: u64 = 4096;

    /// Takes memory for a block. Returns whether there is enough.
    fn take(&mut self, bytes: u64) -> bool {
        let paged = bytes.checked_next_multiple_of(Self::PAGE);
        let left = paged.and_then(|paged| self.left.checked_sub(paged));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// The pinned memory of the host.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// Whether each region is registered, rather than allocated by CUDA.
    registered: Vec<bool>,
    /// Decided by the settings at the first request. `Some(None)`: there is none.
    reserve: Option<Option<Reserve>>,
    calls: Vec<HostCall>,
}

impl Host {
    /// Memory for a new block; none if it lies in the reserve.
    pub(super) fn allocate(
        &mut self,
        bytes: u64,
        settings: &Settings,
        totals: &mut Totals,
    ) -> Option<Region> {
        if self.reserve.is_none() {
            let reserved = settings
                .pinned
                .reserve_segment_size_mb
                .saturating_mul(1 << 20);
            self.reserve = Some((reserved > 0).then(|| {
                self.pin(reserved, settings, totals);
                Reserve { left: reserved }
            }));
        }
        let reserve = self.reserve.as_mut().and_then(Option::as_mut);
        if reserve.is_some_and(|reserve| reserve.take(bytes)) {
            return None;
        }
        Some(self.pin(bytes, settings, totals))
    }

    fn pin(&mut self, bytes: u64, settings: &Settings, totals: &mut Totals) -> Region {
        let region = Region(u32::try_from(self.registered.len()).unwrap_or(u32::MAX));
        let registers = settings.pinned.use_cuda_host_register;
        self.registered.push(registers);
        self.calls.push(if registers {
            HostCall::Register { bytes, region }
        } else {
            HostCall::Alloc { bytes, region }
        });
        totals.alloc_calls += 1;
        region
    }

    /// Returns a region by the function that belongs to the one that pinned it, whatever the settings say now.
    pub(super) fn release(&mut self, region: Region, totals: &mut Totals) {
        let registered = self.registered.get(region.0 as usize);
        self.calls
            .push(if registered.is_some_and(|&registered| registered) {
                HostCall::Unregister { region }
            } else {
                HostCall::Free { region }
            });
        totals.free_calls += 1;
    }

    pub(super) fn take_calls(&mut self) -> Vec<HostCall> {
        std::mem::take(&mut self.calls)
    }
}
