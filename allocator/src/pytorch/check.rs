//! Verifies every invariant of the allocator's state from scratch.

use std::collections::{HashMap, HashSet};

use super::block::Block;
use super::size::MIN_BLOCK;
use super::{BlockId, PyTorch};
use crate::base::check::{Violation, ensure};
use crate::driver::Driver;
use crate::stats::DeviceStats;

impl<D: Driver> PyTorch<D> {
    /// Verifies that
    /// - the blocks of each segment form a chain without gaps, belong to one stream and one pool, and
    ///   no two neighbours could be coalesced;
    /// - exactly the idle blocks are in their pools, exactly the allocated blocks are in the address
    ///   table, and exactly the pending ones wait for events or are deferred;
    /// - the blocks of an expandable segment cover its addresses and agree with its pages;
    /// - the current statistics equal the sums over the blocks.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check(&self) -> Result<(), Violation> {
        for (id, block) in self.blocks.iter() {
            self.check_block(id, block)?;
        }
        self.check_memberships()?;
        self.check_events()?;
        self.check_expandable_segments()?;
        self.check_statistics()
    }

    fn check_block(&self, id: BlockId, block: &Block) -> Result<(), Violation> {
        let at = format!("block {id:?} at {} of {} bytes", block.addr, block.size);
        ensure!(block.size > 0, "{at} is empty");
        ensure!(
            block.size.is_multiple_of(MIN_BLOCK),
            "{at}: the size is not a multiple of 512"
        );
        ensure!(
            block.kind == self.pools[block.shelf].kind,
            "{at}: it is not of the kind of its pool"
        );
        ensure!(
            block.is_mapped() || block.is_expandable(),
            "{at}: unmapped outside an expandable segment"
        );
        if let Some(prev) = block.prev {
            ensure!(
                self.blocks[prev].next == Some(id),
                "{at}: its previous block does not point back"
            );
        }
        let Some(next) = block.next else {
            return Ok(());
        };
        let next = &self.blocks[next];
        ensure!(
            next.prev == Some(id),
            "{at}: its next block does not point back"
        );
        ensure!(
            next.addr == block.end(),
            "{at}: gap or overlap before {}",
            next.addr
        );
        ensure!(
            (next.shelf, next.segment) == (block.shelf, block.segment),
            "{at}: its neighbour differs in stream, pool or segment"
        );
        ensure!(
            !(block.is_idle() && next.is_idle() && block.is_mapped() == next.is_mapped()),
            "{at} was not coalesced with its neighbour at {}",
            next.addr
        );
        Ok(())
    }

    fn check_memberships(&self) -> Result<(), Violation> {
        let mut pooled = 0;
        for pool in self.pools.iter() {
            let mut last = None;
            for id in self.pools.free(&self.blocks, pool) {
                let block = &self.blocks[id];
                let shelf = &self.pools[block.shelf];
                let in_place = shelf.pool == pool && block.is_mapped() && block.is_idle();
                let addr = block.addr;
                ensure!(
                    in_place,
                    "{addr} is in the set of free blocks but is not free"
                );
                let order = Some((shelf.stream, block.size, block.rank));
                ensure!(
                    last < order,
                    "{addr} is not in its place among the free blocks"
                );
                last = order;
                pooled += 1;
            }
            let mut last = None;
            for id in self.pools.unmapped(pool) {
                let block = &self.blocks[id];
                let shelf = &self.pools[block.shelf];
                let addr = block.addr;
                ensure!(
                    shelf.pool == pool && !block.is_mapped(),
                    "{addr} is in the set of unmapped ranges but is mapped"
                );
                let order = Some((shelf.stream, addr));
                ensure!(
                    last < order,
                    "{addr} is not in its place among the unmapped ranges"
                );
                last = order;
                pooled += 1;
            }
        }
        let idle = self.blocks.iter().filter(|(_, b)| b.is_idle()).count();
        ensure!(pooled == idle, "{idle} idle blocks, but {pooled} in pools");
        for id in self.live.iter() {
            let block = &self.blocks[id];
            let found = self.live.get(self.blocks.slots(), block.addr);
            ensure!(
                block.is_allocated() && found == Some(id),
                "{} is in the address table but its block is not allocated",
                block.addr
            );
        }
        let allocated = self.blocks.iter().filter(|(_, b)| b.is_allocated()).count();
        let live = self.live.len();
        ensure!(
            live == allocated,
            "{allocated} allocated blocks, but {live} live addresses"
        );
        Ok(())
    }

    fn check_events(&self) -> Result<(), Violation> {
        let mut waiting: HashMap<BlockId, u32> = HashMap::new();
        for id in self.events.queued_blocks() {
            *waiting.entry(id).or_default() += 1;
        }
        let deferred: HashSet<BlockId> = self.events.deferred_blocks().collect();
        for (id, block) in self.blocks.iter() {
            let events = waiting.remove(&id).unwrap_or(0);
            let counted = self.events.count_of(block);
            let addr = block.addr;
            ensure!(
                counted == events,
                "{addr} counts {counted} events but waits for {events}"
            );
            let is_deferred = deferred.contains(&id);
            let should_be = !block.is_allocated() && self.events.has_unrecorded_streams(block);
            ensure!(
                is_deferred == should_be,
                "{addr} is wrongly deferred or not deferred"
            );
        }
        ensure!(waiting.is_empty(), "an event refers to a removed block");
        Ok(())
    }

    fn check_expandable_segments(&self) -> Result<(), Violation> {
        for (id, segment) in self.expandable_segments.iter() {
            let of_segment = || self.blocks.iter().filter(|(_, b)| b.segment == Some(id));
            let mapped: u64 = of_segment()
                .filter(|(_, b)| b.is_mapped())
                .map(|(_, b)| b.size)
                .sum();
            let covered: u64 = of_segment().map(|(_, b)| b.size).sum();
            let base = segment.base();
            ensure!(
                covered == segment.bytes(),
                "the blocks do not cover the addresses from {base}"
            );
            ensure!(
                mapped == segment.mapped_bytes(),
                "blocks and pages from {base} disagree: {mapped} and {} bytes",
                segment.mapped_bytes()
            );
            let page = segment.page_size();
            for (_, block) in of_segment().filter(|(_, b)| !b.is_mapped()) {
                let aligned = block.addr.offset_from(base).is_multiple_of(page)
                    && block.size.is_multiple_of(page);
                ensure!(
                    aligned,
                    "the unmapped range at {} does not consist of whole pages",
                    block.addr
                );
            }
        }
        Ok(())
    }

    fn check_statistics(&self) -> Result<(), Violation> {
        let now = self.recount();
        for ((name, counted), (_, true_value)) in self.stats.arrays().iter().zip(now.arrays()) {
            for (kind, counted, true_value) in [
                ("all", counted.all(), true_value.all()),
                ("small", counted.small_pool(), true_value.small_pool()),
                ("large", counted.large_pool(), true_value.large_pool()),
            ] {
                ensure!(
                    counted.current == true_value.current,
                    "{name} ({kind}) is counted as {} but is {}",
                    counted.current,
                    true_value.current
                );
            }
        }
        let reserved = now.reserved_bytes.all().current.cast_unsigned();
        ensure!(
            self.reserved == reserved,
            "{reserved} bytes are reserved, but {} are counted",
            self.reserved
        );
        for private in self.private_pools.iter() {
            let held: u64 = self
                .blocks
                .iter()
                .filter(|(_, b)| b.is_mapped() && private.has(self.pools[b.shelf].pool))
                .map(|(_, b)| b.size)
                .sum();
            ensure!(
                private.reserved == held,
                "a private pool reserves {held} bytes but counts {}",
                private.reserved
            );
        }
        Ok(())
    }

    /// Recomputes the current statistics from the blocks.
    fn recount(&self) -> DeviceStats {
        let mut now = DeviceStats::default();
        for (_, block) in self.blocks.iter().filter(|(_, block)| block.is_mapped()) {
            let kind = block.kind;
            now.reserved_bytes.increase(kind, block.size);
            if !block.is_expandable() && block.prev.is_none() {
                now.segment.increase(kind, 1);
            }
            if block.is_allocated() {
                now.count_allocation(kind, block.size, block.requested);
            } else if !block.is_idle() {
                now.count_restored_waiting(kind, block.size, block.requested);
            } else if block.is_split() && !block.is_expandable() {
                now.inactive_split.increase(kind, 1);
                now.inactive_split_bytes.increase(kind, block.size);
            }
        }
        now
    }
}

#[cfg(test)]
mod tests;
