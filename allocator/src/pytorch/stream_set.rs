//! Sets of streams, in the order in which PyTorch iterates over them.

use super::flat_hash::{FlatHashMap, FlatKey};
use crate::driver::StreamId;

/// A stream of a device, hashed as PyTorch hashes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamKey {
    pub(super) device: u32,
    pub(super) stream: StreamId,
}

impl FlatKey for StreamKey {
    fn flat_hash(self) -> u64 {
        const CUDA: u64 = 1;
        const ID_BITS: u64 = (1 << 48) - 1;
        CUDA << 56 | u64::from(self.device) << 48 | (self.stream.0 & ID_BITS)
    }
}

/// The streams that use a block.
pub(super) type StreamSet = FlatHashMap<StreamKey, ()>;
