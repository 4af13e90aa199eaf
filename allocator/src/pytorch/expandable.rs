//! Expandable segments: one range of addresses for many blocks, of which only the parts in use are
//! mapped.
//!
//! A segment reserves addresses for 1 1/8 of the device memory, or less if the settings say so, and maps
//! pages from its start as needed: 2 MiB each for small blocks, `large_segment_size` for large ones. Its
//! chain of blocks covers the whole range, mapped or not.
//!
//! Source: PyTorch 2.11, `ExpandableSegment` and the functions named below.

use super::block::{Block, State};
use super::pages::ExpandableSegment;
use super::size::{SMALL_SEGMENT, page_size};
use super::{BlockId, PyTorch, Request, ShelfId};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId, VirtualMemory};
use crate::error::Error;
use crate::history::Action;
use crate::settings::reserve::{Reserve, default_bytes};

/// Whether a request that is larger than a whole segment is noticed before pages are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reservation {
    /// It is not: pages are mapped until the device or the segment has no more. Until 2.14.
    Unchecked,
    /// It is: the new segment is given up. From 2.15 on (pytorch#192269).
    Checked,
}

/// How much of an expandable segment is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpandableSegmentSize {
    /// The stream of its blocks.
    pub stream: StreamId,
    /// Whether its pages are those of a small pool.
    pub is_small: bool,
    /// Mapped bytes.
    pub mapped: u64,
}

impl<D: Driver> PyTorch<D> {
    /// Returns a mapped block for the request that is in no pool (`try_allocate_expandable_block`). It
    /// may be larger than the request. Returns `None` if memory ran out; pages mapped until then stay
    /// in the pool.
    pub(super) fn alloc_expandable(&mut self, request: &Request) -> Result<Option<BlockId>, Error> {
        let Some(mut candidate) = self.find_expandable_block(request)? else {
            return Ok(None);
        };
        let block = &self.blocks[candidate];
        if !block.is_mapped() {
            let bytes = block.size.min(request.size);
            if !self.map_block(candidate, bytes)? {
                return Ok(None);
            }
        }
        // The candidate is mapped; the blocks after it are unmapped until it is large enough.
        while self.blocks[candidate].size < request.size {
            let missing = request.size - self.blocks[candidate].size;
            let Some(next) = self.blocks[candidate].next else {
                return Ok(None);
            };
            let bytes = missing.min(self.blocks[next].size);
            if !self.map_block(next, bytes)? {
                return Ok(None);
            }
            candidate = next;
        }
        self.pools.remove_block(&self.blocks, candidate);
        Ok(Some(candidate))
    }

    /// Returns the first block of the lowest range of idle blocks, at least one of them unmapped, that
    /// is large enough (`find_expandable_block`). Otherwise adds a segment; returns `None` if the request
    /// is refused because of its [`Reservation`].
    fn find_expandable_block(&mut self, request: &Request) -> Result<Option<BlockId>, Error> {
        let found = self.pools[request.shelf]
            .unmapped()
            .map(|unmapped| self.idle_block_before(unmapped).unwrap_or(unmapped))
            .find(|&first| self.idle_bytes_reach(first, request.size));
        if found.is_some() {
            return Ok(found);
        }
        let added = self.add_expandable_segment(request.shelf)?;
        let is_enough = self.blocks[added].size >= request.size;
        if self.rules.reservation == Reservation::Checked && !is_enough {
            self.release_if_unmapped(added)?;
            return Ok(None);
        }
        Ok(Some(added))
    }

    fn idle_block_before(&self, id: BlockId) -> Option<BlockId> {
        self.blocks[id]
            .prev
            .filter(|&prev| self.blocks[prev].is_idle())
    }

    /// Whether the idle blocks from `first` on hold `size` bytes.
    fn idle_bytes_reach(&self, first: BlockId, size: u64) -> bool {
        let mut bytes = 0;
        let mut at = Some(first);
        while let Some(id) = at.filter(|&id| self.blocks[id].is_idle()) {
            bytes += self.blocks[id].size;
            if bytes >= size {
                return true;
            }
            at = self.blocks[id].next;
        }
        false
    }

