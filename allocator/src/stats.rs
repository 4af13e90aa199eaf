//! The statistics of every allocator: PyTorch's, 122 in releases until 2.11, with its arithmetic.
//!
//! Source: PyTorch 2.11, `c10/core/CachingDeviceAllocator.h` and the binding behind
//! `torch.cuda.memory_stats`.

pub mod summary;

use std::collections::BTreeMap;

use crate::mempool::MempoolId;
use crate::release::{Release, is_written, two};

/// The kind of a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PoolKind {
    /// Rounded requests of at most 1 MiB.
    Small,
    /// Larger requests.
    Large,
}

impl PoolKind {
    /// The name in snapshots.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut kinds = [Self::Small, Self::Large].into_iter();
        kinds.find(|kind| kind.name() == name)
    }
}

/// One figure over time.
///
/// Invariants between two resets: `current = allocated − freed` if the figure started at zero, and
/// `peak ≥ current`. Totals beyond 2^63 wrap around, as in PyTorch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The current value.
    pub current: i64,
    /// The highest value since the last reset of peaks.
    pub peak: i64,
    /// The sum of all increases since the last reset of totals.
    pub allocated: i64,
    /// The sum of all decreases since the last reset of totals.
    pub freed: i64,
}

impl Stat {
    /// Adds `amount`.
    pub fn increase(&mut self, amount: u64) {
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    /// Subtracts `amount`.
    pub fn decrease(&mut self, amount: u64) {
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_sub(amount);
        self.freed = self.freed.wrapping_add(amount);
    }

    /// Sets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// A statistic over all pools, and over the small and the large pool separately. The two pools may peak at
/// different times, so their peaks need not add up to the overall peak.
///
/// Everything but the overall peak follows from the two pools, so every allocation updates few counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatArray {
    small_pool: Counter,
    large_pool: Counter,
    /// The highest sum of both pools since the last reset of peaks.
    peak: i64,
}

/// A [`Stat`] whose total of decreases follows from the other figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counter {
    current: i64,
    peak: i64,
    allocated: i64,
    /// What `current` would be without the increases and decreases since the last reset of totals.
    start: i64,
}

impl Counter {
    fn increase(&mut self, amount: i64) {
        self.current = self.current.wrapping_add(amount);
        self.allocated = self.allocated.wrapping_add(amount);
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    fn stat(&self) -> Stat {
        let change = self.current.wrapping_sub(self.start);
        Stat {
            current: self.current,
            peak: self.peak,
            allocated: self.allocated,
            freed: self.allocated.wrapping_sub(change),
        }
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.start = self.current;
    }
}

impl From<Stat> for Counter {
    fn from(stat: Stat) -> Self {
        let change = stat.allocated.wrapping_sub(stat.freed);
        Self {
            current: stat.current,
            peak: stat.peak,
            allocated: stat.allocated,
            start: stat.current.wrapping_sub(change),
        }
    }
}

impl StatArray {
    /// A statistic of pools with these figures, whose sum had this peak.
    #[must_use]
    pub fn new(small_pool: Stat, large_pool: Stat, peak: i64) -> Self {
        Self {
            small_pool: Counter::from(small_pool),
            large_pool: Counter::from(large_pool),
            peak,
        }
    }

    /// Both kinds of pools.
    #[must_use]
    pub fn all(&self) -> Stat {
        let (small, large) = (self.small_pool.stat(), self.large_pool.stat());
        Stat {
            current: self.current(),
            peak: self.peak,
            allocated: small.allocated.wrapping_add(large.allocated),
            freed: small.freed.wrapping_add(large.freed),
        }
    }

    /// Small pools.
    #[must_use]
    pub fn small_pool(&self) -> Stat {
        self.small_pool.stat()
    }

    /// Large pools.
    #[must_use]
    pub fn large_pool(&self) -> Stat {
        self.large_pool.stat()
    }

    /// The figure of one kind.
    #[must_use]
    pub fn of(&self, kind: PoolKind) -> Stat {
        match kind {
            PoolKind::Small => self.small_pool(),
            PoolKind::Large => self.large_pool(),
        }
    }

    /// Adds `amount` to one kind.
    #[inline]
    pub fn increase(&mut self, kind: PoolKind, amount: u64) {
        self.counter(kind).increase(amount.cast_signed());
        let current = self.current();
        if current > self.peak {
            self.peak = current;
        }
    }

    /// Subtracts `amount` from one kind.
    #[inline]
    pub fn decrease(&mut self, kind: PoolKind, amount: u64) {
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_sub(amount.cast_signed());
    }

    /// Applies a net change. Zero changes nothing, not even a peak.
    #[inline]
    pub fn change(&mut self, kind: PoolKind, net: i64) {
        if net > 0 {
            self.increase(kind, net.unsigned_abs());
        } else {
            self.decrease(kind, net.unsigned_abs());
        }
    }

