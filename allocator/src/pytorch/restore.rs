//! Rebuilds an allocator from a snapshot.
//!
//! Each segment is requested from the device, which must place it at the recorded address, as a device
//! that follows a recording does.
//!
//! A snapshot is incomplete. It does not contain the ages of free blocks (garbage collection starts
//! anew), the streams recorded on allocated blocks, or the streams that pending blocks wait for (they
//! wait for their own). Of an expandable segment it contains only the mapped runs; the segment starts
//! where the device places it, at or below the lowest run.

use super::block::{Block, State};
use super::size::{MIN_BLOCK, page_size};
use super::{BlockId, PoolId, PyTorch, ShelfId};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::{Error, PoolError};
use crate::mempool::MempoolId;
use crate::settings::Settings;
use crate::snapshot::{BlockState, SegmentInfo};
use crate::stats::PoolKind;

/// Why a state could not be rebuilt.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// PyTorch's allocator cannot be in this state.
    #[error("segment at {segment}: {reason}")]
    Impossible {
        /// The segment.
        segment: DeviceAddr,
        /// The reason.
        reason: String,
    },
    /// The device placed a segment at another address.
    #[error("the device places at {placed} what the snapshot has at {recorded}")]
    Placed {
        /// The address in the snapshot.
        recorded: DeviceAddr,
        /// The address from the device.
        placed: DeviceAddr,
    },
    /// The device is out of memory or fails.
    #[error(transparent)]
    Device(#[from] Error),
}

impl<D: Driver> PyTorch<D> {
    /// Creates an allocator with these segments. The statistics count their memory and blocks, but not
    /// the driver calls that reserved them.
    ///
    /// # Errors
    /// [`RestoreError`] for the first segment that is impossible or cannot be reserved at its address.
    pub fn restore(
        driver: D,
        settings: Settings,
        segments: &[SegmentInfo],
    ) -> Result<Self, RestoreError> {
        let mut allocator = Self::new(driver, settings);
        let segments = in_order(segments)?;
        let (expandable, plain): (Vec<_>, Vec<_>) = segments
            .into_iter()
            .partition(|segment| segment.is_expandable);
        for segment in plain {
            allocator.restore_segment(segment)?;
        }
        let mut ranges: Vec<Vec<&SegmentInfo>> = Vec::new();
        for run in expandable {
            let same = |other: &&mut Vec<&SegmentInfo>| owner(other[0]) == owner(run);
            match ranges.iter_mut().find(same) {
                Some(range) => range.push(run),
                None => ranges.push(vec![run]),
            }
        }
        for range in ranges {
            allocator.restore_expandable(&range)?;
        }
        let stats = &mut allocator.stats;
        stats.num_device_alloc = 0;
        stats.segment.reset_accumulated();
        stats.reserved_bytes.reset_accumulated();
        Ok(allocator)
    }

    fn restore_segment(&mut self, segment: &SegmentInfo) -> Result<(), RestoreError> {
        let bytes = segment.total_size();
        let placed = self.driver.malloc(bytes).map_err(Error::Driver)?;
        ensure_placed(segment.address, placed)?;
        let shelf = self.restored_shelf(segment)?;
        let whole = Block::whole_segment(segment.address, bytes, shelf, segment.kind, None);
        let whole = self.insert_segment(whole);
        self.cut_into_blocks(whole, segment)
    }

