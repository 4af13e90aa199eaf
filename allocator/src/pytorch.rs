//! The reference: the caching allocator of PyTorch, decision for decision, of a release of choice.
//!
//! This file contains `malloc` and `free` as ordered lists of steps. Each step has its own file; only
//! this file decides their order.
//!
//! | file | decides |
//! |---|---|
//! | `size.rs` | how a request is rounded, and how large a segment it needs |
//! | `private_pool.rs` | which pool serves a request |
//! | `pool.rs`, `tie_break.rs` | the order in which free blocks are searched |
//! | `free_blocks.rs`, `size_class.rs`, `ordered.rs` | how a free block is found fast |
//! | `live.rs` | how an allocated block is found by its address |
//! | `in_parts.rs` | how a malloc is interrupted: to free memory that others hold, or to let others in while the device is called |
//! | `fit.rs` | which free block a request gets |
//! | `split.rs` | whether the block is split |
//! | `merge.rs` | which neighbours a freed block is coalesced with, and in which order |
//! | `retry_ladder.rs` | what is tried when no cached block fits |
//! | `out_of_memory.rs` | what the error says when there is no memory |
//! | `segment.rs`, `expandable.rs`, `pages.rs` | how memory is reserved from the device |
//! | `limit.rs` | how much memory may be reserved |
//! | `garbage_collect.rs`, `release.rs` | which memory returns to the device, and when |
//! | `events.rs` | when a block used by several streams becomes free |
//! | `capture.rs` | when nothing may be waited for, because a graph is captured |
//! | `graph_reuse.rs` | which memory a capture uses again although several streams used it |
//! | `flat_hash.rs`, `stream_set.rs` | the iteration order of PyTorch's hash tables |
//! | `block.rs`, `arena.rs` | the state of a block, and the storage of blocks |
//! | `rules.rs` | which form of each rule a release has |
//! | `checkpoint.rs` | how a private pool returns to an earlier state |
//! | `share.rs` | how other processes open the memory of a block |
//! | `snapshot.rs`, `restore.rs`, `check.rs` | reporting, rebuilding and verifying the state |
//! | `pinned.rs` | pinned host memory, which has an allocator of its own |
//!
//! **Not modelled:** stack traces in the history. Callers provide the lock.
//!
//! Functions that every malloc or free calls are `inline(always)`, because a call is a noticeable part of their time
//! (`benches/SPEED.md`).
//!
//! **Where PyTorch corrupts its own state**, this allocator reports a [`Hazard`] instead.
//!
//! [`Hazard`]: crate::error::Hazard

mod arena;
mod block;
mod capture;
mod check;
pub mod checkpoint;
mod events;
mod expandable;
mod fit;
mod flat_hash;
mod free_blocks;
mod garbage_collect;
mod graph_reuse;
mod has_private_pools;
pub mod in_parts;
mod limit;
mod live;
mod merge;
mod ordered;
mod out_of_memory;
mod pages;
pub mod pinned;
mod pool;
mod private_pool;
mod release;
pub mod restore;
mod retry_ladder;
mod rules;
mod segment;
pub mod share;
pub mod size;
mod size_class;
mod snapshot;
mod split;
mod stream_set;
mod tie_break;

use std::collections::HashMap;

use self::arena::{Arena, Id};
use self::block::{Block, State};
use self::capture::Captures;
use self::events::PendingEvents;
use self::graph_reuse::GraphReuse;
use self::live::LiveBlocks;
use self::pages::ExpandableSegment;
use self::pool::{BlockPool, Pools, Shelf};
use self::private_pool::PrivatePools;
use self::rules::Rules;
use self::tie_break::Ranks;
use crate::allocator::{Allocator, ONE_EXABYTE, delegate};
use crate::driver::{DeviceAddr, Driver, HandleKind, StreamId};
use crate::error::{Error, Hazard};
use crate::history::{Action, History, HistoryOptions, Listener, TraceEntry};
use crate::mempool::MempoolId;
use crate::private_pools::HasPrivatePools;
use crate::settings::Settings;
use crate::stats::{DeviceStats, PoolKind};

