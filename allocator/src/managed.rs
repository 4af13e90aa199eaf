//! Turns a policy into an allocator: everything that all policies share.

mod pools;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use foldhash::fast::FixedState;

use self::pools::PoolUsers;
use crate::allocator::{Allocator, ONE_EXABYTE};
use crate::base::check::{Violation, ensure};
use crate::driver::hooks::held::HeldMemory;
use crate::driver::tap::Tap;
use crate::driver::{DeviceAddr, Driver, MemoryHandle, StreamId};
use crate::error::{Error, OutOfMemory};
use crate::mempool::MempoolId;
use crate::policy::{Block, Policy, Refusal, Served};
use crate::private_pools::HasPrivatePools;
use crate::snapshot::{BlockInfo, BlockState, SegmentInfo};
use crate::stats::{DeviceStats, PoolKind, Stat, StatArray};

/// Only PyTorch distinguishes kinds of pools.
const KIND: PoolKind = PoolKind::Large;

/// An allocated block.
#[derive(Clone, Copy, Debug)]
struct Live {
    block: Block,
    /// Requested bytes.
    requested: u64,
}

/// Allocated blocks by address.
type ByAddress = BTreeMap<DeviceAddr, Live>;

/// A policy with its device, its allocated blocks and the statistics.
///
/// - *reserved* is the memory obtained from the device, in whole pages. Physical memory behind several
///   addresses counts once; for the device's own pool, the pool's figure counts.
/// - *allocated* and *active* are the same: a policy that defers the reuse of freed blocks does so
///   internally.
/// - a *retry* is another driver call for memory after the device refused one within the same request.
/// - a *segment* is one allocation from the device, or a page that small allocations share.
///
/// The policy is boxed, so that this code is compiled once for each driver and not once more for each policy.
pub struct Managed<D> {
    name: &'static str,
    policy: Box<dyn Policy>,
    device: Tap<D, HeldMemory>,
    live: HashMap<DeviceAddr, Live, FixedState>,
    /// Freed blocks that the policy could not take back because the device failed.
    failed_frees: Vec<Block>,
    /// Bytes in use of each device allocation, if any.
    in_use: HashMap<DeviceAddr, u64, FixedState>,
    /// The users of private pools, if the policy has such pools.
    pools: PoolUsers,
    stats: DeviceStats,
    /// Calls of the device that `stats` takes into account.
    counted_calls: u64,
}

