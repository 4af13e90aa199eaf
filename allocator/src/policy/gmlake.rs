//! GMLake: free memory in several pieces is stitched together at new addresses, so that it serves a
//! request that none of the pieces could.
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
//! Source: GMLake (Guo et al., ASPLOS 2024) as published in antgroup/glake at fb24ee8: a change of the
//! caching allocator of PyTorch 2.0. Where the paper and the code differ, this is the code.
//!
//! # A request
//!
//! Up to 1 MiB: PyTorch's small pool. Segments of 2 MiB from `cudaMalloc`; best fit, split, coalesce,
//! in multiples of 512 bytes. Above, in multiples of 2 MiB:
//!
//! 1. the best fit among the free ranges of the stream's segments, cut to size;
//! 2. else the best fit among the stitched blocks whose memory is all free, if it has at most
//!    `reuse_limit` times the bytes; memory behind what was not asked for stays free;
//! 3. else, from `frag_limit` bytes on, the largest free ranges that add up, stitched;
//! 4. else a new segment: 20 MiB for less than 10 MiB, else what is asked for, in chunks of 2 MiB of
//!    physical memory each;
//! 5. else all cached segments are returned, and 4 and 3 are tried for the last time.
//!
//! With `defrag_level` 1 the first try of 3 comes after 4, with 2 there is only the one at the end.
//! A stitched block is kept once it is free. If all that were stitched have more than `auto_gc` bytes,
//! those not in use are unmapped; so are some of them when the device has no addresses left.
//!
//! # What differs
//!
//! - The original crashes, or reads freed memory, when it returns a segment that three stitched blocks
//!   have memory of, or one in use that does not use it. Here neither.
//! - If the device fails while memory is stitched, the original loses that memory.
//! - The original also makes an event at each request and records one at each free. Nothing that it
//!   decides depends on those of blocks that are not stitched, so they are left out.
//! - Not here: `vmmDefragment=0`, which is PyTorch's allocator; `reAlloc`, which is off by default and
//!   not documented; PyTorch's own settings.

mod mapping;
mod ranges;
mod segment;
mod stitch;
mod stitched;
mod waiting;

use std::collections::BTreeMap;

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId, VirtualMemory};

use self::mapping::{CHUNK, Returns};
use self::ranges::{FreeRanges, Range};
use self::segment::Segment;
use self::stitched::{Garbage, StitchedBlocks};
use self::waiting::{Patience, Waiting};
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, malloc_or_retry};

/// Small requests are multiples of this.
const MIN_BLOCK: u64 = 512;
/// The largest small request.
const SMALL_LIMIT: u64 = 1 << 20;
/// The segments of the small pool.
const SMALL_SEGMENT: u64 = 2 << 20;
/// How often addresses are looked for before a request does without.
const ATTEMPTS: u32 = 3;

/// A request of a pool.
#[derive(Clone, Copy)]
struct Request {
    /// Rounded as the pool wants it.
    bytes: u64,
    stream: StreamId,
}

/// See the [module](self).
#[derive(Debug)]
pub struct GmLake {
    frag_limit: u64,
    reuse_limit: f64,
    defrag_level: u32,
    auto_gc: u64,
    small: FreeRanges,
    large: FreeRanges,
    /// Those of `large`.
    segments: BTreeMap<DeviceAddr, Segment>,
    stitched: StitchedBlocks,
    waiting: Waiting,
    returns: Returns,
}

impl GmLake {
    /// The settings of the original:
    ///
    /// - `frag_limit` (512 MiB): the least request that memory is stitched for;
    /// - `reuse_limit` (10): how many times as large as a request a stitched block may be that serves
    ///   it;
    /// - `defrag_level` (0): 0 stitches before memory is taken from the device, 1 after the device has
    ///   refused it, 2 after cached memory was returned as well;
    /// - `auto_gc` (1000 GiB): addresses of stitched blocks above which unused ones are given up.
    ///
    /// # Errors
    /// If a setting is none of these or has no such value.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self {
            frag_limit: settings.take_bytes("frag_limit", 512 << 20)?,
            reuse_limit: settings.take("reuse_limit", 10.0)?,
            defrag_level: settings.take("defrag_level", 0)?,
            auto_gc: settings.take_bytes("auto_gc", 1000 << 30)?,
            small: FreeRanges::default(),
            large: FreeRanges::default(),
            segments: BTreeMap::new(),
            stitched: StitchedBlocks::default(),
            waiting: Waiting::default(),
            returns: Returns::default(),
        })
    }

    fn malloc_small(
        &mut self,
        device: &mut dyn Driver,
        request: Request,
    ) -> Result<Block, Refusal> {
        let free = match self.small.best_fit(request.stream, request.bytes) {
            Some(free) => free,
            None => self.new_small_segment(device, request.stream)?,
        };
        Ok(self.small.take_first(free, request))
    }

    fn new_small_segment(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<Range, Refusal> {
        let bytes = SMALL_SEGMENT;
        let addr = malloc_or_retry(device, bytes, |device| self.release_cached(device))?;
        let segment = Range { addr, bytes };
        self.small.add_segment(segment, stream);
        Ok(segment)
    }

    fn malloc_large(
        &mut self,
        device: &mut dyn Driver,
        request: Request,
    ) -> Result<Block, Refusal> {
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
        // Nobody looks whether a range that becomes free now is large enough by itself.
        self.release_cached(device)?;
        if let Some(segment) = self.new_segment(device, request)? {
            return Ok(self.large.take_first(segment, request));
        }
        let stitched = self.stitch(device, request, 2)?;
        stitched.ok_or(Refusal::OutOfMemory)
    }

    /// Waits for all blocks that wait for streams, then returns the segments that are free as a whole.
    fn release_cached(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
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

    /// Takes back the blocks that no stream works on any longer.
    fn free_done(
        &mut self,
        device: &mut dyn Driver,
        patience: Patience,
    ) -> Result<(), DriverError> {
        while let Some(block) = self.waiting.next_done(device, patience)? {
            self.take_back(device, block);
        }
        Ok(())
    }

    /// Frees a block that nobody works on.
    fn take_back(&mut self, device: &mut dyn Driver, block: Block) {
        let (ranges, returns) = (&mut self.large, &mut self.returns);
        if self.stitched.take_back(ranges, returns, block) {
            if let Some(memory) = device.virtual_memory() {
                // Nothing is left of a torn block but addresses; they can wait.
                let _kept_for_later = returns.settle(memory);
            }
        } else if block.bytes <= SMALL_LIMIT {
            self.small.give(Range::of(block));
        } else {
            self.large.give(Range::of(block));
        }
    }
}

impl Policy for GmLake {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
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

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        self.stitched.mark(device, block)?;
        if !self.waiting.defer(device, block)? {
            self.take_back(device, block);
        }
        Ok(())
    }

    fn record_stream(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        self.waiting.record(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        self.release_cached(device)?;
        self.collect(device, Garbage::ALL)
    }

    fn check(&self) -> Result<(), Violation> {
        self.small.check()?;
        self.large.check()?;
        self.stitched.check(&self.large)
    }
}

/// The device's virtual memory.
fn memory_of(device: &mut dyn Driver) -> Result<&mut dyn VirtualMemory, Refusal> {
    let without = Refusal::Unsupported("devices without virtual memory");
    device.virtual_memory().ok_or(without)
}