    /// Sets the current value of one kind; totals and peaks stay.
    pub fn set_current(&mut self, kind: PoolKind, value: i64) {
        let counter = self.counter(kind);
        let moved = value.wrapping_sub(counter.current);
        counter.current = value;
        counter.start = counter.start.wrapping_add(moved);
    }

    /// Undoes an increase; the peak stays.
    pub fn take_back(&mut self, kind: PoolKind, amount: u64) {
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_sub(amount.cast_signed());
        counter.allocated = counter.allocated.wrapping_sub(amount.cast_signed());
    }

    /// Sets every peak to its current value.
    fn reset_peak(&mut self) {
        for counter in [&mut self.small_pool, &mut self.large_pool] {
            counter.peak = counter.current;
        }
        self.peak = self.current();
    }

    /// Sets all totals to zero.
    pub(crate) fn reset_accumulated(&mut self) {
        self.small_pool.reset_accumulated();
        self.large_pool.reset_accumulated();
    }

    fn current(&self) -> i64 {
        let (small, large) = (&self.small_pool, &self.large_pool);
        small.current.wrapping_add(large.current)
    }

    fn counter(&mut self, kind: PoolKind) -> &mut Counter {
        match kind {
            PoolKind::Small => &mut self.small_pool,
            PoolKind::Large => &mut self.large_pool,
        }
    }
}

/// All statistics of one device.
///
/// *requested* ≤ *active* and *allocated* ≤ *active* ≤ *reserved*: a block that waits for a stream is
/// active and its request counts, but it is not allocated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Allocated blocks.
    pub allocation: StatArray,
    /// Segments reserved with `cudaMalloc`; expandable segments do not count.
    pub segment: StatArray,
    /// Blocks that are allocated, or freed but still waiting for a stream.
    pub active: StatArray,
    /// Free blocks in split segments, which cannot be returned. Expandable segments do not count.
    pub inactive_split: StatArray,
    /// Bytes of the blocks in `allocation`.
    pub allocated_bytes: StatArray,
    /// Reserved bytes.
    pub reserved_bytes: StatArray,
    /// Bytes of the blocks in `active`.
    pub active_bytes: StatArray,
    /// Bytes of the blocks in `inactive_split`.
    pub inactive_split_bytes: StatArray,
    /// Requested bytes of the blocks in `active`.
    pub requested_bytes: StatArray,
    /// Allocated blocks of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// Attempts to reserve memory after all cached memory was returned.
    pub num_alloc_retries: i64,
    /// Requests that failed for lack of memory.
    pub num_ooms: i64,
    /// Waits for all streams.
    pub num_sync_all_streams: i64,
    /// Calls that reserved memory: `cudaMalloc`, or the mapping of a range.
    pub num_device_alloc: i64,
    /// Calls that returned memory: `cudaFree`, or the unmapping of a range.
    pub num_device_free: i64,
    /// The setting in bytes at creation; −1 for no limit.
    pub max_split_size: i64,
    /// Requests refused under `throw_on_cudamalloc_oom`.
    pub num_oom_rejections: i64,
    /// Bytes reserved by each private pool that was ever used. Empty before 2.13.
    pub reserved_bytes_by_private_pools: BTreeMap<MempoolId, StatArray>,
}

/// The statistics that releases after 2.6 added, with the first release that has them.
const ADDED: [(&str, Release); 2] = [
    ("num_oom_rejections", two(12)),              // #179473
    ("reserved_bytes_by_private_pools", two(13)), // the pools follow the name
];