    /// Adds a segment that consists of one unmapped block.
    pub(super) fn add_expandable_segment(&mut self, shelf: ShelfId) -> Result<BlockId, Error> {
        let (kind, stream) = (self.pools[shelf].kind, self.pools[shelf].stream);
        let page = page_size(kind, &self.settings);
        let memory = self.driver.total_memory();
        let reserve = self.reserve_of(stream);
        let bytes = reserve.map_or(default_bytes(memory), |reserve| reserve.bytes(memory));
        let vm = virtual_memory(&mut self.driver)?;
        let segment = ExpandableSegment::reserve(vm, bytes, page).map_err(Error::VirtualMemory)?;
        let (base, bytes) = (segment.base(), segment.bytes());
        let segment = self.expandable_segments.insert(segment);
        self.expandable_streams.push((segment, stream));
        let mut block = Block::whole_segment(base, bytes, shelf, kind, Some(segment));
        block.rank = self.ranks.of_segment(base, bytes);
        let block = self.blocks.insert(block);
        self.pools.insert_block(&mut self.blocks.slots_mut(), block);
        Ok(block)
    }

    /// The expandable segments in the order of their creation (`getExpandableSegmentSizes`), without those of the
    /// default stream, which PyTorch leaves out.
    pub fn expandable_segment_sizes(&self) -> impl Iterator<Item = ExpandableSegmentSize> {
        let others = self
            .expandable_streams
            .iter()
            .filter(|(_, stream)| *stream != StreamId::DEFAULT);
        others.map(|&(id, stream)| {
            let segment = &self.expandable_segments[id];
            ExpandableSegmentSize {
                stream,
                is_small: segment.page_size() == SMALL_SEGMENT,
                mapped: segment.mapped_bytes(),
            }
        })
    }

    /// Puts a stream into a class of `expandable_segments_reserve_by_class`, or into none
    /// (`setExpandableSegmentReserveClassForStream`).
    pub fn set_reserve_class(&mut self, stream: StreamId, class: Option<String>) {
        match class {
            Some(class) => self.reserve_classes.insert(stream, class),
            None => self.reserve_classes.remove(&stream),
        };
    }

    /// The setting for the size of a stream's segments.
    pub(super) fn reserve_of(&self, stream: StreamId) -> Option<Reserve> {
        let class = self.reserve_classes.get(&stream);
        self.settings.reserves.of(class.map(String::as_str))
    }

    /// Maps the pages of the first `bytes` of an unmapped block and coalesces the result with its free
    /// neighbours (`map_block`). Returns whether there was enough memory.
    pub(super) fn map_block(&mut self, id: BlockId, bytes: u64) -> Result<bool, Error> {
        let block = &self.blocks[id];
        let (addr, size, shelf) = (block.addr, block.size, block.shelf);
        let Some(segment) = block.segment else {
            return Ok(false);
        };
        let vm = virtual_memory(&mut self.driver)?;
        let segment = &mut self.expandable_segments[segment];
        let failures = self.rules.later_failures;
        let mapped = segment.map(vm, &mut self.handle_kind, failures, addr, bytes);
        let Some(mapped) = mapped.map_err(Error::VirtualMemory)? else {
            return Ok(false);
        };
        self.pools.remove_block(&self.blocks, id);
        if mapped < size {
            let (rest, next) = (addr.offset(mapped), self.blocks[id].next);
            self.insert_part(id, rest, size - mapped, Some(id), next);
        }
        let block = &mut self.blocks[id];
        block.size = mapped;
        block.state = State::Free;
        self.merge_with_neighbours(id);
        self.pools.insert_block(&mut self.blocks.slots_mut(), id);

        self.count_reserved(shelf, mapped);
        self.stats.num_device_alloc += 1;
        self.trace(Action::SegmentMap, shelf, addr, mapped);
        Ok(true)
    }

