//! Pinned host memory: the decisions of PyTorch's `CachingHostAllocator`, of a release of choice.
//!
//! A request gets a whole *block*, which CUDA pinned for it or for an earlier request of its size class. No block
//! is split or merged. A freed block that streams used waits for an event of each; then it goes to the free list of its
//! size class. Only [`PinnedAllocator::empty_cache`] returns memory.
//!
//! | file | decides |
//! |---|---|
//! | `size.rs` | how a request is rounded, and its size class |
//! | `pool.rs` | which free block a request gets |
//! | `events.rs` | when a block that streams used becomes free |
//! | `captures.rs` | which memory serves a capture of a graph |
//! | `host.rs` | which functions of CUDA pin and release memory |
//! | `stats.rs` | what is counted, mistakes included |
//! | `rules.rs` | which form of each rule a release has |
//!
//! Source: `aten/src/ATen/core/CachingHostAllocator.h` of the releases 2.6 to 2.15, and
//! `aten/src/ATen/cuda/CachingHostAllocator.cpp`.
//!
//! **Not modelled:** addresses, because no decision depends on them; requests that the host refuses; threads. With
//! `pinned_use_background_threads`, the caller says when the other thread runs. Until 2.7, PyTorch returns memory by the
//! function that `pinned_use_cuda_host_register` names at that time, so CUDA refuses if the setting changed in between.
//!
//! ```
//! use coalesce_alloc::pytorch::pinned::PinnedAllocator;
//! use coalesce_alloc::{Settings, SimConfig, SimDevice};
//!
//! let device = SimDevice::new(&SimConfig::default());
//! let mut allocator = PinnedAllocator::new(device, Settings::default());
//! allocator.allocate(5 << 20)?;
//! assert_eq!(allocator.stats().bytes.peak, 8 << 20);
//! # Ok::<(), coalesce_alloc::Error>(())
//! ```

mod captures;
mod events;
mod host;
mod pool;
mod rules;
mod size;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use self::host::{HostCall, Region};
pub use self::stats::{PinnedField, PinnedStats};

use self::captures::Captures;
use self::events::SpareEvents;
use self::host::Host;
use self::pool::Pool;
use self::rules::{Rules, StreamSets};
use self::size::SizeClass;
use self::stats::Totals;
use super::stream_set::{StreamKey, StreamSet};
use crate::driver::{Driver, StreamId};
use crate::error::Error;
use crate::mempool::MempoolId;
use crate::settings::Settings;

/// A block of pinned memory: its number, counted from 0 in the order of creation and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PinnedBlock(pub u32);

/// The state of a block.
#[derive(Debug)]
struct Block {
    /// The rounded size.
    bytes: u64,
    /// The memory that was pinned for it; none if it lies in the reserve.
    region: Option<Region>,
    /// The pool that it belongs to for good.
    pool: MempoolId,
    allocated: bool,
    /// Whether its last request came from a capture.
    captured: bool,
    /// Streams that used it since it was allocated.
    streams: StreamSet,
    /// Events that it waits for.
    event_count: usize,
}

/// The allocator of pinned host memory. It records and queries events on a device; memory is only accounted for.
#[derive(Debug)]
pub struct PinnedAllocator<D> {
    driver: D,
    settings: Settings,
    rules: Rules,
    blocks: Vec<Block>,
    /// The default pool and those of graphs.
    pools: BTreeMap<MempoolId, Pool>,
    captures: Captures,
    host: Host,
    spare_events: SpareEvents,
    totals: Totals,
    /// Whether a thread of its own processes the events of the default pool. Once started, it never ends.
    has_background_thread: bool,
}

impl<D: Driver> PinnedAllocator<D> {
    /// An allocator without memory, of the release that the settings name.
    #[must_use]
    pub fn new(driver: D, settings: Settings) -> Self {
        Self {
            driver,
            rules: Rules::of(settings.release()),
            settings,
            blocks: Vec::new(),
            pools: BTreeMap::from([(MempoolId::DEFAULT, Pool::default())]),
            captures: Captures::default(),
            host: Host::default(),
            spare_events: SpareEvents::default(),
            totals: Totals::default(),
            has_background_thread: false,
        }
    }

    /// Pins memory for a request of `bytes`, or takes a free block. A request of 0 bytes gets none.
    ///
    /// # Errors
    /// If the device fails, or the rounded size exceeds 2^63 bytes.
    pub fn allocate(&mut self, bytes: u64) -> Result<Option<PinnedBlock>, Error> {
        if bytes == 0 {
            return Ok(None);
        }
        let pool = self.captures.pool();
        let in_background = self.settings.pinned.use_background_threads;
        if !in_background || pool != MempoolId::DEFAULT {
            self.process_events(pool, None)?;
        }
        let (bytes, class) = SizeClass::of_request(bytes, &self.settings)?;
        let mut found = self.take_free(pool, bytes, class);
        if found.is_none() && in_background {
            if self.rules.searches_events {
                self.process_events(pool, Some(bytes))?;
                found = self.take_free(pool, bytes, class);
            }
            self.has_background_thread |= found.is_none();
        }
        let block = match found {
            Some(block) => block,
            None => self.create(pool, bytes, class)?,
        };
        let state = &mut self.blocks[block.0 as usize];
        state.allocated = true;
        state.captured = self.captures.is_under_way();
        Ok(Some(block))
    }