    /// Rebuilds one expandable segment from its mapped runs, lowest first.
    fn restore_expandable(&mut self, runs: &[&SegmentInfo]) -> Result<(), RestoreError> {
        let first = runs[0];
        let page = page_size(first.kind, &self.settings);
        let shelf = self.restored_shelf(first)?;
        let mut rest = self.add_expandable_segment(shelf)?;
        let (base, bytes) = (self.blocks[rest].addr, self.blocks[rest].size);
        if base > first.address {
            return Err(RestoreError::Placed {
                recorded: first.address,
                placed: base,
            });
        }
        let mut end_of_last = DeviceAddr::NULL;
        for run in runs {
            let offset = run.address.offset_from(base);
            let size = run.total_size();
            let end = offset.checked_add(size);
            let whole_pages = offset.is_multiple_of(page) && size.is_multiple_of(page);
            if !whole_pages || end.is_none_or(|end| end > bytes) {
                let reason = format!("not whole pages of {page} bytes from {base} on");
                return Err(impossible(run, reason));
            }
            if run.address == end_of_last {
                let reason = format!("it begins where the run before it ends, at {end_of_last}");
                return Err(impossible(run, reason));
            }
            end_of_last = run.address.offset(size);
            let block = self.map_run(rest, run)?;
            rest = self.blocks[block].next.unwrap_or(block);
            self.pools.remove_block(&self.blocks, block);
            self.cut_into_blocks(block, run)?;
            if let Some(private) = self.private_pool_of(shelf) {
                private.count_malloc();
            }
        }
        Ok(())
    }

    /// Maps a run inside the unmapped block `rest`. Returns the mapped block.
    fn map_run(&mut self, rest: BlockId, run: &SegmentInfo) -> Result<BlockId, RestoreError> {
        let before = run.address.offset_from(self.blocks[rest].addr);
        let mut block = rest;
        if before > 0 {
            self.pools.remove_block(&self.blocks, rest);
            let gap = &mut self.blocks[rest];
            let (tail, next) = (gap.size - before, gap.next);
            gap.size = before;
            self.pools.insert_block(&mut self.blocks.slots_mut(), rest);
            block = self.insert_part(rest, run.address, tail, Some(rest), next);
        }
        if self.map_block(block, run.total_size())? {
            Ok(block)
        } else {
            Err(impossible(
                run,
                "the device does not have enough memory".to_owned(),
            ))
        }
    }

    /// Splits a block that is in no pool into the blocks of the snapshot and counts them.
    fn cut_into_blocks(
        &mut self,
        whole: BlockId,
        segment: &SegmentInfo,
    ) -> Result<(), RestoreError> {
        let mut rest = whole;
        for (index, info) in segment.blocks.iter().enumerate() {
            let id = rest;
            if index + 1 < segment.blocks.len() {
                let block = &mut self.blocks[id];
                let (tail, next) = (block.size - info.size, block.next);
                block.size = info.size;
                rest = self.add_part(id, info.address.offset(info.size), tail);
                self.blocks.link(rest, Some(id), next);
            }
            self.blocks[id].requested = info.requested_size;
            self.restore_block(id, info.state)?;
        }
        // Whether a free block is split is known only once all blocks exist. In expandable segments it does not count.
        let mut at = Some(whole).filter(|&id| !self.blocks[id].is_expandable());
        while let Some(id) = at {
            let block = &self.blocks[id];
            at = block.next;
            if block.is_idle() && block.is_split() {
                let bytes = block.size;
                self.stats.inactive_split.increase(segment.kind, 1);
                self.stats
                    .inactive_split_bytes
                    .increase(segment.kind, bytes);
            }
        }
        Ok(())
    }

    fn restore_block(&mut self, id: BlockId, state: BlockState) -> Result<(), RestoreError> {
        let block = &self.blocks[id];
        let (size, requested) = (block.size, block.requested);
        let (kind, stream) = (block.kind, self.pools[block.shelf].stream);
        if state == BlockState::Inactive {
            self.pools.insert_block(&mut self.blocks.slots_mut(), id);
            return Ok(());
        }
        if state == BlockState::ActivePendingFree {
            self.stats.count_restored_waiting(kind, size, requested);
            self.blocks[id].state = State::Waiting;
            self.note_stream(id, stream);
            return Ok(self.insert_events(id)?);
        }
        self.blocks[id].state = State::Allocated;
        let addr = self.blocks[id].addr;
        self.live.insert(self.blocks.slots(), addr, id);
        self.stats.count_allocation(kind, size, requested);
        if self.settings.is_oversize(size) {
            self.stats.oversize_allocations.increase(1);
        }
        Ok(())
    }

