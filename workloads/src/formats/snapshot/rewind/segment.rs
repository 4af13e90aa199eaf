//! One segment while entries are undone.
//!
//! Invariant: the blocks cover the segment without gaps, and adjacent free blocks are coalesced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::pytorch::size::{self, SMALL_LIMIT};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

#[derive(Clone, Copy, Debug)]
struct Block {
    size: u64,
    /// Requested bytes; 0 if it is free.
    requested: u64,
    state: BlockState,
    /// Whether it may have been up to 1 MiB larger, because it is unknown whether the remainder was split
    /// off.
    is_guessed: bool,
}

impl Block {
    fn free(size: u64) -> Self {
        Self {
            size,
            requested: 0,
            state: BlockState::Inactive,
            is_guessed: false,
        }
    }

    fn is_free(&self) -> bool {
        self.state == BlockState::Inactive
    }
}

/// A segment, or one mapped run of an expandable segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// The segment without its blocks.
    pub(super) info: SegmentInfo,
    blocks: BTreeMap<DeviceAddr, Block>,
    size: u64,
}

impl Segment {
    /// A segment whose blocks cover it.
    pub(super) fn new(info: &SegmentInfo) -> Self {
        let blocks = info.blocks.iter().map(|block| {
            let known = Block {
                size: block.size,
                requested: block.requested_size,
                state: block.state,
                is_guessed: false,
            };
            (block.address, known)
        });
        Self {
            blocks: blocks.collect(),
            size: info.total_size(),
            info: SegmentInfo {
                blocks: Vec::new(),
                ..info.clone()
            },
        }
    }

    /// A free segment of `size` bytes.
    pub(super) fn free(info: SegmentInfo, size: u64) -> Result<Self, String> {
        let end = info.address.0.checked_add(size);
        if size == 0 || end.is_none() {
            return Err("no segment can have this size at this address".to_owned());
        }
        Ok(Self {
            blocks: BTreeMap::from([(info.address, Block::free(size))]),
            size,
            info,
        })
    }

    pub(super) fn into_info(self) -> SegmentInfo {
        let blocks = self
            .blocks
            .iter()
            .map(|(&addr, block)| BlockInfo::new(addr, block.size, block.requested, block.state));
        SegmentInfo {
            blocks: blocks.collect(),
            ..self.info
        }
    }

    pub(super) fn start(&self) -> DeviceAddr {
        self.info.address
    }

    /// The address behind it.
    pub(super) fn end(&self) -> DeviceAddr {
        self.start().offset(self.size)
    }

    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn is_wholly_free(&self) -> bool {
        self.blocks.values().all(Block::is_free)
    }

    pub(super) fn count_of(&self, state: BlockState) -> usize {
        self.blocks
            .values()
            .filter(|block| block.state == state)
            .count()
    }

    /// The blocks with a guessed size.
    pub(super) fn guessed(&self) -> impl Iterator<Item = DeviceAddr> {
        let blocks = self.blocks.iter().filter(|(_, block)| block.is_guessed);
        blocks.map(|(&addr, _)| addr)
    }

    /// Frees the block and coalesces it with its free neighbours.
    pub(super) fn undo_alloc(&mut self, addr: DeviceAddr, requested: u64) -> Result<(), String> {
        let block = self.blocks.get_mut(&addr).filter(|block| !block.is_free());
        let block = block.ok_or("no block in use begins there after it")?;
        if requested > block.size {
            let size = block.size;
            return Err(format!("the block after it has only {size} bytes"));
        }
        let size = block.size;
        self.put_joined(addr, size);
        Ok(())
    }

    /// Makes the block at `addr` free, and one with its free neighbours.
    fn put_joined(&mut self, addr: DeviceAddr, mut size: u64) {
        if let Entry::Occupied(next) = self.blocks.entry(addr.offset(size))
            && next.get().is_free()
        {
            size += next.remove().size;
        }
        let mut below = self.blocks.range_mut(..=addr).rev();
        let block = below.next().map(|(_, block)| block);
        let before = below.next().map(|(_, before)| before);
        match (before.filter(|before| before.is_free()), block) {
            (Some(before), _) => {
                before.size += size;
                self.blocks.remove(&addr);
            }
            (None, Some(block)) => *block = Block::free(size),
            (None, None) => {}
        }
    }