impl DeviceStats {
    /// The arrays with their names in PyTorch's dictionary, in its order.
    #[must_use]
    pub fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    /// The figures without a breakdown by kind of pool, in PyTorch's order.
    #[must_use]
    pub fn oversize(&self) -> [(&'static str, &Stat); 2] {
        [
            ("oversize_allocations", &self.oversize_allocations),
            ("oversize_segments", &self.oversize_segments),
        ]
    }

    /// The plain counters that every release has.
    #[must_use]
    pub fn scalars(&self) -> [(&'static str, i64); 6] {
        [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("max_split_size", self.max_split_size),
        ]
    }

    /// Returns the dotted keys of `torch.cuda.memory_stats()` in a release with their values, sorted: 122 until
    /// 2.11, one more from 2.12 on, and 12 for each private pool from 2.13 on.
    #[must_use]
    pub fn flatten(&self, release: Release) -> Vec<(String, i64)> {
        let written = |name: &str| is_written(&ADDED, name, release);
        let mut flat = Vec::with_capacity(123);
        let mut add = |prefix: &str, stat: &Stat| {
            for (field, value) in [
                ("current", stat.current),
                ("peak", stat.peak),
                ("allocated", stat.allocated),
                ("freed", stat.freed),
            ] {
                flat.push((format!("{prefix}.{field}"), value));
            }
        };
        let arrays = self.arrays().map(|(name, array)| (name.to_owned(), array));
        let by_pools = "reserved_bytes_by_private_pools";
        let pools = self.reserved_bytes_by_private_pools.iter();
        let pools = pools
            .map(|(&MempoolId(a, b), array)| (format!("{by_pools}.{a}_{b}"), array))
            .filter(|_| written(by_pools));
        for (name, array) in arrays.into_iter().chain(pools) {
            add(&format!("{name}.all"), &array.all());
            add(&format!("{name}.small_pool"), &array.small_pool());
            add(&format!("{name}.large_pool"), &array.large_pool());
        }
        for (name, stat) in self.oversize() {
            add(name, stat);
        }
        let rejections = ("num_oom_rejections", self.num_oom_rejections);
        let scalars = self.scalars().into_iter().chain([rejections]);
        let scalars = scalars.filter(|&(name, _)| written(name));
        flat.extend(scalars.map(|(name, value)| (name.to_owned(), value)));
        flat.sort();
        flat
    }

    /// Sets every peak to its current value (`torch.cuda.reset_peak_memory_stats`).
    pub fn reset_peak(&mut self) {
        self.arrays_mut().for_each(StatArray::reset_peak);
        self.oversize_allocations.reset_peak();
        self.oversize_segments.reset_peak();
    }

    /// Sets every total and every counter to zero (`torch.cuda.reset_accumulated_memory_stats`).
    pub fn reset_accumulated(&mut self) {
        self.arrays_mut().for_each(StatArray::reset_accumulated);
        self.oversize_allocations.reset_accumulated();
        self.oversize_segments.reset_accumulated();
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_sync_all_streams = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
        self.num_oom_rejections = 0;
    }

    fn arrays_mut(&mut self) -> impl Iterator<Item = &mut StatArray> {
        let arrays = [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ];
        let of_pools = self.reserved_bytes_by_private_pools.values_mut();
        arrays.into_iter().chain(of_pools)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_sorted_and_those_of_the_release() {
        let mut stats = DeviceStats::default();
        for (pool, bytes) in [(MempoolId(0, 2), 1), (MempoolId(0, 10), 2)] {
            let by_pool = &mut stats.reserved_bytes_by_private_pools;
            let of_pool = by_pool.entry(pool).or_default();
            of_pool.increase(PoolKind::Small, bytes);
        }
        for (release, count) in [(6, 122), (11, 122), (12, 123), (13, 147), (15, 147)] {
            let flat = stats.flatten(two(release));
            assert_eq!(flat.len(), count, "2.{release}");
            assert!(flat.is_sorted_by(|a, b| a.0 < b.0));
        }
        let flat = stats.flatten(two(13));
        let of_pools = flat.iter().filter(|(_, value)| *value != 0);
        let of_pools: Vec<_> = of_pools.map(|(key, value)| (&**key, *value)).collect();
        let prefix = "reserved_bytes_by_private_pools.";
        let keys = of_pools
            .iter()
            .map(|(key, value)| (key.strip_prefix(prefix).unwrap(), *value));
        let expected = [
            ("0_10.all.allocated", 2),
            ("0_10.all.current", 2),
            ("0_10.all.peak", 2),
            ("0_10.small_pool.allocated", 2),
            ("0_10.small_pool.current", 2),
            ("0_10.small_pool.peak", 2),
            ("0_2.all.allocated", 1),
            ("0_2.all.current", 1),
            ("0_2.all.peak", 1),
            ("0_2.small_pool.allocated", 1),
            ("0_2.small_pool.current", 1),
            ("0_2.small_pool.peak", 1),
        ];
        assert_eq!(Vec::from_iter(keys), expected);
    }

    #[test]
    fn a_peak_stays_until_it_is_reset() {
        let mut stats = DeviceStats::default();
        stats.active.increase(PoolKind::Small, 5);
        stats.active.decrease(PoolKind::Small, 3);
        let expected = Stat {
            current: 2,
            peak: 5,
            allocated: 5,
            freed: 3,
        };
        assert_eq!(stats.active.all(), expected);
        assert_eq!(stats.active.small_pool(), expected);
        assert_eq!(stats.active.large_pool(), Stat::default());
        stats.reset_peak();
        assert_eq!(stats.active.all().peak, 2);
        stats.reset_accumulated();
        assert_eq!((stats.active.all().allocated, stats.active.all().freed), (0, 0));
        assert_eq!(stats.active.all().current, 2);
    }
}