impl<D: fmt::Debug> fmt::Debug for Managed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Managed")
            .field("name", &self.name)
            .field("device", &self.device)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Managed<D> {
    /// Creates an allocator that follows `policy` on an unused device. Errors show `name`.
    #[must_use]
    pub fn new(name: &'static str, policy: impl Policy + 'static, device: D) -> Self {
        Self::boxed(name, Box::new(policy), device)
    }

    pub(crate) fn boxed(name: &'static str, policy: Box<dyn Policy>, device: D) -> Self {
        let held = HeldMemory::new(device.granularity());
        Self {
            name,
            policy,
            device: Tap::over(device, held),
            live: HashMap::default(),
            failed_frees: Vec::new(),
            in_use: HashMap::default(),
            pools: PoolUsers::default(),
            stats: DeviceStats {
                max_split_size: -1,
                ..DeviceStats::default()
            },
            counted_calls: 0,
        }
    }

    /// Updates the figures about the device, if it was called.
    #[inline]
    fn count_held(&mut self) {
        if self.counted_calls != self.device.hook().calls() {
            self.count_held_anew();
        }
    }

    fn count_held_anew(&mut self) {
        let held = self.device.hook();
        self.counted_calls = held.calls();
        let in_large_pool = |stat: Stat| StatArray::new(Stat::default(), stat, stat.peak);
        self.stats.reserved_bytes = in_large_pool(held.bytes());
        self.stats.segment = in_large_pool(held.ranges());
        self.stats.num_device_alloc = held.taken().cast_signed();
        self.stats.num_device_free = held.returned().cast_signed();
    }

    fn explain(&mut self, refusal: Refusal, bytes: u64, stream: StreamId) -> Error {
        match refusal {
            Refusal::Driver(error) => Error::Driver(error),
            Refusal::Failed(reason) => Error::Policy(reason),
            Refusal::Unsupported(what) => Error::Unsupported {
                policy: self.name,
                what,
            },
            Refusal::OutOfMemory => {
                let device_total = self.device.total_memory();
                let device_free = self.device.memory_info().map_or(0, |info| info.free);
                Error::OutOfMemory(Box::new(OutOfMemory {
                    policy: self.name,
                    requested: bytes,
                    segment: bytes,
                    stream,
                    device: 0,
                    device_total,
                    device_free,
                    limit: None,
                    allocated: current(&self.stats.allocated_bytes.all()),
                    private_free: 0,
                    reserved: current(&self.stats.reserved_bytes.all()),
                    hint: "".into(),
                }))
            }
        }
    }

    #[inline]
    fn count_allocation(&mut self, block: Block, requested: u64) {
        let stats = &mut self.stats;
        stats.count_allocation(KIND, block.bytes, requested);
        self.use_segment(block, |used| used + block.bytes);
    }

    #[inline]
    fn count_free(&mut self, Live { block, requested }: Live) {
        let stats = &mut self.stats;
        stats.count_free(KIND, block.bytes, requested);
        self.use_segment(block, |used| used.saturating_sub(block.bytes));
    }

    /// Changes the bytes in use of the block's segment, and with it the free bytes in split segments.
    #[inline]
    fn use_segment(&mut self, block: Block, change: impl FnOnce(u64) -> u64) {
        let Some((start, bytes)) = self.device.hook().allocation_around(block.addr) else {
            return; // mapped memory is not returned as a whole segment
        };
        let used = self.in_use.remove(&start).unwrap_or(0);
        let now = change(used);
        if now > 0 {
            self.in_use.insert(start, now);
        }
        let inactive = |used: u64| {
            if used == 0 {
                0
            } else {
                bytes.saturating_sub(used)
            }
        };
        let split = |used: u64| i64::from(inactive(used) > 0);
        let stats = &mut self.stats;
        let difference = inactive(now).wrapping_sub(inactive(used)).cast_signed();
        stats.inactive_split_bytes.change(KIND, difference);
        stats.inactive_split.change(KIND, split(now) - split(used));
    }

    fn by_address(&self) -> ByAddress {
        self.live
            .iter()
            .map(|(&addr, &live)| (addr, live))
            .collect()
    }

    /// The device allocations, the blocks of the device's own pool, and the runs of mapped memory. Memory
    /// mapped several times is listed once: where it is in use, or else at its lowest address.
    fn ranges(&self, live: &ByAddress) -> Vec<(DeviceAddr, u64, bool)> {
        let held = self.device.hook();
        let mut ranges: Vec<_> = held
            .allocations()
            .chain(held.pool_blocks())
            .map(|(addr, bytes)| (addr, bytes, false))
            .collect();
        let mut mapped: HashMap<MemoryHandle, Vec<(DeviceAddr, u64)>> = HashMap::new();
        for (addr, mapping) in held.mappings() {
            let of_handle = mapped.entry(mapping.handle).or_default();
            of_handle.push((addr, mapping.bytes));
        }
        let mut pages: Vec<_> = mapped
            .into_values()
            .flat_map(|of_handle| parts_in_use(live, &of_handle))
            .collect();
        pages.sort_unstable();
        let mut runs: Vec<(DeviceAddr, u64, bool)> = Vec::new();
        for (addr, bytes) in pages {
            match runs.last_mut() {
                Some((start, length, _)) if start.offset(*length) == addr => *length += bytes,
                _ => runs.push((addr, bytes, true)),
            }
        }
        ranges.extend(runs);
        ranges.sort_unstable();
        ranges
    }

    /// Lets the policy serve a request, from the private pool for it if there is one.
    fn serve(&mut self, bytes: u64, stream: StreamId) -> Served<Block> {
        if let Some(pool) = self.pools.pool_of(stream)
            && let Some(pools) = self.policy.private_pools()
        {
            return pools.malloc_in(&mut self.device, pool, bytes, stream);
        }
        self.policy.malloc(&mut self.device, bytes, stream)
    }

    fn retry_failed_frees(&mut self) -> Result<(), Error> {
        while let Some(block) = self.failed_frees.pop() {
            self.free_block(block)?;
        }
        Ok(())
    }

    fn free_block(&mut self, block: Block) -> Result<(), Error> {
        let freed = self.policy.free(&mut self.device, block);
        self.count_held();
        // Not `map_err`, with which the compiler copies the answer, although it was only just written.
        match freed {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.keep_failed_free(block, refusal)),
        }
    }

    #[cold]
    fn keep_failed_free(&mut self, block: Block, refusal: Refusal) -> Error {
        self.failed_frees.push(block);
        self.explain(refusal, block.bytes, block.stream)
    }
}

