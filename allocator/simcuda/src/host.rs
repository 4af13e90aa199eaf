//! Pinned host memory: allocated by CUDA (`cudaHostAlloc`), or registered (`cudaHostRegister`).
#![expect(
    unsafe_code,
    reason = "memory for programs in C is allocated and freed by hand"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::fmt;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The alignment of a real driver's allocations.
const PAGE: usize = 4096;

/// The pinned ranges, by their first address.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    allocated: BTreeMap<u64, Layout>,
    /// Their bytes.
    registered: BTreeMap<u64, u64>,
    /// Bytes.
    pinned: u64,
    /// The most bytes so far.
    peak: u64,
}

impl HostMemory {
    fn allocate(&mut self, bytes: u64) -> Outcome<u64> {
        let bytes = usize::try_from(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
        let layout =
            Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Code::OUT_OF_MEMORY);
        }
        let addr = start.expose_provenance() as u64;
        self.allocated.insert(addr, layout);
        self.count(layout.size() as u64);
        Ok(addr)
    }

    /// Frees an allocation.
    fn free(&mut self, addr: u64) -> Outcome {
        let layout = self.allocated.remove(&addr).ok_or(Code::INVALID_VALUE)?;
        let start = std::ptr::with_exposed_provenance_mut(addr as usize);
        self.pinned -= layout.size() as u64;
        // SAFETY: `allocate` returned this address for this layout, and the removed entry shows that
        // it was live.
        unsafe { dealloc(start, layout) };
        Ok(())
    }

    fn register(&mut self, addr: u64, bytes: u64) -> Outcome {
        if addr == 0 || bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if self.range_at(addr) > 0 {
            return Err(Code::ALREADY_REGISTERED);
        }
        self.registered.insert(addr, bytes);
        self.count(bytes);
        Ok(())
    }

    fn unregister(&mut self, addr: u64) -> Outcome {
        let bytes = self.registered.remove(&addr);
        self.pinned -= bytes.ok_or(Code::NOT_REGISTERED)?;
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.pinned = self.pinned.saturating_add(bytes);
        self.peak = self.peak.max(self.pinned);
    }

    /// The size, in bytes, of the pinned range that contains an address, or 0 if no range does.
    fn range_at(&self, addr: u64) -> u64 {
        let allocated = self.allocated.range(..=addr).next_back();
        let allocated = allocated.map(|(&start, layout)| (start, layout.size() as u64));
        let registered = self.registered.range(..=addr).next_back();
        let registered = registered.map(|(&start, &bytes)| (start, bytes));
        let nearest = [allocated, registered].into_iter().flatten();
        let mut around = nearest.filter(|&(start, bytes)| addr - start < bytes);
        around.next().map_or(0, |(_, bytes)| bytes)
    }
}

/// A call that pinned or released host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostCall {
    /// `cudaHostAlloc`
    Alloc { bytes: u64, addr: u64 },
    /// `cudaFreeHost`
    Free { addr: u64 },
    /// `cudaHostRegister`
    Register { bytes: u64, addr: u64 },
    /// `cudaHostUnregister`
    Unregister { addr: u64 },
}

impl fmt::Display for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Alloc { bytes, addr } => write!(f, "host_alloc {bytes} {addr:#x}"),
            Self::Free { addr } => write!(f, "host_free {addr:#x}"),
            Self::Register { bytes, addr } => write!(f, "host_register {bytes} {addr:#x}"),
            Self::Unregister { addr } => write!(f, "host_unregister {addr:#x}"),
        }
    }
}

impl Sim {
    pub(crate) fn allocate_host(&mut self, bytes: u64) -> Outcome<u64> {
        self.captures.ensure_safe_call()?;
        let addr = self.host.allocate(bytes)?;
        self.log_host(HostCall::Alloc { bytes, addr });
        Ok(addr)
    }

    /// Frees what [`Self::allocate_host`] returned; does nothing for null.
    pub(crate) fn free_host(&mut self, addr: u64) -> Outcome {
        self.captures.ensure_safe_call()?;
        if addr != 0 {
            self.host.free(addr)?;
            self.log_host(HostCall::Free { addr });
        }
        Ok(())
    }

    pub(crate) fn register_host(&mut self, addr: u64, bytes: u64) -> Outcome {
        self.captures.ensure_safe_call()?;
        self.host.register(addr, bytes)?;
        self.log_host(HostCall::Register { bytes, addr });
        Ok(())
    }

    pub(crate) fn unregister_host(&mut self, addr: u64) -> Outcome {
        self.captures.ensure_safe_call()?;
        self.host.unregister(addr)?;
        self.log_host(HostCall::Unregister { addr });
        Ok(())
    }

    /// The size, in bytes, of the pinned range that contains an address, or 0 if no range does.
    pub(crate) fn pinned_range(&self, addr: u64) -> u64 {
        self.host.range_at(addr)
    }

    /// The most bytes that were pinned.
    pub(crate) fn peak_pinned(&self) -> u64 {
        self.host.peak
    }

    /// Whether an address lies in pinned memory.
    pub(crate) fn is_pinned(&self, addr: u64) -> bool {
        self.host.range_at(addr) > 0
    }
}
