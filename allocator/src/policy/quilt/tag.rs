//! What a block says about itself when it is freed, so that nothing has to be looked up by its address.

use super::streams::StreamNumber;

/// The number of a pool while it has memory. That of the common memory is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PoolNumber(pub(super) u16);

impl PoolNumber {
    pub(super) const COMMON: Self = Self(0);

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Packed into the 64 bits of [`Block::tag`](crate::policy::Block::tag).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tag {
    pub(super) pool: PoolNumber,
    /// The stream it was requested on.
    pub(super) stream: StreamNumber,
    /// The first cell of a small block. Of a large one 0 if it lies at home, else the number of its view, from 1 on.
    pub(super) at: u32,
}

impl Tag {
    pub(super) fn pack(self) -> u64 {
        let high = u32::from(self.pool.0) << 16 | u32::from(self.stream.0);
        u64::from(high) << 32 | u64::from(self.at)
    }

    pub(super) fn unpack(tag: u64) -> Self {
        Self {
            pool: PoolNumber((tag >> 48) as u16),
            stream: StreamNumber((tag >> 32) as u16),
            at: tag as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tag_is_what_was_packed(pool: u16, stream: u16, at: u32) {
            let tag = Tag { pool: PoolNumber(pool), stream: StreamNumber(stream), at };
            prop_assert_eq!(Tag::unpack(tag.pack()), tag);
        }
    }
}