pub use self::expandable::ExpandableSegmentSize;
pub use self::rules::decide_alike;

/// PyTorch's allocator for one device.
#[derive(Debug)]
pub struct PyTorch<D> {
    driver: D,
    /// The device's number, shown in messages and snapshots.
    device: u32,
    /// Device memory in bytes when the allocator was created. Memory fractions refer to it from 2.10 on.
    total_memory: u64,
    settings: Settings,
    /// The rules of the release that the settings name.
    rules: Rules,
    /// Limit on reserved bytes.
    limit: Option<u64>,
    /// Reserved bytes.
    reserved: u64,
    blocks: Arena<Block>,
    ranks: Ranks,
    /// Allocated blocks by address.
    live: LiveBlocks,
    pools: Pools,
    /// The default pool of small blocks.
    small: PoolId,
    /// The default pool of large blocks.
    large: PoolId,
    private_pools: PrivatePools,
    /// Captures that have begun on this device and not ended.
    captures: Captures,
    graph_reuse: GraphReuse,
    expandable_segments: Arena<ExpandableSegment>,
    /// The expandable segments in the order of their creation, with their streams.
    expandable_streams: Vec<(Id<ExpandableSegment>, StreamId)>,
    /// The classes of streams that have one.
    reserve_classes: HashMap<StreamId, String>,
    /// Sharing mode for the memory of expandable segments; the first attempt decides it.
    handle_kind: Option<HandleKind>,
    events: PendingEvents,
    stats: DeviceStats,
    history: History,
}

/// Identifies a block.
type BlockId = Id<Block>;
/// Identifies a pool.
type PoolId = Id<BlockPool>;
/// Identifies a shelf, the part of a pool that belongs to one stream.
type ShelfId = Id<Shelf>;

/// A request after rounding.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// Requested bytes.
    bytes: u64,
    /// Bytes of the block: `bytes` rounded up.
    size: u64,
    stream: StreamId,
    /// Where its block comes from.
    shelf: ShelfId,
    /// Bytes of the segment; 0 until it turns out that one is needed.
    segment_size: u64,
    /// Whether it may use expandable segments.
    expandable: bool,
}

impl<D: Driver> PyTorch<D> {
    /// Creates the allocator of device 0.
    #[must_use]
    pub fn new(driver: D, settings: Settings) -> Self {
        Self::for_device(0, driver, settings)
    }

    /// Creates the allocator of the device with this number, which messages and snapshots show.
    #[must_use]
    pub fn for_device(device: u32, driver: D, settings: Settings) -> Self {
        let total_memory = driver.total_memory();
        let mut pools = Pools::default();
        let small = pools.add(PoolKind::Small, None);
        let large = pools.add(PoolKind::Large, None);
        let rules = Rules::of(settings.release());
        let mut allocator = Self {
            device,
            total_memory,
            limit: rules
                .fraction
                .at_start(settings.per_process_memory_fraction, total_memory),
            reserved: 0,
            blocks: Arena::default(),
            ranks: Ranks::new(rules.tie_break),
            rules,
            live: LiveBlocks::default(),
            pools,
            small,
            large,
            private_pools: PrivatePools::default(),
            captures: Captures::default(),
            graph_reuse: GraphReuse::default(),
            expandable_segments: Arena::default(),
            expandable_streams: Vec::new(),
            reserve_classes: HashMap::new(),
            handle_kind: None,
            events: PendingEvents::default(),
            stats: DeviceStats {
                max_split_size: settings.max_split_size.map_or(-1, u64::cast_signed),
                ..DeviceStats::default()
            },
            history: History::default(),
            settings: Settings::default(),
            driver,
        };
        allocator.use_settings(settings);
        allocator
    }