    /// Marks the block as allocated again.
    pub(super) fn undo_free_request(&mut self, addr: DeviceAddr) -> Result<(), String> {
        let block = self.blocks.get_mut(&addr);
        let block = block
            .filter(|block| block.state == BlockState::ActivePendingFree)
            .ok_or("the free neither completes nor waits for a stream after it")?;
        block.state = BlockState::ActiveAllocated;
        Ok(())
    }

    /// Takes a pending block out of the free range around `addr`.
    pub(super) fn undo_free(
        &mut self,
        addr: DeviceAddr,
        requested: u64,
        settings: &Settings,
    ) -> Result<(), String> {
        let rounded = size::round_size(requested, settings);
        let cut = rounded.and_then(|rounded| addr.0.checked_add(rounded));
        let keeps_tails = self.keeps_tails();
        let mut below = self.blocks.range_mut(..=addr).rev();
        let (Some((&start, range)), Some(cut)) = (below.next(), cut.map(DeviceAddr)) else {
            return Err("no block can have this size".to_owned());
        };
        let end = start.offset(range.size);
        if !range.is_free() || cut > end {
            return Err("its range is not free after it".to_owned());
        }
        let (size, is_guessed) = size_of_block(addr, cut, end, keeps_tails, settings);
        let block = Block {
            size,
            requested,
            state: BlockState::ActivePendingFree,
            is_guessed,
        };
        // If a free block cannot be so small, the bytes before this one are the tail of the block before them, whose
        // size was guessed.
        let bytes_before = addr.offset_from(start);
        let is_tail = keeps_tails && bytes_before <= SMALL_LIMIT;
        let before = below.next().map(|(_, before)| before);
        if let Some(before) = before.filter(|before| is_tail && before.is_guessed) {
            before.size += bytes_before;
            before.is_guessed = false;
            self.blocks.remove(&start);
        } else {
            *range = Block::free(bytes_before);
        }
        self.blocks.insert(addr, block);
        let behind = addr.offset(size);
        self.put_free(behind, end);
        Ok(())
    }

    /// Whether blocks keep a remainder of up to 1 MiB.
    fn keeps_tails(&self) -> bool {
        self.info.kind == PoolKind::Large && !self.info.is_expandable
    }

    /// The segment without `size` free bytes at `addr`: up to two runs.
    pub(super) fn without(&self, addr: DeviceAddr, size: u64) -> Result<Vec<Self>, String> {
        let range = self
            .blocks
            .range(..=addr)
            .next_back()
            .filter(|(_, block)| block.is_free());
        let end = addr.0.checked_add(size).map(DeviceAddr);
        let (Some((&start, range)), Some(end)) = (range, end) else {
            return Err("blocks of the pages are in use before they were mapped".to_owned());
        };
        let end_of_range = start.offset(range.size);
        if size == 0 || end > end_of_range {
            return Err("blocks of the pages are in use before they were mapped".to_owned());
        }
        let mut before = self.part(self.start(), addr);
        before.put_free(start, addr);
        let mut behind = self.part(end, self.end());
        behind.put_free(end, end_of_range);
        let parts = [before, behind].into_iter();
        Ok(parts.filter(|part| part.size > 0).collect())
    }

    /// The blocks inside a part of the segment.
    fn part(&self, start: DeviceAddr, end: DeviceAddr) -> Self {
        let blocks = self.blocks.range(start..end);
        let whole = blocks.filter(|(addr, block)| addr.offset(block.size) <= end);
        Self {
            blocks: whole.map(|(&addr, &block)| (addr, block)).collect(),
            size: end.offset_from(start),
            info: SegmentInfo {
                address: start,
                ..self.info.clone()
            },
        }
    }

    fn put_free(&mut self, start: DeviceAddr, end: DeviceAddr) {
        if start < end {
            self.blocks
                .insert(start, Block::free(end.offset_from(start)));
        }
    }

