//! Host memory allocated by CUDA (`cudaHostAlloc`).
#![expect(
    unsafe_code,
    reason = "memory for programs in C is allocated and freed by hand"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The alignment of a real driver's allocations.
const PAGE: usize = 4096;

/// The live allocations, by address.
#[derive(Debug, Default)]
pub(crate) struct HostMemory(HashMap<u64, Layout>);

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
        self.0.insert(addr, layout);
        Ok(addr)
    }

    /// Frees an allocation; does nothing for null.
    fn free(&mut self, addr: u64) -> Outcome {
        if addr == 0 {
            return Ok(());
        }
        let layout = self.0.remove(&addr).ok_or(Code::INVALID_VALUE)?;
        let start = std::ptr::with_exposed_provenance_mut(addr as usize);
        // SAFETY: `allocate` returned this address for this layout, and the removed entry shows that
        // it was live.
        unsafe { dealloc(start, layout) };
        Ok(())
    }

    fn contains(&self, addr: u64) -> bool {
        self.0.iter().any(|(&start, layout)| {
            addr.checked_sub(start)
                .is_some_and(|offset| offset < layout.size() as u64)
        })
    }
}

impl Sim {
    pub(crate) fn allocate_host(&mut self, bytes: u64) -> Outcome<u64> {
        self.captures.ensure_safe_call()?;
        self.host.allocate(bytes)
    }

    /// Whether an address lies in host memory that CUDA allocated.
    pub(crate) fn is_pinned(&self, addr: u64) -> bool {
        self.host.contains(addr)
    }

    pub(crate) fn free_host(&mut self, addr: u64) -> Outcome {
        self.captures.ensure_safe_call()?;
        self.host.free(addr)
    }
}