    /// Allocates at least `bytes` bytes for use on `stream`, as for a tensor. Returns null for zero
    /// bytes and refuses 2^60 bytes or more.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::MoreThanOneExabyte`] or [`Error::TooManyBlocks`];
    /// [`Error::Driver`] or [`Error::VirtualMemory`] if the device fails; [`Error::Pool`] if the
    /// private pool that serves this stream does not exist or a pool to borrow from has no users;
    /// [`Error::Hazard`] where PyTorch would corrupt its state.
    pub fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        if bytes >= ONE_EXABYTE {
            return Err(Error::MoreThanOneExabyte);
        }
        self.raw_malloc(bytes, stream)
    }

    /// Like [`Self::malloc`], but without the limit of 2^60 bytes (`raw_alloc_with_stream`).
    ///
    /// # Errors
    /// As [`Self::malloc`].
    pub fn raw_malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        if bytes == 0 {
            return Ok(DeviceAddr::NULL);
        }
        // 1. Free the blocks whose streams have finished. 2. Round the size and choose the pool.
        let mut request = self.begin(bytes, stream)?;
        // 3. Take the best free block; otherwise try the retry ladder.
        let block = match self.take_free_block(&request) {
            Some(block) => block,
            None => self.find_uncached(&mut request)?,
        };
        // 4. Split off the remainder and hand the block out.
        Ok(self.cut_and_hand_out(block, &request))
    }

    /// Frees the blocks whose streams have finished, and makes a request.
    #[inline(always)]
    fn begin(&mut self, bytes: u64, stream: StreamId) -> Result<Request, Error> {
        self.ensure_room()?;
        if !self.events.is_empty() {
            if self.is_capturing() {
                self.free_safe_blocks(stream)?
            } else {
                self.process_events()?
            }
        }
        self.request(bytes, stream)
    }

    #[inline(always)]
    fn ensure_room(&self) -> Result<(), Error> {
        if self.blocks.has_room() {
            Ok(())
        } else {
            Err(Error::TooManyBlocks)
        }
    }

    /// The block for a request that no cached block fits.
    fn find_uncached(&mut self, request: &mut Request) -> Result<BlockId, Error> {
        match self.run_retry_ladder(request)? {
            Some(block) => Ok(block),
            None => Err(self.out_of_memory(request)),
        }
    }

    /// Splits off the remainder of a block and hands it out.
    #[inline(always)]
    fn cut_and_hand_out(&mut self, block: BlockId, request: &Request) -> DeviceAddr {
        let block = if self.should_split(block, request) {
            self.split(block, request.size)
        } else {
            self.take_whole(block);
            block
        };
        self.hand_out(block, request)
    }

    /// Frees an allocation. Null is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation. [`Error::Driver`] if
    /// an event could not be recorded: the allocation is freed anyway, and its memory is not reused
    /// before its streams have finished.
    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        if addr.is_null() {
            return Ok(());
        }
        let Some(id) = self.live.remove(self.blocks.slots(), addr) else {
            return Err(Error::InvalidPointer(addr));
        };
        // 1. It is no longer allocated.
        let block = &self.blocks[id];
        let (size, requested, shelf) = (block.size, block.requested, block.shelf);
        let is_used_elsewhere = block.uses.is_some();
        let kind = block.kind;
        self.trace(Action::FreeRequested, shelf, addr, requested);
        if self.settings.is_oversize(size) {
            self.stats.oversize_allocations.decrease(1);
        }
        // 2. It becomes free now, or waits for the other streams that use it.
        if !is_used_elsewhere {
            self.stats.count_free(kind, size, requested);
            self.free_block(id);
            return Ok(());
        }
        self.blocks[id].state = State::Waiting;
        self.stats.count_waiting(kind, size);
        if !self.is_capturing() {
            return self.insert_events(id);
        }
        let last_uses = self.last_uses_in_graph(id);
        self.events.defer(id, last_uses);
        Ok(())
    }

    /// Records that `stream` also uses an allocation. Null and the stream it was allocated for are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        if addr.is_null() {
            return Ok(());
        }
        let id = self.live_block(addr)?;
        if self.pools[self.blocks[id].shelf].stream != stream {
            self.note_stream(id, stream);
        }
        Ok(())
    }

    /// Waits for all streams and returns all cached memory to the device, as far as possible
    /// (`torch.cuda.empty_cache`).
    ///
    /// # Errors
    /// [`Error::Driver`] or [`Error::VirtualMemory`] at the first driver call that fails;
    /// [`Error::Hazard`] where PyTorch would have corrupted its state.
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.release_cached_blocks(MempoolId::DEFAULT)
    }

    /// Returns the memory of one private pool without users. Pools with users and unknown pools are
    /// left alone. [`MempoolId::DEFAULT`] means all cached memory.
    ///
    /// # Errors
    /// As [`Self::empty_cache`]; [`PoolError::Recording`] until 2.12, while allocations are
    /// directed to any private pool.
    ///
    /// [`PoolError::Recording`]: crate::error::PoolError::Recording
    pub fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.release_cached_blocks(pool)
    }

    /// Changes the settings (`torch.cuda.memory._set_allocator_settings`).
    ///
    /// # Errors
    /// [`Error::Settings`]. Settings before the invalid one take effect, as in PyTorch.
    pub fn apply_settings(&mut self, conf: &str) -> Result<(), Error> {
        let mut settings = self.settings.clone();
        let applied = settings.apply(conf);
        self.use_settings(settings);
        Ok(applied?)
    }

    /// Adopts settings. On devices without virtual memory, expandable segments are off; PyTorch prints
    /// a warning and continues.
    fn use_settings(&mut self, mut settings: Settings) {
        settings.expandable_segments &= self.driver.virtual_memory().is_some();
        self.settings = settings;
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The statistics.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    /// Sets every peak to its current value.
    pub fn reset_peak_stats(&mut self) {
        self.stats.reset_peak();
    }

    /// Sets every total and every counter to zero.
    pub fn reset_accumulated_stats(&mut self) {
        self.stats.reset_accumulated();
    }

    /// Starts recording the history, or stops and discards it.
    pub fn record_history(&mut self, options: Option<HistoryOptions>) {
        match options {
            Some(options) => self.history.start(options),
            None => self.history.stop(),
        }
    }

    /// Sends each entry of the history to a listener from now on, or to none, whether or not it is recorded.
    pub fn listen(&mut self, listener: Option<Listener>) {
        self.history.listen(listener);
    }

    /// The recorded history, oldest entry first.
    pub fn history(&self) -> impl Iterator<Item = &TraceEntry> {
        self.history.entries()
    }

    /// The start and size of the segment that contains a live allocation (`getBaseAllocation`). For
    /// expandable segments, which PyTorch rejects here, the mapped run.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn base_allocation(&self, addr: DeviceAddr) -> Result<(DeviceAddr, u64), Error> {
        let mut head = self.live_block(addr)?;
        while let Some(prev) = self.blocks[head]
            .prev
            .filter(|&p| self.blocks[p].is_mapped())
        {
            head = prev;
        }
        let bytes = self.mapped_run(head).map(|id| self.blocks[id].size).sum();
        Ok((self.blocks[head].addr, bytes))
    }

    /// The larger of the largest free block and the device's free memory (`cacheInfo`): an upper bound
    /// for the next request.
    ///
    /// # Errors
    /// [`Error::Driver`] if the device fails.
    pub fn largest_free(&mut self) -> Result<u64, Error> {
        let device = self.driver.memory_info()?.free;
        let free = self
            .pools
            .iter()
            .flat_map(|pool| self.pools.free(&self.blocks, pool));
        Ok(free.map(|id| self.blocks[id].size).fold(device, u64::max))
    }

    /// The device.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The device, for example to advance its clock. Do not return memory that the allocator has
    /// reserved.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The bytes of the block of a live allocation.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn block_size(&self, addr: DeviceAddr) -> Result<u64, Error> {
        Ok(self.blocks[self.live_block(addr)?].size)
    }

    fn live_block(&self, addr: DeviceAddr) -> Result<BlockId, Error> {
        let found = self.live.get(self.blocks.slots(), addr);
        found.ok_or(Error::InvalidPointer(addr))
    }

    #[inline(always)]
    fn request(&mut self, bytes: u64, stream: StreamId) -> Result<Request, Error> {
        let overflow = Hazard::SizeOverflow { bytes };
        let size = size::round_size(bytes, &self.settings).ok_or(overflow)?;
        let shelf = self.shelf_for(size, stream)?;
        Ok(Request {
            bytes,
            size,
            stream,
            shelf,
            segment_size: 0,
            expandable: self.settings.expandable_segments && !self.has_own_source(shelf),
        })
    }

    /// Where blocks of `size` bytes for `stream` currently come from.
    #[inline(always)]
    fn shelf_for(&mut self, size: u64, stream: StreamId) -> Result<ShelfId, Error> {
        let kind = size::pool_kind(size);
        let mut pool = self.default_pool(kind);
        if self.private_pools.is_recording() {
            let nesting = self.rules.nesting;
            let redirection = self.private_pools.redirection(stream, kind, nesting)?;
            pool = redirection.unwrap_or(pool);
        }
        Ok(self.pools.shelf(pool, stream))
    }

    /// The default pool of a kind.
    #[inline]
    fn default_pool(&self, kind: PoolKind) -> PoolId {
        match kind {
            PoolKind::Small => self.small,
            PoolKind::Large => self.large,
        }
    }

    /// Marks a block as allocated and updates the statistics.
    #[inline(always)]
    fn hand_out(&mut self, id: BlockId, request: &Request) -> DeviceAddr {
        let block = &mut self.blocks[id];
        block.state = State::Allocated;
        block.requested = request.bytes;
        let (addr, size, shelf) = (block.addr, block.size, block.shelf);
        let kind = block.kind;
        self.trace(Action::Alloc, shelf, addr, request.bytes);
        self.live.insert(self.blocks.slots(), addr, id);
        self.stats.count_allocation(kind, size, request.bytes);
        if self.settings.is_oversize(size) {
            self.stats.oversize_allocations.increase(1);
        }
        addr
    }

    /// Appends an entry about a block or segment to the history if it is on.
    #[inline]
    fn trace(&mut self, action: Action, shelf: ShelfId, addr: DeviceAddr, size: u64) {
        if self.history.is_wanted() {
            self.record_on(shelf, action, addr, size);
        }
    }

    #[cold]
    fn record_on(&mut self, shelf: ShelfId, action: Action, addr: DeviceAddr, size: u64) {
        let pool = self.pools.pool_of(shelf).name();
        self.record(action, addr, size, self.pools[shelf].stream, pool);
    }

    /// Appends an entry to the history if it is on.
    #[inline]
    fn record(
        &mut self,
        action: Action,
        addr: DeviceAddr,
        size: u64,
        stream: StreamId,
        pool: MempoolId,
    ) {
        if self.history.is_wanted() {
            let entry = TraceEntry {
                action,
                addr,
                size,
                stream,
                time_us: self.driver.now_us(),
            };
            self.history.record(entry, pool);
        }
    }
}

impl<D: Driver> Allocator for PyTorch<D> {
    type Driver = D;

    delegate!(self, self; malloc, free, record_stream, empty_cache, reports);

    fn private_pools(&mut self) -> Option<&mut dyn HasPrivatePools> {
        Some(self)
    }

    fn set_memory_limit(&mut self, bytes: Option<u64>) -> bool {
        self.limit_to(bytes);
        true
    }
}