    /// Appends the run that begins at the end of this one.
    pub(super) fn append(&mut self, other: Self) {
        let seam = other.start();
        self.size += other.size;
        self.blocks.extend(other.blocks);
        let first = self.blocks.get(&seam).filter(|first| first.is_free());
        if let Some(size) = first.map(|first| first.size) {
            self.put_joined(seam, size);
        }
    }
}

/// The size of the block at `addr` whose rounded request ended at `cut`, in a free range that ends at `end`; and
/// whether the size is a guess.
///
/// Small pools and expandable segments always split off the remainder. Elsewhere a remainder of up to 1 MiB is never
/// split off, so a rest of the range of at most 1 MiB belonged to the block. An oversize block is never split and
/// fills its segment.
fn size_of_block(
    addr: DeviceAddr,
    cut: DeviceAddr,
    end: DeviceAddr,
    keeps_tails: bool,
    settings: &Settings,
) -> (u64, bool) {
    let rounded = cut.offset_from(addr);
    let rest = end.offset_from(cut);
    if !keeps_tails {
        (rounded, false)
    } else if rest <= SMALL_LIMIT || settings.is_oversize(rounded) {
        (end.offset_from(addr), false)
    } else {
        (rounded, true)
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::{Action, TraceEntry};

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{recording, segment, shown};

    /// Undoes an entry about the last segment.
    fn undo(
        segments: &mut Vec<Segment>,
        entry: &TraceEntry,
        settings: &Settings,
    ) -> Result<(), String> {
        let mut last = segments.pop().unwrap();
        let before = shown(&last.clone().into_info(), &[]);
        let TraceEntry {
            action, addr, size, ..
        } = *entry;
        let undone = match action {
            Action::Alloc => last.undo_alloc(addr, size),
            Action::FreeRequested => last.undo_free_request(addr),
            Action::FreeCompleted => last.undo_free(addr, size, settings),
            Action::SegmentMap => {
                let parts = last.without(addr, size);
                return parts
                    .map(|parts| segments.extend(parts))
                    .inspect_err(|_| segments.push(last));
            }
            _ => {
                let first = segments.last_mut().unwrap();
                let info = SegmentInfo {
                    address: addr,
                    ..first.info.clone()
                };
                let mut pages = Segment::free(info, size).unwrap();
                pages.append(last);
                first.append(pages);
                return Ok(());
            }
        };
        let after = shown(&last.clone().into_info(), &[]);
        let is_unchanged = undone.is_ok() || before == after;
        assert!(is_unchanged, "an error changes nothing");
        segments.push(last);
        undone
    }

    #[test]
    fn entries_about_a_segment_are_undone() {
        cases::check("src/formats/snapshot/cases/segments.txt", |text| {
            let recording = recording(text);
            let info = &recording.segments[0];
            let empty = SegmentInfo {
                blocks: Vec::new(),
                ..info.clone()
            };
            let mut segments = vec![Segment::free(empty, info.total_size()).unwrap()];
            let settings = recording.settings().unwrap().settings;
            let undone = recording
                .entries
                .iter()
                .map(|entry| undo(&mut segments, entry, &settings));
            let mut told: Vec<String> = undone.filter_map(Result::err).collect();
            for segment in segments {
                let guessed: Vec<DeviceAddr> = segment.guessed().collect();
                assert_eq!(segment.end(), segment.start().offset(segment.size()));
                let info = segment.clone().into_info();
                assert_eq!(info.total_size(), segment.size());
                let free = info
                    .blocks
                    .iter()
                    .filter(|block| !block.is_active())
                    .count();
                assert_eq!(segment.count_of(BlockState::Inactive), free);
                assert_eq!(segment.is_wholly_free(), free == info.blocks.len());
                told.push(shown(&info, &guessed));
            }
            if told.is_empty() {
                return "nothing is left".to_owned();
            }
            told.join("\n")
        });
    }

    #[test]
    fn a_segment_lies_in_the_address_space() {
        let info = || segment("40M");
        for size in [0, u64::MAX - (40 << 20) + 1] {
            let refused = Segment::free(info(), size).unwrap_err();
            assert_eq!(refused, "no segment can have this size at this address");
        }
        assert!(Segment::free(info(), u64::MAX - (40 << 20)).is_ok());
    }
}