    /// Returns the memory of the whole pages in a free block to the device (`unmap_block`). If the
    /// device fails half-way, the block is unmapped up to that point.
    pub(super) fn unmap_block(&mut self, id: BlockId) -> Result<(), Error> {
        let block = &self.blocks[id];
        let (start, end, shelf) = (block.addr, block.end(), block.shelf);
        let Some(segment) = block.segment else {
            return Ok(());
        };
        let pages = self.expandable_segments[segment].whole_pages(start, block.size);
        if pages.is_empty() {
            return Ok(());
        }
        self.driver.synchronize_stream(self.pools[shelf].stream)?;
        let vm = virtual_memory(&mut self.driver)?;
        let (addr, bytes, outcome) = self.expandable_segments[segment].unmap(vm, pages);
        let outcome = outcome.map_err(Error::VirtualMemory);
        if bytes == 0 {
            return outcome;
        }
        self.pools.remove_block(&self.blocks, id);
        if addr > start {
            let prev = self.blocks[id].prev;
            self.insert_part(id, start, addr.offset_from(start), prev, Some(id));
        }
        let unmapped_end = addr.offset(bytes);
        if end > unmapped_end {
            let (after, next) = (end.offset_from(unmapped_end), self.blocks[id].next);
            self.insert_part(id, unmapped_end, after, Some(id), next);
        }
        let block = &mut self.blocks[id];
        block.rank = self.ranks.of_moved(block.rank, start, addr);
        block.addr = addr;
        block.size = bytes;
        block.state = State::Unmapped;
        self.merge_with_neighbours(id);
        self.pools.insert_block(&mut self.blocks.slots_mut(), id);

        let counted = self.count_returned(shelf, bytes);
        self.stats.num_device_free += 1;
        self.trace(Action::SegmentUnmap, shelf, addr, bytes);
        outcome?;
        Ok(counted?)
    }

    /// Frees the addresses of a segment if none of it is mapped (`release_expandable_segment`).
    pub(super) fn release_if_unmapped(&mut self, id: BlockId) -> Result<(), Error> {
        let block = &self.blocks[id];
        let Some(segment) = block
            .segment
            .filter(|_| !block.is_mapped() && !block.is_split())
        else {
            return Ok(());
        };
        let vm = virtual_memory(&mut self.driver)?;
        self.expandable_segments[segment]
            .free_addresses(vm)
            .map_err(Error::VirtualMemory)?;
        self.pools.remove_block(&self.blocks, id);
        self.blocks.remove(id);
        self.expandable_segments.remove(segment);
        self.expandable_streams.retain(|&(id, _)| id != segment);
        Ok(())
    }

    /// Returns leftovers of failed driver calls: memory that belongs to no block, and addresses that
    /// the device did not take back.
    pub(super) fn return_leftover_pages(&mut self) -> Result<(), Error> {
        let Some(vm) = self.driver.virtual_memory() else {
            return Ok(());
        };
        for segment in self.expandable_segments.iter_mut() {
            segment.return_leftovers(vm).map_err(Error::VirtualMemory)?;
        }
        let is_free_pending = |&id: &BlockId| {
            let segment = self.blocks[id].segment;
            segment.is_some_and(|segment| self.expandable_segments[segment].is_free_pending())
        };
        let unmapped = self.pools.iter().flat_map(|pool| self.pools.unmapped(pool));
        let free_pending: Vec<BlockId> = unmapped.filter(is_free_pending).collect();
        free_pending
            .into_iter()
            .try_for_each(|id| self.release_if_unmapped(id))
    }

    /// Makes a part of `whole` a block of its own, and inserts it between two others and into its pool.
    pub(super) fn insert_part(
        &mut self,
        whole: BlockId,
        addr: DeviceAddr,
        bytes: u64,
        prev: Option<BlockId>,
        next: Option<BlockId>,
    ) -> BlockId {
        let part = self.add_part(whole, addr, bytes);
        self.blocks.link(part, prev, next);
        self.pools.insert_block(&mut self.blocks.slots_mut(), part);
        part
    }
}

fn virtual_memory<D: Driver>(driver: &mut D) -> Result<&mut dyn VirtualMemory, Error> {
    driver
        .virtual_memory()
        .ok_or(Error::VirtualMemory(DriverError::NotSupported))
}