impl<D: Driver> Allocator for Managed<D> {
    type Driver = D;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        if bytes == 0 {
            return Ok(DeviceAddr::NULL);
        }
        if bytes >= ONE_EXABYTE {
            return Err(Error::MoreThanOneExabyte);
        }
        self.notice_capture()?;
        let before = self.device.hook().refused();
        let answer = self.serve(bytes, stream);
        self.count_held();
        let refused = self.device.hook().refused() - before;
        match answer {
            Ok(block) => {
                // All fields copied at once would have to wait until the policy has written each of them.
                let block = Block { stream, ..block };
                self.stats.num_alloc_retries += refused.cast_signed();
                let requested = bytes;
                self.live.insert(block.addr, Live { block, requested });
                self.count_allocation(block, requested);
                Ok(block.addr)
            }
            Err(refusal) => {
                if refusal == Refusal::OutOfMemory {
                    self.stats.num_ooms += 1;
                    self.stats.num_alloc_retries += refused.saturating_sub(1).cast_signed();
                }
                Err(self.explain(refusal, bytes, stream))
            }
        }
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        if addr.is_null() {
            return Ok(());
        }
        self.notice_capture()?;
        let Some(live) = self.live.remove(&addr) else {
            return Err(Error::InvalidPointer(addr));
        };
        self.count_free(live);
        self.free_block(live.block)
    }

    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        if addr.is_null() {
            return Ok(());
        }
        let live = self.live.get(&addr);
        let block = live.ok_or(Error::InvalidPointer(addr))?.block;
        if block.stream == stream {
            return Ok(());
        }
        let recorded = self.policy.record_stream(&mut self.device, block, stream);
        recorded.map_err(|refusal| self.explain(refusal, 0, stream))
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.notice_capture()?;
        let mut emptied = self.retry_failed_frees();
        if emptied.is_ok() {
            let policy = self.policy.empty_cache(&mut self.device);
            emptied = policy.map_err(|refusal| self.explain(refusal, 0, StreamId::DEFAULT));
        }
        self.count_held();
        emptied?;
        self.pools.forget_emptied();
        Ok(())
    }

    fn private_pools(&mut self) -> Option<&mut dyn HasPrivatePools> {
        let has = self.policy.private_pools().is_some();
        has.then_some(self as &mut dyn HasPrivatePools)
    }

    fn stats(&self) -> &DeviceStats {
        &self.stats
    }

    fn reset_peak_stats(&mut self) {
        self.device.hook_mut().reset_peaks();
        self.stats.reset_peak();
    }

    fn reset_accumulated_stats(&mut self) {
        self.device.hook_mut().reset_accumulated();
        self.stats.reset_accumulated();
    }

    /// Their blocks are the allocated ones and the gaps between them.
    fn segments(&self) -> Vec<SegmentInfo> {
        let live = self.by_address();
        let of_range = |(address, bytes, is_expandable): (DeviceAddr, u64, bool)| {
            let end = address.offset(bytes);
            let mut blocks = Vec::new();
            let mut free_from = address;
            let free = |from: DeviceAddr, to: DeviceAddr| {
                let bytes = to.offset_from(from);
                (bytes > 0).then(|| BlockInfo::new(from, bytes, 0, BlockState::Inactive))
            };
            for (&addr, live) in live.range(address..end) {
                blocks.extend(free(free_from, addr));
                let (bytes, requested) = (live.block.bytes, live.requested);
                let state = BlockState::ActiveAllocated;
                blocks.push(BlockInfo::new(addr, bytes, requested, state));
                free_from = addr.offset(bytes);
            }
            blocks.extend(free(free_from, end));
            SegmentInfo {
                device: 0,
                address,
                stream: StreamId::DEFAULT,
                kind: KIND,
                pool: MempoolId::DEFAULT,
                is_expandable,
                blocks,
            }
        };
        let ranges = self.ranges(&live).into_iter();
        ranges.map(of_range).collect()
    }

    /// Checks that every allocated block lies in reserved memory and overlaps no other, then the
    /// policy's own state.
    fn check(&self) -> Result<(), Violation> {
        let live = self.by_address();
        let ranges = self.ranges(&live);
        let mut end_before = DeviceAddr::NULL;
        for (&addr, live) in &live {
            let end = addr.offset(live.block.bytes);
            ensure!(addr >= end_before, "block {addr} overlaps the one before");
            ensure!(
                live.block.bytes >= live.requested,
                "block {addr} is smaller than the request"
            );
            let around = ranges.partition_point(|&(start, ..)| start <= addr);
            let held = ranges[..around].last();
            ensure!(
                held.is_some_and(|&(start, bytes, _)| end <= start.offset(bytes)),
                "block {addr} is not in reserved memory"
            );
            end_before = end;
        }
        self.policy.check()?;
        let live: Vec<Block> = live.values().map(|live| live.block).collect();
        self.policy.check_with(&live)
    }

    fn driver(&self) -> &D {
        self.device.driver()
    }

    fn driver_mut(&mut self) -> &mut D {
        self.device.driver_mut()
    }
}