    /// Frees a block. It becomes free for others once the streams that used it have finished.
    ///
    /// # Errors
    /// If the block is not allocated, or the device fails.
    pub fn free(&mut self, block: PinnedBlock) -> Result<(), Error> {
        let kept = self.rules.stream_sets == StreamSets::Kept;
        let state = self.allocated(block)?;
        let streams: Vec<StreamKey> = state.streams.keys().collect();
        state.allocated = false;
        state.event_count += streams.len();
        if kept {
            state.streams.clear();
        } else {
            state.streams = StreamSet::default();
        }
        match (streams.is_empty(), state.captured) {
            (true, _) => {
                self.cache(block, self.rules.count_of_unused);
                Ok(())
            }
            // A capture records no work, so no event tells when it is over: the block is never used again.
            (false, true) => Ok(()),
            (false, false) => self.wait_for(block, &streams),
        }
    }

    /// Notes that a stream uses an allocated block (`record_event`).
    ///
    /// # Errors
    /// If the block is not allocated.
    pub fn record_stream(&mut self, block: PinnedBlock, stream: StreamId) -> Result<(), Error> {
        let state = self.allocated(block)?;
        state.streams.insert(StreamKey { device: 0, stream }, ());
        Ok(())
    }

    /// Returns all free blocks of the default pool and of pools without users (`torch._C._host_emptyCache`).
    ///
    /// # Errors
    /// If the device fails.
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.process_events(MempoolId::DEFAULT, None)?;
        self.release_free(MempoolId::DEFAULT);
        self.empty_released_pools()
    }

    /// Lets the thread of `pinned_use_background_threads` process events, if it has been started.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run_background_thread(&mut self) -> Result<(), Error> {
        if self.has_background_thread {
            self.process_events(MempoolId::DEFAULT, None)?;
        }
        Ok(())
    }

    /// Whether a thread of its own processes events.
    #[must_use]
    pub fn has_background_thread(&self) -> bool {
        self.has_background_thread
    }

    /// Parses a settings string.
    ///
    /// # Errors
    /// If it is invalid; then it is partly applied, as in PyTorch.
    pub fn apply_settings(&mut self, conf: &str) -> Result<(), Error> {
        Ok(self.settings.apply(conf)?)
    }

    /// The device.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The calls to CUDA about host memory since the last time.
    pub fn take_calls(&mut self) -> Vec<HostCall> {
        self.host.take_calls()
    }

    /// The last free block of its size class, now allocated.
    fn take_free(&mut self, pool: MempoolId, bytes: u64, class: SizeClass) -> Option<PinnedBlock> {
        let of_class = self.pools.get_mut(&pool)?.free_list(class);
        let blocks = &self.blocks;
        let size_of = |block: PinnedBlock| blocks[block.0 as usize].bytes;
        let block = self.rules.choice.take(of_class, bytes, size_of)?;
        let counted = self.rules.choice.counted_bytes(bytes, size_of(block));
        self.counted(pool).of_class(class).allocate(counted);
        Some(block)
    }

    /// Pins memory for a new block.
    fn create(
        &mut self,
        pool: MempoolId,
        bytes: u64,
        class: SizeClass,
    ) -> Result<PinnedBlock, Error> {
        let number = u32::try_from(self.blocks.len()).map_err(|_| Error::TooManyBlocks)?;
        let region = self.host.allocate(bytes, &self.settings, &mut self.totals);
        self.blocks.push(Block {
            bytes,
            region,
            pool,
            allocated: true,
            captured: false,
            streams: StreamSet::default(),
            event_count: 0,
        });
        self.totals.create(bytes);
        self.counted(pool).of_class(class).allocate(bytes);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.blocks += 1;
        }
        Ok(PinnedBlock(number))
    }

    /// Puts a block that nobody uses any more into the free list of its size class, or returns it if it is too large for
    /// the cache. `counted` bytes are counted as freed, if any.
    fn cache(&mut self, block: PinnedBlock, counted: stats::FreedBytes) {
        let Block { bytes, pool, .. } = self.blocks[block.0 as usize];
        let class = SizeClass::of(bytes);
        if let Some(freed) = counted.of_block(bytes) {
            self.counted(pool).of_class(class).free(freed);
        }
        if size::is_cached(bytes, &self.settings) {
            if let Some(pool) = self.pools.get_mut(&pool) {
                pool.free_list(class).push(block);
            }
        } else {
            self.destroy(block);
        }
    }

    /// Returns the free blocks of a pool, the smallest size class first, and in it the one freed first.
    fn release_free(&mut self, pool: MempoolId) {
        let free = self.pools.get_mut(&pool).map(Pool::take_free);
        for block in free.into_iter().flatten() {
            self.destroy(block);
        }
    }

    /// Returns the memory of a block that is in no list.
    fn destroy(&mut self, block: PinnedBlock) {
        let state = &self.blocks[block.0 as usize];
        self.totals.destroy(state.bytes);
        if let Some(pool) = self.pools.get_mut(&state.pool) {
            pool.blocks -= 1;
        }
        if let Some(region) = state.region {
            self.host.release(region, &mut self.totals);
        }
    }

    /// The state of an allocated block.
    fn allocated(&mut self, block: PinnedBlock) -> Result<&mut Block, Error> {
        let state = self.blocks.get_mut(block.0 as usize);
        let allocated = state.filter(|state| state.allocated);
        allocated.ok_or(Error::NotPinned(block.0))
    }
}
