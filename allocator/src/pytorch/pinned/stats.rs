//! What PyTorch counts of pinned memory (`torch.cuda.host_memory_stats`), with its mistakes.
//!
//! Allocated blocks are counted by size class. A reported peak is the sum of the peaks of all classes, which need not
//! have been reached at the same time.

use super::PinnedAllocator;
use super::size::{CLASSES, SizeClass};
use crate::driver::Driver;
use crate::mempool::MempoolId;
use crate::stats::Stat;

/// Which statistics a release reports, and under which names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Report {
    /// None. 2.6.
    None,
    /// Pinned memory is "segments" and "reserved". 2.7 to 2.9.
    Segments,
    /// Pinned memory is "allocations" and "allocated", blocks in use are "active". From 2.10 on.
    Active,
}

/// How allocated blocks are counted if graphs have pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolCounters {
    /// Together. Until 2.14.
    Shared,
    /// Each pool by itself, so that more peaks are added up. From 2.15 on.
    Separate,
}

/// The bytes that are counted when a block becomes free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FreedBytes {
    /// Its size.
    OfBlock,
    /// The size that the search for complete events was for. A search for no size counts −1, so that the bytes
    /// grow by one. Until 2.12.
    OfSearch(Option<u64>),
    /// The block stays counted as allocated.
    NotCounted,
}

impl FreedBytes {
    /// For a block that a search found.
    pub(super) fn of_search(self, size: Option<u64>) -> Self {
        match self {
            Self::OfSearch(_) => Self::OfSearch(size),
            other => other,
        }
    }

    /// The bytes counted for a block, if it is counted.
    pub(super) fn of_block(self, bytes: u64) -> Option<u64> {
        match self {
            Self::OfBlock => Some(bytes),
            Self::OfSearch(size) => Some(size.unwrap_or(u64::MAX)),
            Self::NotCounted => None,
        }
    }
}

/// Blocks and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counter {
    blocks: Stat,
    bytes: Stat,
}

impl Counter {
    pub(super) fn allocate(&mut self, bytes: u64) {
        self.blocks.increase(1);
        self.bytes.increase(bytes);
    }

    pub(super) fn free(&mut self, bytes: u64) {
        self.blocks.decrease(1);
        self.bytes.decrease(bytes);
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.blocks, &other.blocks);
        add(&mut self.bytes, &other.bytes);
    }
}

/// Adds figures up, peaks included.
fn add(to: &mut Stat, other: &Stat) {
    to.current = to.current.wrapping_add(other.current);
    to.peak = to.peak.wrapping_add(other.peak);
    to.allocated = to.allocated.wrapping_add(other.allocated);
    to.freed = to.freed.wrapping_add(other.freed);
}

/// The allocated blocks of each size class.
#[derive(Debug)]
pub(super) struct Counters([Counter; CLASSES]);

impl Default for Counters {
    fn default() -> Self {
        Self([Counter::default(); CLASSES])
    }
}

impl Counters {
    pub(super) fn of_class(&mut self, class: SizeClass) -> &mut Counter {
        &mut self.0[class.index()]
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (to, other) in self.0.iter_mut().zip(&other.0) {
            to.add(other);
        }
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        for counter in &mut self.0 {
            change(&mut counter.blocks);
            change(&mut counter.bytes);
        }
    }
}

/// What is counted over all pools.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// All blocks, free ones included.
    pinned: Counter,
    /// Calls that pinned memory since the last reset of totals, that of the reserve included.
    pub(super) alloc_calls: u64,
    /// Calls that returned memory since then.
    pub(super) free_calls: u64,
}

impl Totals {
    pub(super) fn create(&mut self, bytes: u64) {
        self.pinned.allocate(bytes);
    }

    pub(super) fn destroy(&mut self, bytes: u64) {
        self.pinned.free(bytes);
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        change(&mut self.pinned.blocks);
        change(&mut self.pinned.bytes);
    }
}

/// The statistics, under PyTorch's own arithmetic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedStats {
    /// All blocks, free ones included.
    pub blocks: Stat,
    /// Their bytes: what is pinned, but for the rest of a reserve.
    pub bytes: Stat,
    /// Blocks that are allocated or wait for streams. In 2.10 to 2.12, a freed block that no stream used counts on.
    pub active: Stat,
    /// The bytes of these blocks. In 2.7 to 2.12, a block that waited for streams counts on, and one byte more.
    pub active_bytes: Stat,
    /// Calls that pinned memory.
    pub alloc_calls: u64,
    /// Calls that returned memory.
    pub free_calls: u64,
}

/// A figure as PyTorch reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinnedField {
    /// A figure over time.
    Stat(Stat),
    /// A number.
    Number(i64),
}

impl<D: Driver> PinnedAllocator<D> {
    /// The statistics. Those of 2.6, which reports none, are counted as in 2.7.
    #[must_use]
    pub fn stats(&self) -> PinnedStats {
        let mut active = Counter::default();
        for pool in self.pools.values() {
            for counter in &pool.counters.0 {
                active.add(counter);
            }
        }
        PinnedStats {
            blocks: self.totals.pinned.blocks,
            bytes: self.totals.pinned.bytes,
            active: active.blocks,
            active_bytes: active.bytes,
            alloc_calls: self.totals.alloc_calls,
            free_calls: self.totals.free_calls,
        }
    }

    /// The statistics under the names of the release, by name; none if it reports none.
    #[must_use]
    pub fn reported_stats(&self) -> Vec<(&'static str, PinnedField)> {
        let stats = self.stats();
        let [blocks, bytes, active, active_bytes] = match self.rules.report {
            Report::None => return Vec::new(),
            Report::Segments => ["segment", "reserved_bytes", "allocation", "allocated_bytes"],
            Report::Active => [
                "allocations",
                "allocated_bytes",
                "active_requests",
                "active_bytes",
            ],
        };
        let number = |count: u64| PinnedField::Number(count.cast_signed());
        let mut fields = vec![
            (blocks, PinnedField::Stat(stats.blocks)),
            (bytes, PinnedField::Stat(stats.bytes)),
            (active, PinnedField::Stat(stats.active)),
            (active_bytes, PinnedField::Stat(stats.active_bytes)),
            ("host_alloc_time.count", number(stats.alloc_calls)),
            ("host_free_time.count", number(stats.free_calls)),
            (
                "num_host_alloc",
                PinnedField::Number(stats.blocks.allocated),
            ),
            ("num_host_free", PinnedField::Number(stats.blocks.freed)),
        ];
        fields.sort_unstable_by_key(|&(name, _)| name);
        fields
    }

    /// Sets all peaks to the current values.
    pub fn reset_peak_stats(&mut self) {
        self.each_stat(Stat::reset_peak);
    }

    /// Sets all totals to zero.
    pub fn reset_accumulated_stats(&mut self) {
        self.each_stat(Stat::reset_accumulated);
        self.totals.alloc_calls = 0;
        self.totals.free_calls = 0;
    }

    fn each_stat(&mut self, change: impl Fn(&mut Stat)) {
        self.totals.each(&change);
        for pool in self.pools.values_mut() {
            pool.counters.each(&change);
        }
    }

    /// The counters of the allocated blocks of a pool.
    pub(super) fn counted(&mut self, pool: MempoolId) -> &mut Counters {
        let counted = match self.rules.pool_counters {
            PoolCounters::Shared => MempoolId::DEFAULT,
            PoolCounters::Separate => pool,
        };
        &mut self.pools.entry(counted).or_default().counters
    }
}
