//! The streams that use a block, in the order in which PyTorch iterates over them.

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

/// The use of a block by other streams. A block has none once these streams have finished.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Streams without an event yet.
    pub(super) streams: StreamSet,
    /// Pending events; the block becomes free after the last one.
    pub(super) event_count: u32,
}

impl Uses {
    /// Whether all streams have finished.
    pub(super) fn are_finished(&self) -> bool {
        self.event_count == 0 && self.streams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `c10::Stream::hash`: the type of device, its number, and 48 bits of the stream. It decides in which order the
    /// streams of a block are waited for.
    #[test]
    fn streams_are_hashed_as_in_pytorch() {
        for (device, stream, hash) in [
            (0, 0x1000, 0x0100_0000_0000_1000),
            (2, 0x20, 0x0102_0000_0000_0020),
            (1, u64::MAX, 0x0101_ffff_ffff_ffff),
        ] {
            let stream = StreamId(stream);
            assert_eq!(StreamKey { device, stream }.flat_hash(), hash);
        }
    }
}
