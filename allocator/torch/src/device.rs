//! The allocator of one device, with any policy.

use std::collections::HashSet;

use coalesce_alloc::driver::hooks::limit::Limit;
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{
    DetachedMalloc, DeviceAddr, Driver, DriverError, SharedHandle, StreamId,
};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::{HistoryOptions, Listener};
use coalesce_alloc::policy::{self, BuildError, POLICIES};
use coalesce_alloc::pytorch::checkpoint::{PoolCheckpoint, RestoredPool};
use coalesce_alloc::pytorch::in_parts::{Pending, Progress};
use coalesce_alloc::pytorch::share::Shareable;
use coalesce_alloc::pytorch::{ExpandableSegmentSize, StreamFilter};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo, Snapshot};
use coalesce_alloc::stats::DeviceStats;
use coalesce_alloc::{Allocator, MempoolId, PoolSource, PyTorch, Violation, WithHistory};

use crate::conf::Choice;
use crate::opened::OpenedPages;

/// A device with a limit, for policies that do not limit themselves.
type Limited<D> = Tap<D, Limit>;

const CHECKPOINTS: &str = "checkpoints of the private pools of CUDA graphs";
const POOLS: &str = "the private pools of CUDA graphs and torch.cuda.MemPool";

/// The allocator of one device of several.
pub struct DeviceAllocator<D: Driver> {
    ordinal: u32,
    policy: Policy<D>,
}

/// How far a request has come.
pub enum Malloc {
    /// It was served.
    Done(DeviceAddr),
    /// It waits for the answer to a call of the device, which needs no lock.
    Waits(Pending, DetachedMalloc),
}