/// For a handle that is mapped at several ranges, returns the address of each block in it, and of the free bytes
/// behind each block.
fn parts_in_use(live: &ByAddress, mappings: &[(DeviceAddr, u64)]) -> Vec<(DeviceAddr, u64)> {
    let mut starts: Vec<(u64, DeviceAddr)> = Vec::new();
    for &(addr, bytes) in mappings {
        let blocks = blocks_in(live, addr, bytes);
        starts.extend(blocks.map(|start| (start.offset_from(addr), addr)));
    }
    starts.sort_unstable();
    let Some(&(lowest, bytes)) = mappings.iter().min() else {
        return Vec::new();
    };
    match starts.first_mut() {
        Some((first, _)) => *first = 0,
        None => starts.push((0, lowest)),
    }
    let ends = starts
        .iter()
        .skip(1)
        .map(|&(offset, _)| offset)
        .chain([bytes])
        .collect::<Vec<u64>>();
    let parts = starts.into_iter().zip(ends);
    parts
        .map(|((offset, addr), end)| (addr.offset(offset), end - offset))
        .collect()
}

/// Where allocated blocks begin in a range, or at its start if one begins before.
fn blocks_in(live: &ByAddress, addr: DeviceAddr, bytes: u64) -> impl Iterator<Item = DeviceAddr> {
    let before = live.range(..addr).next_back();
    let reaches_in = before.filter(|(start, live)| start.offset(live.block.bytes) > addr);
    let inside = live
        .range(addr..addr.offset(bytes))
        .map(|(&start, _)| start);
    reaches_in.map(|_| addr).into_iter().chain(inside)
}

fn current(stat: &crate::stats::Stat) -> u64 {
    stat.current.cast_unsigned()
}
