//! Selects the free block for a request.
//!
//! The best fit is the smallest block of the request's stream that is large enough. If several blocks have
//! that size, [`TieBreak`] decides: the first is the one at the lowest address (until 2.11), the one that was
//! created first (2.12), or the one in the oldest segment (from 2.13 on).
//!
//! Two further rules reserve oversize blocks for oversize requests. If they reject the best fit, the search
//! ends; no other block is considered.
//!
//! Source: PyTorch 2.11, `get_free_block`.
//!
//! [`TieBreak`]: super::tie_break::TieBreak

use super::ordered::Cursor;
use super::pool::{BlockPool, FreeBlock};
use super::{BlockId, PyTorch, Request};
use crate::driver::Driver;
use crate::settings::Settings;

impl<D: Driver> PyTorch<D> {
    /// Removes the free block for the request from its pool, if there is one.
    pub(super) fn take_free_block(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.pools[request.pool].searches += 1;
        }
        let pool = &self.pools[request.pool];
        let mut at = pool.best_fit(request.stream, request.size);
        let mut best = block_of_stream(pool, at, request)?;
        if self.blocks[best.id].is_expandable() {
            at = if request.expandable {
                self.smallest_expandable(pool, at, request)
            } else {
                self.first_not_expandable(pool, at, request)
            };
            best = block_of_stream(pool, at, request)?;
        }
        if !may_serve(best.size, request.size, &self.settings) {
            return None;
        }
        self.pools[request.pool].free.remove_at(at);
        Some(best.id)
    }

    /// With expandable segments, a block's size includes the unmapped range it can grow into. The
    /// search advances while the next block can grow to less than the current one: it stops at the
    /// first minimum, not the overall one. It also stops at a block of another kind and takes it.
    fn smallest_expandable(&self, pool: &BlockPool, start: Cursor, request: &Request) -> Cursor {
        let extent = |block: FreeBlock| self.blocks.size_with_unmapped_tail(block.id);
        let mut at = start;
        while let Some(&here) = pool.free.get(at)
            && self.blocks[here.id].is_expandable()
            && let next = pool.free.after(at)
            && let Some(following) = block_of_stream(pool, next, request)
            && extent(following) < extent(here)
        {
            at = next;
        }
        at
    }

    /// With expandable segments off, skips their blocks.
    fn first_not_expandable(&self, pool: &BlockPool, start: Cursor, request: &Request) -> Cursor {
        let mut at = pool.free.after(start);
        while let Some(block) = block_of_stream(pool, at, request)
            && self.blocks[block.id].is_expandable()
        {
            at = pool.free.after(at);
        }
        at
    }
}

/// The block at a cursor, if it belongs to the request's stream.
fn block_of_stream(pool: &BlockPool, at: Cursor, request: &Request) -> Option<FreeBlock> {
    pool.free
        .get(at)
        .copied()
        .filter(|block| block.stream == request.stream)
}

/// Whether a block may serve a smaller request: an oversize block serves only oversize requests, and
/// only if it is less than `max_non_split_rounding` larger.
fn may_serve(block: u64, request: u64, settings: &Settings) -> bool {
    if settings.is_oversize(request) {
        block < request.wrapping_add(settings.max_non_split_rounding)
    } else {
        !settings.is_oversize(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn oversize_blocks_serve_only_oversize_requests_of_similar_size() {
        let settings = Settings::from_conf("max_split_size_mb:100").unwrap();
        assert!(may_serve(99 * MIB, 50 * MIB, &settings));
        assert!(!may_serve(100 * MIB, 99 * MIB, &settings));
        assert!(may_serve(119 * MIB, 100 * MIB, &settings));
        assert!(!may_serve(120 * MIB, 100 * MIB, &settings));
        assert!(may_serve(1 << 50, 1, &Settings::default()));
    }
}
