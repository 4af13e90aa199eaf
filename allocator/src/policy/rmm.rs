//! What the policies of RMM, the memory manager of RAPIDS, are made of.
//!
//! Source: librmm 26.10.0 (commit 5ab0425): the headers of its wheel, and what the shipped library
//! does. [`stream_ordered`] is the part that the pool and the bins share: a list of free memory for
//! each stream. The two kinds of list are [`free_list`] and [`fixed_size`]; [`superblock`] is what an
//! arena consists of.
//!
//! RMM takes memory in advance when a resource is made. A policy has no device before it is first
//! asked for memory, so that is when it is taken here; and as RMM returns memory only when a resource
//! is destroyed, an emptied cache from which everything went back is a resource made anew.

pub(super) mod fixed_size;
pub(super) mod free_list;
pub(super) mod stream_ordered;
pub(super) mod superblock;

use super::Refusal;
use crate::driver::Driver;

/// What every address and every size is a multiple of: `CUDA_ALLOCATION_ALIGNMENT`.
pub(super) const ALIGNMENT: u64 = 256;

/// Bytes of the block that a request gets: a multiple of 256.
pub(super) fn block_bytes(requested: u64) -> u64 {
    requested.next_multiple_of(ALIGNMENT)
}

/// What a pool and an arena begin with unless told otherwise: half of what the device has left.
pub(super) fn half_of_free_memory(device: &mut dyn Driver) -> Result<u64, Refusal> {
    let half = device.memory_info()?.free / 2;
    Ok(half - half % ALIGNMENT)
}
