//! GMLake: several free ranges are mapped at consecutive new addresses, *stitched*, to serve a request that
//! none of them could serve alone.
//!
//! ```text
//!   segment, 24 MiB                 segment, 20 MiB
//!  ┌─────────┬─────────────┐       ┌─────────────┬─────────┐
//!  │ in use  │ 16 MiB free │       │ 12 MiB free │ in use  │
//!  └─────────┴──────┬──────┘       └──────┬──────┴─────────┘
//!                   └────────┐   ┌────────┘  the same physical memory,
//!                   ┌────────┴───┴────────┐  mapped a second time
//!                   │ stitched,    28 MiB │
//!                   └─────────────────────┘
//! ```
//!
//! Source: GMLake (Guo et al., ASPLOS 2024) as published in antgroup/glake at fb24ee8, a modification of the
//! caching allocator of PyTorch 2.0. Where the paper and the code differ, this follows the code.
//!
//! | setting | default | |
//! |---|---|---|
//! | `frag_limit` | 512 MiB | the smallest request to stitch for, in bytes |
//! | `reuse_limit` | 10 | the largest ratio of a reused stitched block to its request |
//! | `defrag_level` | 0 | 0 stitches before memory is taken from the device, 1 after the device has refused, 2 after cached memory was returned, too |
//! | `auto_gc` | 1000 GiB | bytes of stitched addresses above which unused blocks are unmapped |
//!
//! # A request
//!
//! The small pool serves requests up to 1 MiB as in PyTorch: segments of 2 MiB from `cudaMalloc`, best fit,
//! split and coalesce, in multiples of 512 bytes. Larger requests, in multiples of 2 MiB, get
//!
//! 1. the best fit among the free ranges of the stream's segments, split to size;
//! 2. or the best fit among the stitched blocks whose memory is all free, if it is at most `reuse_limit`
//!    times as large. The memory behind its unused end stays free;
//! 3. or, from `frag_limit` bytes on, the largest free ranges that add up to the request, stitched;
//! 4. or a new segment: 20 MiB for less than 10 MiB, otherwise the size of the request, in chunks of 2 MiB
//!    of physical memory;
//! 5. or the result of 4 and 3 once more, after all cached segments are returned.
//!
//! With `defrag_level` 1 the first attempt of 3 comes after 4; with 2 only the last one is made. A freed
//! stitched block is kept. When all stitched blocks together exceed `auto_gc` bytes, the unused ones are
//! unmapped; some of them are, too, when the device runs out of addresses.
//!
//! # Differences
//!
//! - The original crashes or reads freed memory when it returns a segment that three stitched blocks map, or
//!   one that a live stitched block maps but does not use. Here neither happens.
//! - If the device fails during stitching, the original loses the memory.
//! - The original creates an event for each request and records it at each free. For blocks that are not
//!   stitched no decision depends on it, so it is left out.
//! - Left out: `vmmDefragment=0`, which is PyTorch's allocator; `reAlloc`, which is off by default and not
//!   documented; PyTorch's own settings.

mod mapping;
mod ranges;
mod segment;
mod stitch;
mod stitched;
mod waiting;

use std::collections::BTreeMap;

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, Status, StreamId};

use self::mapping::CHUNK;
use self::ranges::{FreeRanges, Range};
use self::segment::Segment;
use self::stitched::{Garbage, StitchedBlocks};
use self::waiting::{Patience, Waiting};
use super::settings::{PolicySettings, PolicySettingsError};
use super::undo::Undo;
use super::{Block, Policy, Refusal, Served, malloc_or_retry, memory_of};

/// Granularity of small requests, in bytes.
const MIN_BLOCK: u64 = 512;
/// The largest small request.
const SMALL_LIMIT: u64 = 1 << 20;
/// Bytes of a segment of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;
/// Attempts to reserve addresses for a request.
const ATTEMPTS: u32 = 3;

