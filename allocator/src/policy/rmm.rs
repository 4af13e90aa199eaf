//! Components of the policies of RMM, the memory manager of RAPIDS.
//!
//! Source: librmm 26.10.0 (commit 5ab0425): the headers of its wheel and the behaviour of the shipped
//! library. [`stream_ordered`] is shared by the pool and the bins: a free list for each stream. The two
//! kinds of list are [`free_list`] and [`fixed_size`]. An arena consists of [`superblock`]s.
//!
//! RMM takes initial memory when a resource is created. A policy has no device before its first request,
//! so it is taken then. RMM returns memory only when a resource is destroyed; here, an emptied cache
//! without any live block is a new resource.

pub(super) mod fixed_size;
pub(super) mod free_list;
pub(super) mod stream_ordered;
pub(super) mod superblock;

use super::Served;
use crate::driver::Driver;

/// Alignment of addresses and sizes: `CUDA_ALLOCATION_ALIGNMENT`.
pub(super) const ALIGNMENT: u64 = 256;

/// Returns the block size for a request: a multiple of 256.
pub(super) fn block_bytes(requested: u64) -> u64 {
    requested.next_multiple_of(ALIGNMENT)
}

/// Default initial size of a pool and of an arena: half of the free device memory.
pub(super) fn half_of_free_memory(device: &mut dyn Driver) -> Served<u64> {
    let half = device.memory_info()?.free / 2;
    Ok(half - half % ALIGNMENT)
}