    /// The shelf of a segment. Creates a missing private pool with one user.
    fn restored_shelf(&mut self, segment: &SegmentInfo) -> Result<ShelfId, Error> {
        let pool = self.restored_pool(segment)?;
        Ok(self.pools.shelf(pool, segment.stream))
    }

    fn restored_pool(&mut self, segment: &SegmentInfo) -> Result<PoolId, Error> {
        if segment.pool == MempoolId::DEFAULT {
            return Ok(self.default_pool(segment.kind));
        }
        if self.private_pools.get(segment.pool).is_none() {
            self.create_or_use_pool(segment.pool)?;
        }
        let private = self
            .private_pools
            .get(segment.pool)
            .ok_or(PoolError::Unknown(segment.pool))?;
        Ok(private.of(segment.kind))
    }
}

/// The properties shared by the runs of one expandable segment.
fn owner(segment: &SegmentInfo) -> (StreamId, PoolKind, MempoolId) {
    (segment.stream, segment.kind, segment.pool)
}

fn impossible(segment: &SegmentInfo, reason: String) -> RestoreError {
    RestoreError::Impossible {
        segment: segment.address,
        reason,
    }
}

fn ensure_placed(recorded: DeviceAddr, placed: DeviceAddr) -> Result<(), RestoreError> {
    if recorded == placed {
        return Ok(());
    }
    Err(RestoreError::Placed { recorded, placed })
}

/// Checks that PyTorch's allocator could be in this state.
///
/// # Errors
/// [`RestoreError::Impossible`] for the first impossible segment.
pub fn ensure_possible(segments: &[SegmentInfo]) -> Result<(), RestoreError> {
    in_order(segments).map(|_| ())
}

/// The validated segments, sorted by address.
fn in_order(segments: &[SegmentInfo]) -> Result<Vec<&SegmentInfo>, RestoreError> {
    let mut segments: Vec<&SegmentInfo> = segments.iter().collect();
    segments.sort_by_key(|segment| segment.address);
    let mut end = DeviceAddr::NULL;
    for segment in &segments {
        end = validate(segment, end)?;
    }
    Ok(segments)
}

/// Checks that the segment starts at or after `end` and that its blocks are possible. Returns its end.
fn validate(segment: &SegmentInfo, end: DeviceAddr) -> Result<DeviceAddr, RestoreError> {
    let wrong = |reason: String| Err(impossible(segment, reason));
    if segment.blocks.is_empty() {
        return wrong("it has no blocks".to_owned());
    }
    if segment.address.is_null() {
        return wrong("nothing is at null".to_owned());
    }
    if segment.address < end {
        return wrong(format!("it overlaps the one that ends at {end}"));
    }
    let mut expected = segment.address;
    let mut free_before = false;
    for block in &segment.blocks {
        let free = block.state == BlockState::Inactive;
        let whole_units = |bytes: u64| bytes.is_multiple_of(MIN_BLOCK);
        if block.address != expected {
            return wrong(format!("its blocks have a gap or overlap at {expected}"));
        }
        if block.size == 0 || !whole_units(block.size) {
            return wrong(format!("the block at {expected} has {} bytes", block.size));
        }
        if !whole_units(block.address.0) {
            return wrong("blocks start at multiples of 512".to_owned());
        }
        if !free && block.requested_size > block.size {
            let (size, requested) = (block.size, block.requested_size);
            return wrong(format!(
                "the block at {expected} of {size} bytes cannot serve {requested}"
            ));
        }
        if free && free_before {
            return wrong(format!(
                "the free block at {expected} was not merged with the one before it"
            ));
        }
        let Some(behind) = expected.0.checked_add(block.size) else {
            return wrong("it goes beyond the end of the address space".to_owned());
        };
        expected = DeviceAddr(behind);
        free_before = free;
    }
    Ok(expected)
}