/// A request of a pool.
#[derive(Clone, Copy)]
struct Request {
    /// Bytes, rounded for the pool.
    bytes: u64,
    stream: StreamId,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct GmLake {
    frag_limit: u64,
    reuse_limit: f64,
    defrag_level: u32,
    auto_gc: u64,
    small: FreeRanges,
    large: FreeRanges,
    /// The segments of `large`.
    segments: BTreeMap<DeviceAddr, Segment>,
    stitched: StitchedBlocks,
    waiting: Waiting,
    /// What a failing device did not take back.
    undo: Undo,
}

impl GmLake {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self {
            frag_limit: settings.take_bytes("frag_limit", 512 << 20)?,
            reuse_limit: settings.take("reuse_limit", 10.0)?,
            defrag_level: settings.take("defrag_level", 0)?,
            auto_gc: settings.take_bytes("auto_gc", 1000 << 30)?,
            ..Self::default()
        })
    }

    fn malloc_small(&mut self, device: &mut dyn Driver, request: Request) -> Served<Block> {
        let free = match self.small.best_fit(request.stream, request.bytes) {
            Some(free) => free,
            None => self.new_small_segment(device, request.stream)?,
        };
        Ok(self.small.take_first(free, request))
    }

    fn new_small_segment(&mut self, device: &mut dyn Driver, stream: StreamId) -> Served<Range> {
        let bytes = SMALL_SEGMENT;
        let addr = malloc_or_retry(device, bytes, |device| self.release_cached(device))?;
        let segment = Range { addr, bytes };
        self.small.add_segment(segment, stream);
        Ok(segment)
    }

    fn malloc_large(&mut self, device: &mut dyn Driver, request: Request) -> Served<Block> {
        if let Some(free) = self.large.best_fit(request.stream, request.bytes) {
            return Ok(self.large.take_first(free, request));
        }
        let limit = self.reuse_limit;
        if let Some(block) = self.stitched.reuse(&mut self.large, request, limit) {
            return Ok(block);
        }
        if let Some(block) = self.stitch(device, request, 0)? {
            return Ok(block);
        }
        if let Some(segment) = self.new_segment(device, request)? {
            return Ok(self.large.take_first(segment, request));
        }
        if let Some(block) = self.stitch(device, request, 1)? {
            return Ok(block);
        }
        // As in the original, ranges that become free here are not searched.
        self.release_cached(device)?;
        if let Some(segment) = self.new_segment(device, request)? {
            return Ok(self.large.take_first(segment, request));
        }
        let stitched = self.stitch(device, request, 2)?;
        stitched.ok_or(Refusal::OutOfMemory)
    }

    /// Waits for all pending blocks, then returns the segments that are entirely free.
    fn release_cached(&mut self, device: &mut dyn Driver) -> Served {
        self.free_done(device, Patience::Wait)?;
        if let Some(memory) = device.virtual_memory() {
            self.release_segments(memory)?;
        }
        for range in self.small.whole_segments() {
            device.free(range.addr, range.bytes)?;
            self.small.remove_segment(range);
        }
        Ok(())
    }

    /// Frees the pending blocks that no stream uses any more.
    fn free_done(&mut self, device: &mut dyn Driver, patience: Patience) -> Status {
        while let Some(block) = self.waiting.next_done(device, patience)? {
            self.take_back(device, block);
        }
        Ok(())
    }

    /// Frees a block that no stream uses.
    fn take_back(&mut self, device: &mut dyn Driver, block: Block) {
        let (ranges, undo) = (&mut self.large, &mut self.undo);
        if self.stitched.take_back(ranges, undo, block) {
            if let Some(memory) = device.virtual_memory() {
                // A torn block has only addresses left, which can be returned later.
                let _kept_for_later = undo.run(memory);
            }
        } else if block.bytes <= SMALL_LIMIT {
            self.small.give(Range::of(block));
        } else {
            self.large.give(Range::of(block));
        }
    }
}

impl Policy for GmLake {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.free_done(device, Patience::Ask)?;
        let small = bytes.next_multiple_of(MIN_BLOCK);
        if small <= SMALL_LIMIT {
            let bytes = small;
            self.malloc_small(device, Request { bytes, stream })
        } else {
            let bytes = bytes.next_multiple_of(CHUNK);
            self.malloc_large(device, Request { bytes, stream })
        }
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        self.stitched.mark(device, block)?;
        if !self.waiting.defer(device, block)? {
            self.take_back(device, block);
        }
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.waiting.record(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.release_cached(device)?;
        self.collect(device, Garbage::ALL)
    }

    fn check(&self) -> Result<(), Violation> {
        self.small.check()?;
        self.large.check()?;
        self.stitched.check(&self.large)
    }
}
