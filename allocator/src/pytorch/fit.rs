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

use super::free_blocks::{Cursor, FreeBlocks};
use super::{BlockId, PyTorch, Request};
use crate::driver::Driver;
use crate::settings::Settings;

impl<D: Driver> PyTorch<D> {
    /// Removes the free block for the request from its pool, if there is one.
    #[inline(always)]
    pub(super) fn take_free_block(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() && self.pools[request.shelf].pool == self.large {
            self.pools.searches += 1;
        }
        let free = &mut self.pools[request.shelf].free;
        let best = free.best_fit(self.blocks.slots(), request.size)?;
        let block = &self.blocks[best.id];
        if block.is_expandable() {
            return self.take_expandable(request);
        }
        if !may_serve(block.size, request.size, &self.settings) {
            return None;
        }
        free.remove_at(best);
        Some(best.id)
    }

    /// As [`Self::take_free_block`], if the best fit is part of an expandable segment.
    fn take_expandable(&mut self, request: &Request) -> Option<BlockId> {
        let best = self.search_expandable(request)?;
        if !may_serve(self.blocks[best.id].size, request.size, &self.settings) {
            return None;
        }
        self.pools[request.shelf].free.remove_at(best);
        Some(best.id)
    }

    /// The block for a request whose best fit is part of an expandable segment.
    fn search_expandable(&mut self, request: &Request) -> Option<Cursor> {
        self.pools[request.shelf].free.settle(self.blocks.slots());
        let free = &self.pools[request.shelf].free;
        let best = free.best_fit(self.blocks.slots(), request.size)?;
        if request.expandable {
            Some(self.smallest_expandable(free, best))
        } else {
            self.first_not_expandable(free, best)
        }
    }

    /// With expandable segments, a block's size includes the unmapped range it can grow into. The
    /// search advances while the next block can grow to less than the current one: it stops at the
    /// first minimum, not the overall one. It also stops at a block of another kind and takes it.
    fn smallest_expandable(&self, free: &FreeBlocks, start: Cursor) -> Cursor {
        let extent = |at: Cursor| self.blocks.size_with_unmapped_tail(at.id);
        let mut at = start;
        while self.blocks[at.id].is_expandable()
            && let Some(next) = free.after(at)
            && extent(next) < extent(at)
        {
            at = next;
        }
        at
    }

    /// With expandable segments off, skips their blocks.
    fn first_not_expandable(&self, free: &FreeBlocks, start: Cursor) -> Option<Cursor> {
        let mut after = std::iter::successors(Some(start), |&at| free.after(at));
        after.find(|at| !self.blocks[at.id].is_expandable())
    }
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