enum Policy<D: Driver> {
    /// The reference, which records its own history.
    Reference(Box<PyTorch<Limited<D>>>),
    /// Another policy.
    Other {
        name: &'static str,
        allocator: Box<WithHistory<Box<dyn Allocator<Driver = Limited<D>>>>>,
    },
}

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Creates an allocator for `device`, the `ordinal`-th, that keeps a history of so many entries.
    ///
    /// # Errors
    /// If the policy cannot be built, which a valid [`Conf`](crate::conf::Conf) rules out.
    pub fn new(
        ordinal: u32,
        device: D,
        policy: &Choice,
        history: Option<usize>,
    ) -> Result<Self, BuildError> {
        let limit = Limit::new(u64::MAX, device.granularity());
        let device = Tap::over(device, limit);
        let history = history.map(|max_entries| HistoryOptions {
            max_entries,
            ..HistoryOptions::default()
        });
        let policy = match policy {
            Choice::Reference(settings) => {
                let mut allocator = PyTorch::for_device(ordinal, device, (**settings).clone());
                allocator.record_history(history);
                Policy::Reference(Box::new(allocator))
            }
            Choice::Other { name, conf } => {
                let allocator = policy::build(name, device, conf)?;
                let mut allocator = WithHistory::new(allocator, HistoryOptions::default());
                allocator.record_history(history);
                let info = POLICIES.iter().find(|info| info.name == name);
                Policy::Other {
                    name: info.map_or("the policy", |info| info.name),
                    allocator: Box::new(allocator),
                }
            }
        };
        Ok(Self { ordinal, policy })
    }

    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let answer = self.allocator_mut().malloc(bytes, stream);
        answer.map_err(|error| self.of_this_device(error))
    }

    /// The first part of a raw malloc; see [`PyTorch::malloc_cached`]. Other policies have only one part,
    /// [`Self::malloc`].
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc_cached(
        &mut self,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<DeviceAddr>, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return self.malloc(bytes, stream).map(Some);
        };
        allocator.malloc_cached(bytes, stream)
    }

    /// The second part of a raw malloc; see [`PyTorch::begin_uncached`]. It stops before a call of the device only
    /// with the setting `release_lock_on_cudamalloc`.
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn begin_uncached(
        &mut self,
        bytes: u64,
        stream: StreamId,
        memory_was_freed: bool,
    ) -> Result<Malloc, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return self.malloc(bytes, stream).map(Malloc::Done);
        };
        let progress = match allocator.settings().release_lock_on_cudamalloc() {
            true => allocator.begin_uncached(bytes, stream, memory_was_freed),
            false => allocator
                .malloc_uncached(bytes, stream, memory_was_freed)
                .map(Progress::Done),
        };
        self.go_on(progress)
    }

    /// Continues with the device's answer to the call of [`Malloc::Waits`]; see [`PyTorch::resume`].
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn resume(
        &mut self,
        pending: Pending,
        answer: Result<DeviceAddr, DriverError>,
    ) -> Result<Malloc, Error> {
        let Policy::Reference(allocator) = &mut self.policy else {
            return Err(DriverError::NotSupported.into());
        };
        let answer = (allocator.driver_mut()).end_malloc(pending.segment_size(), answer);
        let progress = allocator.resume(pending, answer);
        self.go_on(progress)
    }

    /// Leaves calls of the device to the caller, if the device allows it.
    fn go_on(&mut self, mut progress: Result<Progress, Error>) -> Result<Malloc, Error> {
        loop {
            let pending = match progress {
                Ok(Progress::Done(addr)) => return Ok(Malloc::Done(addr)),
                Ok(Progress::NeedsSegment(pending)) => pending,
                Err(error) => return Err(self.of_this_device(error)),
            };
            let Policy::Reference(allocator) = &mut self.policy else {
                return Err(DriverError::NotSupported.into());
            };
            let device = allocator.driver_mut();
            let answer = match device.detached_malloc(pending.segment_size()) {
                Ok(Some(call)) => return Ok(Malloc::Waits(pending, call)),
                Ok(None) => device.malloc(pending.segment_size()),
                Err(error) => Err(error),
            };
            progress = allocator.resume(pending, answer);
        }
    }

    /// Frees memory.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.allocator_mut().free(addr)
    }

    /// Records that another stream uses an allocation.
    ///
    /// # Errors
    /// As [`Allocator::record_stream`].
    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator_mut().record_stream(addr, stream)
    }

    /// Returns cached memory to the device.
    ///
    /// # Errors
    /// As [`Allocator::empty_cache`].
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.allocator_mut().empty_cache()
    }

    /// Returns the cached memory of one private pool to the device.
    ///
    /// # Errors
    /// As [`PyTorch::empty_pool`]; [`Error::Unsupported`] by other policies.
    pub fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.empty_pool(pool)
    }

    /// Limits reserved memory to a fraction of the device; 1 is no limit. Memory already held beyond it stays.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.set_memory_fraction(fraction);
        }
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction));
        }
        let device = self.allocator_mut().driver_mut();
        let share = fraction * device.total_memory() as f64;
        let limit = if fraction < 1.0 {
            share as u64
        } else {
            u64::MAX
        };
        device.hook_mut().set(limit);
        Ok(())
    }

    /// Returns the limit as a fraction of the device's memory; 1 without a limit.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.memory_fraction();
        }
        let device = self.allocator().driver();
        let share = device.hook().bytes() as f64 / device.total_memory().max(1) as f64;
        share.min(1.0)
    }

    /// Gives another device access to the memory of this one.
    ///
    /// # Errors
    /// If the device fails.
    pub fn open_to_peer(&mut self, peer: u32) -> Result<(), Error> {
        Ok(self.allocator_mut().driver_mut().open_to_peer(peer)?)
    }

    /// Returns the address and bytes of the segment of a live allocation.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn base_allocation(&self, addr: DeviceAddr) -> Result<(DeviceAddr, u64), Error> {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.base_allocation(addr);
        }
        let starts = |block: &BlockInfo| block.address == addr && block.is_allocated();
        let segments = self.allocator().segments();
        let around = segments.iter().find(|s| s.blocks.iter().any(starts));
        let base = around.map(|segment| (segment.address, segment.total_size()));
        base.ok_or(Error::InvalidPointer(addr))
    }

    /// Returns what another process opens to use a live allocation.
    ///
    /// # Errors
    /// As [`PyTorch::share`].
    pub fn share(&mut self, addr: DeviceAddr) -> Result<Shareable, Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.share(addr);
        }
        let (start, _) = self.base_allocation(addr)?;
        Ok(Shareable::Segment { start })
    }

    /// Opens pages of another process. No limit counts them.
    ///
    /// # Errors
    /// As [`OpenedPages::open`].
    pub fn open_pages(
        &mut self,
        page_size: u64,
        pages: &[SharedHandle],
    ) -> Result<OpenedPages, Error> {
        let device = self.allocator_mut().driver_mut().driver_mut();
        OpenedPages::open(device, page_size, pages).map_err(Error::VirtualMemory)
    }

    /// Closes pages of another process.
    ///
    /// # Errors
    /// As [`OpenedPages::close`].
    pub fn close_pages(&mut self, pages: OpenedPages) -> Result<(), Error> {
        let device = self.allocator_mut().driver_mut().driver_mut();
        pages.close(device).map_err(Error::VirtualMemory)
    }

    /// Returns the sizes of the expandable segments; none for other policies than the reference.
    #[must_use]
    pub fn expandable_segment_sizes(&self) -> Vec<ExpandableSegmentSize> {
        match &self.policy {
            Policy::Reference(allocator) => allocator.expandable_segment_sizes().collect(),
            Policy::Other { .. } => Vec::new(),
        }
    }

    /// Returns the bytes of the largest free block, or of the free device memory if that is more.
    ///
    /// # Errors
    /// If the device fails.
    pub fn largest_free(&mut self) -> Result<u64, Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.largest_free();
        }
        let device = self.allocator_mut().driver_mut().memory_info()?.free;
        let segments = self.allocator().segments();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let free = blocks.filter(|block| !block.is_active());
        Ok(free.map(|block| block.size).fold(device, u64::max))
    }

    /// Returns the bytes of the block of a live allocation.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn block_size(&self, addr: DeviceAddr) -> Result<u64, Error> {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.block_size(addr);
        }
        let segments = self.allocator().segments();
        let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let block = blocks.find(|block| block.address == addr && block.is_allocated());
        block
            .map(|block| block.size)
            .ok_or(Error::InvalidPointer(addr))
    }

    /// Creates a private pool, or adds a user to one.
    ///
    /// # Errors
    /// As [`PyTorch::create_or_use_pool`]; [`Error::Unsupported`] by other policies.
    pub fn create_or_use_pool(
        &mut self,
        pool: MempoolId,
        source: Option<Box<dyn PoolSource>>,
    ) -> Result<(), Error> {
        let allocator = self.reference(POOLS)?;
        allocator.create_or_use_pool(pool)?;
        match source {
            Some(source) if allocator.pool_use_count(pool)? == 1 => {
                allocator.set_pool_source(pool, source)
            }
            _ => Ok(()),
        }
    }

    /// Directs the allocations of streams that `accepts` selects to a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::begin_allocate_to_pool`]; [`Error::Unsupported`] by other policies.
    pub fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.reference(POOLS)?.begin_allocate_to_pool(pool, accepts)
    }

    /// Ends the redirection.
    ///
    /// # Errors
    /// As [`PyTorch::end_allocate_to_pool`]; [`Error::Unsupported`] by other policies.
    pub fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.end_allocate_to_pool(pool)
    }

    /// Removes a user of a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::release_pool`]; [`Error::Unsupported`] by other policies.
    pub fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.release_pool(pool)
    }

    /// Returns the number of users of a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::pool_use_count`]; [`Error::Unsupported`] by other policies.
    pub fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error> {
        self.reference(POOLS)?.pool_use_count(pool)
    }

    /// Sets whether a request that finds no memory elsewhere may take a free block of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by other policies than the reference.
    pub fn set_use_on_oom(&mut self, pool: MempoolId, on: bool) -> Result<(), Error> {
        self.reference(POOLS)?.set_use_on_oom(pool, on);
        Ok(())
    }

    /// Stops splitting blocks of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by other policies than the reference.
    pub fn set_no_split(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.set_no_split(pool);
        Ok(())
    }

    /// Returns whether exactly these allocations of a private pool are live.
    ///
    /// # Errors
    /// As [`PyTorch::pool_live_allocations_are`]; [`Error::Unsupported`] by other policies.
    pub fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        self.reference(CHECKPOINTS)?
            .pool_live_allocations_are(pool, expected)
    }

    /// Records which blocks of a private pool are allocated.
    ///
    /// # Errors
    /// As [`PyTorch::checkpoint_pool`]; [`Error::Unsupported`] by other policies.
    pub fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<PoolCheckpoint, Error> {
        self.reference(CHECKPOINTS)?.checkpoint_pool(pool)
    }

    /// Makes exactly those blocks of a private pool allocated that were so at a checkpoint.
    ///
    /// # Errors
    /// As [`PyTorch::restore_pool`]; [`Error::Unsupported`] by other policies.
    pub fn restore_pool(&mut self, checkpoint: &PoolCheckpoint) -> Result<RestoredPool, Error> {
        self.reference(CHECKPOINTS)?.restore_pool(checkpoint)
    }

    /// Announces that the capture of a graph has begun. Policies without private pools need not know.
    pub fn mark_capture_begin(&mut self) {
        if let Policy::Reference(allocator) = &mut self.policy {
            allocator.mark_capture_begin();
        }
    }

    /// Announces that the capture of a graph has ended.
    ///
    /// # Errors
    /// As [`PyTorch::mark_capture_end`].
    pub fn mark_capture_end(&mut self) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.mark_capture_end(),
            Policy::Other { .. } => Ok(()),
        }
    }

    /// Changes the settings (`torch.cuda.memory._set_allocator_settings`). Other policies than the reference
    /// ignore them.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn apply_settings(&mut self, conf: &str) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.apply_settings(conf),
            Policy::Other { .. } => Ok(()),
        }
    }

    /// Returns the settings of the reference, `None` for other policies.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        match &self.policy {
            Policy::Reference(allocator) => Some(allocator.settings()),
            Policy::Other { .. } => None,
        }
    }

    /// Sends each entry of the history to a listener from now on.
    pub fn listen(&mut self, listener: Listener) {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.listen(Some(listener)),
            Policy::Other { allocator, .. } => allocator.listen(Some(listener)),
        }
    }

    /// Returns the statistics.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        self.allocator().stats()
    }

    /// Resets all peaks to the current values.
    pub fn reset_peak_stats(&mut self) {
        self.allocator_mut().reset_peak_stats();
    }

    /// Sets all totals and counters to zero.
    pub fn reset_accumulated_stats(&mut self) {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.reset_accumulated_stats(),
            Policy::Other { allocator, .. } => allocator.reset_accumulated_stats(),
        }
    }

    /// Returns the segments of a private pool, or all for [`MempoolId::DEFAULT`]. The reference adds the entry to
    /// its history that PyTorch adds.
    pub fn observed_segments(&mut self, pool: MempoolId) -> Vec<SegmentInfo> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.observed_segments(pool),
            Policy::Other { allocator, .. } => allocator.segments(),
        }
    }

    /// Returns a snapshot, with the history if one is recorded.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = match &mut self.policy {
            Policy::Reference(allocator) => allocator.snapshot(),
            Policy::Other { allocator, .. } => allocator.snapshot(),
        };
        for segment in &mut snapshot.segments {
            segment.device = self.ordinal;
        }
        snapshot
    }

    /// Verifies the allocator's state.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check(&self) -> Result<(), Violation> {
        self.allocator().check()
    }

    /// Sets the device number in an error message. The allocator itself knows only one device.
    fn of_this_device(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(details) = &mut error {
            details.device = self.ordinal;
        }
        error
    }

    /// Returns the reference, for what other policies do not serve.
    fn reference(&mut self, what: &'static str) -> Result<&mut PyTorch<Limited<D>>, Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => Ok(allocator),
            &mut Policy::Other { name: policy, .. } => Err(Error::Unsupported { policy, what }),
        }
    }

    fn allocator(&self) -> &dyn Allocator<Driver = Limited<D>> {
        match &self.policy {
            Policy::Reference(allocator) => &**allocator,
            Policy::Other { allocator, .. } => &**allocator,
        }
    }

    fn allocator_mut(&mut self) -> &mut dyn Allocator<Driver = Limited<D>> {
        match &mut self.policy {
            Policy::Reference(allocator) => &mut **allocator,
            Policy::Other { allocator, .. } => &mut **allocator,
        }
    }
}
