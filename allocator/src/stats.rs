//! The statistics of every allocator: PyTorch's, 122 in releases until 2.11, with its arithmetic.
//!
//! Source: PyTorch 2.11, `c10/core/CachingDeviceAllocator.h` and the binding behind
//! `torch.cuda.memory_stats`.

mod array;
pub mod summary;

use std::collections::BTreeMap;

pub use self::array::StatArray;
pub use crate::base::stat::Stat;

use crate::mempool::MempoolId;
use crate::release::{Release, is_written, v2};

named! {
    /// The kind of a pool, with its name in snapshots.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum PoolKind {
        /// Rounded requests of at most 1 MiB.
        Small = "small",
        /// Larger requests.
        Large = "large",
    }
}

/// Freed blocks that still wait for a stream. With the allocated blocks they are the active ones.
///
/// The peaks are those of the active blocks while some were waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// The number of blocks.
    pub blocks: StatArray,
    /// Their bytes.
    pub bytes: StatArray,
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
    /// Free blocks in split segments, which cannot be returned. Expandable segments do not count.
    pub inactive_split: StatArray,
    /// Bytes of the blocks in `allocation`.
    pub allocated_bytes: StatArray,
    /// Reserved bytes.
    pub reserved_bytes: StatArray,
    /// Bytes of the blocks in `inactive_split`.
    pub inactive_split_bytes: StatArray,
    /// Requested bytes of the blocks in `active`.
    pub requested_bytes: StatArray,
    /// Blocks in `active` that are not allocated.
    pub waiting: Waiting,
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
    ("num_oom_rejections", v2(12)),              // #179473
    ("reserved_bytes_by_private_pools", v2(13)), // the pools follow the name
];

