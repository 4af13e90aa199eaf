//! Stitched blocks: free ranges of several segments, mapped to consecutive addresses.
//!
//! A stitched block is another view of memory that belongs to segments. It can be handed out while all of
//! that memory is free. While it is not, parts of its memory can be handed out at their own addresses or
//! in other stitched blocks.
//!
//! Source: GMLake, `free_fused_blocks`, `fragmented_free_fused_blocks`, `get_free_block`,
//! `garbage_collect_fused_blocks`. The original counts the free chunks of each stitched block and keeps the
//! usable ones separately; here this is computed when needed.

use std::collections::BTreeMap;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, Status, StreamId, VirtualMemory};
use crate::policy::fence::{Fence, Fences};
use crate::policy::undo::Undo;
use crate::policy::{Block, Served};

use super::mapping::Mapping;
use super::ranges::{FreeRanges, Range};
use super::{Request, memory_of};

/// The last free of a block.
#[derive(Debug)]
struct Mark {
    /// The work that its stream had then.
    fence: Fence,
    /// Number of stitched blocks freed before.
    order: u64,
}

#[derive(Debug)]
struct Stitched {
    mapping: Mapping,
    /// The mapped memory in address order, as ranges of segments.
    parts: Vec<Range>,
    /// `None` before the first free.
    last_use: Option<Mark>,
}

impl Stitched {
    /// Returns the memory mapped to its first `bytes`.
    fn behind(&self, bytes: u64) -> Vec<Range> {
        let mut left = bytes;
        let mut behind = Vec::new();
        for part in &self.parts {
            let used = part.first(left);
            if used.bytes == 0 {
                break;
            }
            left -= used.bytes;
            behind.push(used);
        }
        behind
    }

    fn is_free(&self, ranges: &FreeRanges) -> bool {
        self.parts.iter().all(|&part| ranges.is_free(part))
    }

    fn has_memory_of(&self, segment: Range) -> bool {
        self.parts.iter().any(|part| part.overlaps(segment))
    }

    fn order(&self) -> u64 {
        self.last_use.as_ref().map_or(0, |mark| mark.order)
    }
}

#[derive(Debug)]
struct Live {
    stitched: Stitched,
    /// Bytes in use, from the start on. The memory of the rest can be used otherwise.
    used: u64,
    /// Whether it lost memory that it did not use. It is unmapped once freed.
    torn: bool,
}

/// Search order: stream, bytes, address.
type Key = (StreamId, u64, DeviceAddr);

/// How many cached blocks to unmap for their addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Garbage {
    /// Bytes of unusable blocks that suffice; `None` for all.
    enough: Option<u64>,
    /// Whether to unmap usable blocks, too.
    usable: bool,
}

impl Garbage {
    /// All cached blocks.
    pub(super) const ALL: Self = Self {
        enough: None,
        usable: true,
    };

    /// What to unmap after `attempts` failed attempts to reserve addresses for `bytes`.
    pub(super) fn after(attempts: u32, bytes: u64) -> Self {
        match attempts {
            0 => Self {
                enough: Some(bytes.saturating_mul(4)),
                usable: false,
            },
            1 => Self {
                enough: Some(bytes.saturating_mul(16)),
                usable: true,
            },
            _ => Self::ALL,
        }
    }
}

/// All stitched blocks. Invariant: memory that a live one uses is not free and not used by another.
#[derive(Debug, Default)]
pub(super) struct StitchedBlocks {
    /// Blocks that are not live, usable or not.
    cached: BTreeMap<Key, Stitched>,
    live: BTreeMap<DeviceAddr, Live>,
    /// Bytes stitched less bytes collected. As in the original, blocks that are unmapped together with a
    /// segment are not deducted.
    bytes: u64,
    /// Blocks freed so far.
    frees: u64,
    fences: Fences,
}

impl StitchedBlocks {
    /// Bytes of addresses, as the original counts them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of addresses of a stream's cached blocks.
    pub(super) fn cached_bytes(&self, stream: StreamId) -> u64 {
        let of_stream = |&&(of, ..): &&Key| of == stream;
        let keys = self.cached.keys().filter(of_stream);
        keys.map(|&(_, bytes, _)| bytes).sum()
    }

    /// Adds a live block: `mapping`, which maps `parts`.
    pub(super) fn add(
        &mut self,
        ranges: &mut FreeRanges,
        mapping: Mapping,
        parts: Vec<Range>,
        stream: StreamId,
    ) -> Block {
        let bytes = mapping.range.bytes;
        self.bytes += bytes;
        let stitched = Stitched {
            mapping,
            parts,
            last_use: None,
        };
        self.hand_out(ranges, stitched, Request { bytes, stream })
    }

    /// Reuses a usable block: the smallest of the stream that is large enough and at most `limit` times
    /// as large as the request.
    pub(super) fn reuse(
        &mut self,
        ranges: &mut FreeRanges,
        request: Request,
        limit: f64,
    ) -> Option<Block> {
        let Request { bytes, stream } = request;
        let most = bytes as f64 * limit;
        let large_enough = self.cached.range((stream, bytes, DeviceAddr::NULL)..);
        let mut candidates =
            large_enough.take_while(|&(&(of, size, _), _)| of == stream && size as f64 <= most);
        let (&key, _) = candidates.find(|(_, stitched)| stitched.is_free(ranges))?;
        let stitched = self.cached.remove(&key)?;
        Some(self.hand_out(ranges, stitched, request))
    }

