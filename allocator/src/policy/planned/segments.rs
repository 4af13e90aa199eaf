//! A small caching allocator for requests that are not planned: best fit in segments, on one stream.
//!
//! Source: the rules of PyTorch's caching allocator with default settings, of which STAlloc (commit
//! 3a9f97f, `CUDACachingAllocator.cpp`) has a copy for the same purpose: block sizes, segment sizes and
//! the split rule. When the device is out of memory, all segments without a block are returned; PyTorch
//! first tries a segment that is large enough alone.

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::policy::pieces::Pieces;
use crate::policy::{Block, Policy, Refusal, Served, malloc_or_retry};
use crate::pytorch::size::{MIN_BLOCK, SMALL_LIMIT, pool_kind, segment_size};
use crate::settings::Settings;
use crate::stats::PoolKind;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Small and large requests have separate segments.
    pieces: Pieces<PoolKind>,
}

impl Segments {
    /// Takes a segment from the device, after returning cached segments if necessary.
    fn grow(
        &mut self,
        device: &mut dyn Driver,
        pool: PoolKind,
        bytes: u64,
    ) -> Served<(DeviceAddr, u64)> {
        let bytes = segment_size(bytes, &Settings::default()).ok_or(Refusal::OutOfMemory)?;
        let addr = malloc_or_retry(device, bytes, |device| self.empty_cache(device))?;
        self.pieces.add(addr, bytes, pool, 0);
        Ok((addr, bytes))
    }
}

/// Whether the rest of a block is split off.
fn should_split(pool: PoolKind, rest: u64) -> bool {
    match pool {
        PoolKind::Small => rest >= MIN_BLOCK,
        PoolKind::Large => rest > SMALL_LIMIT,
    }
}

impl Policy for Segments {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let bytes = bytes.next_multiple_of(MIN_BLOCK);
        let pool = pool_kind(bytes);
        let (addr, found) = match self.pieces.take_best_fit(pool, bytes) {
            Some(found) => found,
            None => self.grow(device, pool, bytes)?,
        };
        let is_cut = should_split(pool, found - bytes);
        if is_cut {
            let rest = self.pieces.cut(addr, bytes, 0);
            self.pieces.free(rest);
        }
        let bytes = if is_cut { bytes } else { found };
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Served {
        self.pieces.free(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        for (segment, bytes) in self.pieces.idle_allocations() {
            device.free(segment, bytes)?;
            self.pieces.remove(segment);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.pieces.check(MIN_BLOCK)
    }
}