impl DeviceStats {
    /// The sum of the statistics of two allocators of one device. Peaks are added, too, so they are upper bounds. Retries, failures
    /// and figures of settings are those of `self`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let (mut sum, mut other) = (self.clone(), other.clone());
        let by_pool = std::mem::take(&mut other.reserved_bytes_by_private_pools);
        // Otherwise the peak of active blocks is 0 where none ever waited.
        sum.note_active_peaks();
        other.note_active_peaks();
        // Without pools, `other` has the figures of the device alone, which come first.
        for (own, other) in sum.arrays_mut().zip(other.arrays_mut()) {
            *own = own.and(other);
        }
        sum.reserved_bytes_by_private_pools.extend(by_pool);
        sum.num_device_alloc += other.num_device_alloc;
        sum.num_device_free += other.num_device_free;
        sum
    }

    /// Blocks that are allocated, or freed but still waiting for a stream.
    #[must_use]
    pub fn active(&self) -> StatArray {
        self.allocation.with(&self.waiting.blocks)
    }

    /// Bytes of the blocks in [`Self::active`].
    #[must_use]
    pub fn active_bytes(&self) -> StatArray {
        self.allocated_bytes.with(&self.waiting.bytes)
    }

    /// Counts an allocated block.
    #[inline]
    pub fn count_allocation(&mut self, kind: PoolKind, bytes: u64, requested: u64) {
        self.allocation.increase(kind, 1);
        self.allocated_bytes.increase(kind, bytes);
        self.requested_bytes.increase(kind, requested);
        if self.waiting.blocks.is_any() {
            self.note_active_peaks();
        }
    }

    /// Notes the peaks of active blocks. Only needed while blocks are waiting: otherwise these are the peaks of allocated
    /// blocks.
    #[cold]
    fn note_active_peaks(&mut self) {
        self.waiting.blocks.note_peak_with(&self.allocation);
        self.waiting.bytes.note_peak_with(&self.allocated_bytes);
    }

    /// Counts the free of an allocated block.
    #[inline]
    pub fn count_free(&mut self, kind: PoolKind, bytes: u64, requested: u64) {
        self.allocation.decrease(kind, 1);
        self.allocated_bytes.decrease(kind, bytes);
        self.requested_bytes.decrease(kind, requested);
    }

    /// Counts the free of an allocated block that waits for a stream.
    pub(crate) fn count_waiting(&mut self, kind: PoolKind, bytes: u64) {
        self.allocation.decrease(kind, 1);
        self.allocated_bytes.decrease(kind, bytes);
        self.waiting.blocks.add(kind, 1);
        self.waiting.bytes.add(kind, bytes);
    }

    /// Counts a block that waited from the start.
    pub(crate) fn count_restored_waiting(&mut self, kind: PoolKind, bytes: u64, requested: u64) {
        self.waiting.blocks.increase(kind, 1);
        self.waiting.bytes.increase(kind, bytes);
        self.requested_bytes.increase(kind, requested);
        self.note_active_peaks();
    }

    /// Counts the end of a wait.
    pub(crate) fn count_waited(&mut self, kind: PoolKind, bytes: u64, requested: u64) {
        self.waiting.blocks.decrease(kind, 1);
        self.waiting.bytes.decrease(kind, bytes);
        self.requested_bytes.decrease(kind, requested);
    }

    /// The arrays with their names in PyTorch's dictionary, in its order.
    #[must_use]
    pub fn arrays(&self) -> [(&'static str, StatArray); 9] {
        [
            ("allocation", self.allocation),
            ("segment", self.segment),
            ("active", self.active()),
            ("inactive_split", self.inactive_split),
            ("allocated_bytes", self.allocated_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("active_bytes", self.active_bytes()),
            ("inactive_split_bytes", self.inactive_split_bytes),
            ("requested_bytes", self.requested_bytes),
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
        let pools = self
            .reserved_bytes_by_private_pools
            .iter()
            .map(|(&MempoolId(a, b), &array)| (format!("{by_pools}.{a}_{b}"), array))
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
        let scalars = self
            .scalars()
            .into_iter()
            .chain([rejections])
            .filter(|&(name, _)| written(name));
        flat.extend(scalars.map(|(name, value)| (name.to_owned(), value)));
        flat.sort();
        flat
    }

    /// Sets every peak to its current value (`torch.cuda.reset_peak_memory_stats`).
    pub fn reset_peak(&mut self) {
        self.arrays_mut().for_each(StatArray::reset_peak);
        self.note_active_peaks();
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
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
            &mut self.waiting.blocks,
            &mut self.waiting.bytes,
        ];
        let of_pools = self.reserved_bytes_by_private_pools.values_mut();
        arrays.into_iter().chain(of_pools)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

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
            let flat = stats.flatten(v2(release));
            assert_eq!(flat.len(), count, "2.{release}");
            assert!(flat.is_sorted_by(|a, b| a.0 < b.0));
        }
        let flat = stats.flatten(v2(13));
        let of_pools: Vec<_> = flat
            .iter()
            .filter(|(_, value)| *value != 0)
            .map(|(key, value)| (&**key, *value))
            .collect();
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

    /// Statistics with other figures for each other `first`.
    fn starting_at(first: i64) -> DeviceStats {
        let mut stats = DeviceStats {
            num_device_alloc: first,
            num_device_free: first + 1,
            ..DeviceStats::default()
        };
        let pools = &mut stats.reserved_bytes_by_private_pools;
        pools.entry(MempoolId(0, first.unsigned_abs())).or_default();
        for (amount, array) in (first.unsigned_abs()..).zip(stats.arrays_mut()) {
            array.increase(PoolKind::Small, 3 * amount);
            array.increase(PoolKind::Large, 7 * amount);
            array.decrease(PoolKind::Large, 2 * amount);
        }
        stats
    }

    #[test]
    fn figures_of_two_allocators_are_added() {
        let (one, other) = (starting_at(100), starting_at(3000));
        let by_key = |stats: DeviceStats| BTreeMap::from_iter(stats.flatten(v2(15)));
        let sums = by_key(one.and(&other));
        let [one, other] = [one, other].map(by_key);
        assert_eq!(sums.len(), 147, "those of the device and of two pools");
        for (key, sum) in sums {
            let of = |stats: &BTreeMap<_, i64>| stats.get(&key).copied().unwrap_or(0);
            assert_eq!(sum, of(&one) + of(&other), "{key}");
        }
    }

    /// A count of the straightforward kind: every figure kept separately.
    #[derive(Default)]
    struct Naive([Stat; 3]);

    impl Naive {
        fn change(&mut self, kind: PoolKind, change: impl Fn(&mut Stat)) {
            let own = match kind {
                PoolKind::Small => 1,
                PoolKind::Large => 2,
            };
            change(&mut self.0[0]);
            change(&mut self.0[own]);
        }

        fn equals(&self, array: &StatArray) -> bool {
            self.0 == [array.all(), array.small_pool(), array.large_pool()]
        }
    }

    proptest! {
        /// Blocks are allocated, freed at once or after a wait; peaks and totals are reset at any time.
        #[test]
        fn derived_figures_equal_separate_ones(
            ops in prop::collection::vec((0..6, any::<prop::sample::Index>(), 1_u64..100), 1..300),
        ) {
            let mut stats = DeviceStats::default();
            let (mut allocated, mut active, mut requested) = <(Naive, Naive, Naive)>::default();
            let (mut live, mut waiting) = (Vec::new(), Vec::new());
            for (op, index, bytes) in ops {
                match op {
                    0 | 1 => {
                        let kind = if op == 0 { PoolKind::Small } else { PoolKind::Large };
                        live.push((kind, bytes));
                        stats.count_allocation(kind, bytes, bytes / 2);
                        allocated.change(kind, |stat| stat.increase(bytes));
                        active.change(kind, |stat| stat.increase(bytes));
                        requested.change(kind, |stat| stat.increase(bytes / 2));
                    }
                    2 | 3 if !live.is_empty() => {
                        let (kind, bytes) = live.swap_remove(index.index(live.len()));
                        allocated.change(kind, |stat| stat.decrease(bytes));
                        if op == 2 {
                            stats.count_waiting(kind, bytes);
                            waiting.push((kind, bytes));
                        } else {
                            stats.count_free(kind, bytes, bytes / 2);
                            active.change(kind, |stat| stat.decrease(bytes));
                            requested.change(kind, |stat| stat.decrease(bytes / 2));
                        }
                    }
                    4 if !waiting.is_empty() => {
                        let (kind, bytes) = waiting.swap_remove(index.index(waiting.len()));
                        stats.count_waited(kind, bytes, bytes / 2);
                        active.change(kind, |stat| stat.decrease(bytes));
                        requested.change(kind, |stat| stat.decrease(bytes / 2));
                    }
                    5 if bytes < 10 => {
                        stats.reset_peak();
                        for naive in [&mut allocated, &mut active, &mut requested] {
                            naive.0.iter_mut().for_each(Stat::reset_peak);
                        }
                    }
                    5 if bytes < 20 => {
                        stats.reset_accumulated();
                        for naive in [&mut allocated, &mut active, &mut requested] {
                            naive.0.iter_mut().for_each(Stat::reset_accumulated);
                        }
                    }
                    _ => {}
                }
                prop_assert!(allocated.equals(&stats.allocated_bytes));
                prop_assert!(active.equals(&stats.active_bytes()));
                prop_assert!(requested.equals(&stats.requested_bytes));
            }
        }
    }
}