    fn hand_out(&mut self, ranges: &mut FreeRanges, stitched: Stitched, request: Request) -> Block {
        let Request { bytes, stream } = request;
        for part in stitched.behind(bytes) {
            ranges.take(part);
        }
        let addr = stitched.mapping.range.addr;
        let live = Live {
            stitched,
            used: bytes,
            torn: false,
        };
        self.live.insert(addr, live);
        Block::new(addr, bytes, stream)
    }

    /// Records the end of a block's use on its own stream, if the block is stitched.
    pub(super) fn mark(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let Some(live) = self.live.get_mut(&block.addr) else {
            return Ok(());
        };
        let fence = self.fences.raise(device, &[block.stream])?;
        let order = self.frees;
        self.frees += 1;
        if let Some(before) = live.stitched.last_use.replace(Mark { fence, order }) {
            self.fences.take_down(before.fence);
        }
        Ok(())
    }

    /// Frees a block if it is stitched. Returns whether it is. A torn block is unmapped when `undo` runs.
    pub(super) fn take_back(
        &mut self,
        ranges: &mut FreeRanges,
        undo: &mut Undo,
        block: Block,
    ) -> bool {
        let Some(live) = self.live.remove(&block.addr) else {
            return false;
        };
        for part in live.stitched.behind(live.used) {
            ranges.give(part);
        }
        if live.torn {
            self.give_up(live.stitched, undo);
        } else {
            let Range { addr, bytes } = live.stitched.mapping.range;
            let key = (block.stream, bytes, addr);
            self.cached.insert(key, live.stitched);
        }
        true
    }

    /// Unmaps cached blocks whose last use is complete, unusable ones first. The blocks of a stream go in
    /// the order in which they were freed, up to one that the device still uses.
    pub(super) fn collect(
        &mut self,
        device: &mut dyn Driver,
        ranges: &FreeRanges,
        undo: &mut Undo,
        garbage: Garbage,
    ) -> Served {
        let mut collected = 0;
        for usable in [false, true] {
            if usable && !garbage.usable {
                break;
            }
            let by_age = self.by_age(ranges, usable);
            for of_stream in by_age.chunk_by(|(a, _), (b, _)| a.0 == b.0) {
                for (key, _) in of_stream {
                    if !self.is_over(device, key)? {
                        break;
                    }
                    if let Some(stitched) = self.cached.remove(key) {
                        let (_, bytes, _) = *key;
                        collected += bytes;
                        self.bytes = self.bytes.saturating_sub(bytes);
                        self.give_up(stitched, undo);
                        undo.run(memory_of(device)?)?;
                    }
                    if !usable && garbage.enough.is_some_and(|enough| collected >= enough) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the cached blocks, usable or not, by stream and then by the order of their frees.
    fn by_age(&self, ranges: &FreeRanges, usable: bool) -> Vec<(Key, u64)> {
        let blocks = self.cached.iter();
        let wanted = blocks.filter(|(_, stitched)| stitched.is_free(ranges) == usable);
        let mut by_age: Vec<(Key, u64)> = wanted.map(|(&key, s)| (key, s.order())).collect();
        by_age.sort_unstable_by_key(|&((stream, ..), order)| (stream, order));
        by_age
    }

    /// Whether the work submitted before the block was freed is complete.
    fn is_over(&self, device: &mut dyn Driver, key: &Key) -> Served<bool> {
        let stitched = self.cached.get(key);
        match stitched.and_then(|stitched| stitched.last_use.as_ref()) {
            Some(mark) => mark.fence.is_over(device),
            None => Ok(true),
        }
    }

    /// Unmaps the memory of a segment that is entirely free. Cached blocks that map it are unmapped; a
    /// live block that maps it does not use it and keeps only what it uses.
    ///
    /// The original crashes when such a live block is freed later.
    pub(super) fn forget(
        &mut self,
        memory: &mut dyn VirtualMemory,
        undo: &mut Undo,
        segment: Range,
    ) -> Status {
        let gone: Vec<Key> = self
            .cached
            .iter()
            .filter(|(_, stitched)| stitched.has_memory_of(segment))
            .map(|(&key, _)| key)
            .collect();
        for key in gone {
            if let Some(stitched) = self.cached.remove(&key) {
                self.give_up(stitched, undo);
            }
        }
        for live in self.live.values_mut() {
            if live.stitched.has_memory_of(segment) {
                live.torn = true;
                live.stitched.mapping.shrink(memory, live.used)?;
                live.stitched.parts = live.stitched.behind(live.used);
            }
        }
        undo.run(memory)
    }

    fn give_up(&mut self, stitched: Stitched, undo: &mut Undo) {
        if let Some(mark) = stitched.last_use {
            self.fences.take_down(mark.fence);
        }
        stitched.mapping.unmap(undo);
    }

    pub(super) fn check(&self, ranges: &FreeRanges) -> Result<(), Violation> {
        let used = |live: &Live| live.stitched.behind(live.used);
        let mut used: Vec<Range> = self.live.values().flat_map(used).collect();
        used.sort_unstable_by_key(|part| part.addr);
        for &part in &used {
            ensure!(
                !ranges.has_free(part),
                "memory at {} is in use and free",
                part.addr
            );
        }
        for pair in used.windows(2) {
            ensure!(
                !pair[0].overlaps(pair[1]),
                "memory at {} is in use twice",
                pair[1].addr
            );
        }
        for (&(_, bytes, addr), stitched) in &self.cached {
            let behind: u64 = stitched.parts.iter().map(|part| part.bytes).sum();
            ensure!(behind == bytes, "{addr} is not entirely mapped");
        }
        Ok(())
    }
}
