//! Stitched blocks: free ranges of several segments behind addresses in one piece.
//!
//! A stitched block is only another view of memory that belongs to segments. It can be handed out
//! while all of that memory is free; in the meantime parts of it may be handed out under their own
//! addresses, or as parts of other stitched blocks.
//!
//! Source: GMLake, `free_fused_blocks`, `fragmented_free_fused_blocks`, `get_free_block`,
//! `garbage_collect_fused_blocks`. The original counts the free chunks of each stitched block and
//! keeps the usable ones apart; here it is asked for when somebody wants to know.

use std::collections::BTreeMap;

use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId, VirtualMemory};
use crate::policy::fence::{Fence, Fences};
use crate::policy::{Block, Refusal};

use super::mapping::{Mapping, Returns};
use super::ranges::{FreeRanges, Range};
use super::{Request, memory_of};

/// When a block was freed the last time.
#[derive(Debug)]
struct Mark {
    /// At the end of the work that its stream had then.
    fence: Fence,
    /// Stitched blocks freed before.
    order: u64,
}

#[derive(Debug)]
struct Stitched {
    mapping: Mapping,
    /// The memory behind its addresses, in their order, as ranges of segments.
    parts: Vec<Range>,
    /// `None` until it is freed for the first time.
    last_use: Option<Mark>,
}

impl Stitched {
    /// The memory behind its first `bytes`.
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
    /// Bytes handed out: the first ones. The memory behind the others is anybody's.
    used: u64,
    /// Whether it has lost memory it did not use, and is of no use once freed.
    torn: bool,
}

/// What the order of the search looks at: stream, bytes, address.
type Key = (StreamId, u64, DeviceAddr);

/// How many blocks are given up to get their addresses back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Garbage {
    /// Bytes of unusable blocks that are enough, if not all are wanted.
    enough: Option<u64>,
    /// Whether usable blocks go, too.
    usable: bool,
}

impl Garbage {
    /// Everything that is not handed out.
    pub(super) const ALL: Self = Self {
        enough: None,
        usable: true,
    };

    /// What goes after so many attempts to find addresses for `bytes` have failed before.
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

/// All stitched blocks. Invariant: what the live ones use is free in no segment and used by no other.
#[derive(Debug, Default)]
pub(super) struct StitchedBlocks {
    /// Those that are not handed out, usable or not.
    cached: BTreeMap<Key, Stitched>,
    live: BTreeMap<DeviceAddr, Live>,
    /// Bytes ever stitched less those collected. As in the original, what goes together with a
    /// segment is not deducted.
    bytes: u64,
    /// Blocks freed so far.
    frees: u64,
    fences: Fences,
}

impl StitchedBlocks {
    /// Bytes of addresses, by the original's count.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of addresses of a stream's blocks that are not handed out.
    pub(super) fn cached_bytes(&self, stream: StreamId) -> u64 {
        let of_stream = |&&(of, ..): &&Key| of == stream;
        let keys = self.cached.keys().filter(of_stream);
        keys.map(|&(_, bytes, _)| bytes).sum()
    }

    /// Hands out a new block: `mapping`, which has `parts` behind it.
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

    /// Hands out a usable block again: the smallest of the stream with so many bytes, unless it has
    /// more than `limit` times as many.
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
        Block {
            addr,
            bytes,
            stream,
        }
    }

    /// Marks the end of a block's use on its own stream, if it is a stitched one.
    pub(super) fn mark(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
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

    /// Takes a block back, if it is a stitched one; whether it is. A torn one goes to `returns`.
    pub(super) fn take_back(
        &mut self,
        ranges: &mut FreeRanges,
        returns: &mut Returns,
        block: Block,
    ) -> bool {
        let Some(live) = self.live.remove(&block.addr) else {
            return false;
        };
        for part in live.stitched.behind(live.used) {
            ranges.give(part);
        }
        if live.torn {
            self.give_up(live.stitched, returns);
        } else {
            let Range { addr, bytes } = live.stitched.mapping.range;
            let key = (block.stream, bytes, addr);
            self.cached.insert(key, live.stitched);
        }
        true
    }

    /// Gives up blocks that are not handed out and whose last use is over: first those that are not
    /// usable, then the others. Of a stream's blocks those go first that were freed first, up to one
    /// that is still in use on the device.
    pub(super) fn collect(
        &mut self,
        device: &mut dyn Driver,
        ranges: &FreeRanges,
        returns: &mut Returns,
        garbage: Garbage,
    ) -> Result<(), Refusal> {
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
                        self.give_up(stitched, returns);
                        returns.settle(memory_of(device)?)?;
                    }
                    if !usable && garbage.enough.is_some_and(|enough| collected >= enough) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Those that are not handed out, usable or not, by stream and then by when they were freed.
    fn by_age(&self, ranges: &FreeRanges, usable: bool) -> Vec<(Key, u64)> {
        let blocks = self.cached.iter();
        let wanted = blocks.filter(|(_, stitched)| stitched.is_free(ranges) == usable);
        let mut by_age: Vec<(Key, u64)> = wanted.map(|(&key, s)| (key, s.order())).collect();
        by_age.sort_unstable_by_key(|&((stream, ..), order)| (stream, order));
        by_age
    }

    /// Whether the device has done what was asked of it before the block was freed.
    fn is_over(&self, device: &mut dyn Driver, key: &Key) -> Result<bool, Refusal> {
        let stitched = self.cached.get(key);
        match stitched.and_then(|stitched| stitched.last_use.as_ref()) {
            Some(mark) => mark.fence.is_over(device),
            None => Ok(true),
        }
    }

    /// Lets go of the memory of a segment that is free as a whole. Blocks that are not handed out go
    /// with it. One that is handed out does not use it and keeps only what it uses.
    ///
    /// The original crashes when such a block is freed later.
    pub(super) fn forget(
        &mut self,
        memory: &mut dyn VirtualMemory,
        returns: &mut Returns,
        segment: Range,
    ) -> Result<(), DriverError> {
        let gone: Vec<Key> = self
            .cached
            .iter()
            .filter(|(_, stitched)| stitched.has_memory_of(segment))
            .map(|(&key, _)| key)
            .collect();
        for key in gone {
            if let Some(stitched) = self.cached.remove(&key) {
                self.give_up(stitched, returns);
            }
        }
        for live in self.live.values_mut() {
            if live.stitched.has_memory_of(segment) {
                live.torn = true;
                live.stitched.mapping.shrink(memory, live.used)?;
                live.stitched.parts = live.stitched.behind(live.used);
            }
        }
        returns.settle(memory)
    }

    fn give_up(&mut self, stitched: Stitched, returns: &mut Returns) {
        if let Some(mark) = stitched.last_use {
            self.fences.take_down(mark.fence);
        }
        returns.push(stitched.mapping);
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
            ensure!(behind == bytes, "not all of {addr} has memory behind it");
        }
        Ok(())
    }
}
