//! Figures over time for the kinds of pools.

use super::{PoolKind, Stat};

/// A statistic over all pools, and over the small and the large pool separately. The two pools may peak at
/// different times, so their peaks need not add up to the overall peak.
///
/// Every allocation and every free updates some of these, so they keep few counters: sums over both kinds and
/// totals of decreases follow from the others, and a peak is noted when a figure is about to decrease.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatArray {
    /// Of small pools and of large ones.
    counters: [Counter; 2],
    /// The highest sum of both before the last decrease, since the last reset of peaks.
    peak: i64,
}

/// What a [`Stat`] follows from.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Counter {
    current: i64,
    /// The highest value before the last decrease, since the last reset of peaks.
    peak: i64,
    /// What `current` would be without the increases and decreases since the last reset of totals.
    start: i64,
    /// Not beside `current`: the compiler would change both with one instruction, for which a processor has to
    /// wait until the last change of `current` alone has reached the cache.
    allocated: i64,
}

impl Counter {
    fn stat(&self) -> Stat {
        let change = self.current.wrapping_sub(self.start);
        Stat {
            current: self.current,
            peak: self.peak.max(self.current),
            allocated: self.allocated,
            freed: self.allocated.wrapping_sub(change),
        }
    }

    /// Both counters together, with a peak of their own.
    fn with(&self, other: &Self, peak: i64) -> Self {
        Self {
            current: self.current.wrapping_add(other.current),
            allocated: self.allocated.wrapping_add(other.allocated),
            peak,
            start: self.start.wrapping_add(other.start),
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
            allocated: stat.allocated,
            peak: stat.peak,
            start: stat.current.wrapping_sub(change),
        }
    }
}

/// Equal if all figures are.
impl PartialEq for StatArray {
    fn eq(&self, other: &Self) -> bool {
        let figures = |array: &Self| [array.all(), array.small_pool(), array.large_pool()];
        figures(self) == figures(other)
    }
}

impl Eq for StatArray {}

impl StatArray {
    /// A statistic of pools with these figures, whose sum had this peak.
    #[must_use]
    pub fn new(small_pool: Stat, large_pool: Stat, peak: i64) -> Self {
        Self {
            counters: [Counter::from(small_pool), Counter::from(large_pool)],
            peak,
        }
    }

    /// The figures of two allocators. Their peaks are added, also if they were not reached at the same time.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let sum = |kind| {
            let (one, two) = (self.of(kind), other.of(kind));
            Stat {
                current: one.current + two.current,
                peak: one.peak + two.peak,
                allocated: one.allocated + two.allocated,
                freed: one.freed + two.freed,
            }
        };
        let peak = self.all().peak + other.all().peak;
        Self::new(sum(PoolKind::Small), sum(PoolKind::Large), peak)
    }

    /// Both kinds of pools.
    #[must_use]
    pub fn all(&self) -> Stat {
        let [small, large] = &self.counters;
        small.with(large, self.peak).stat()
    }

    /// Small pools.
    #[must_use]
    pub fn small_pool(&self) -> Stat {
        self.of(PoolKind::Small)
    }

    /// Large pools.
    #[must_use]
    pub fn large_pool(&self) -> Stat {
        self.of(PoolKind::Large)
    }

    /// The figure of one kind.
    #[must_use]
    pub fn of(&self, kind: PoolKind) -> Stat {
        self.counters[kind as usize].stat()
    }

    /// Adds `amount` to one kind.
    #[inline]
    pub fn increase(&mut self, kind: PoolKind, amount: u64) {
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_add(amount.cast_signed());
        counter.allocated = counter.allocated.wrapping_add(amount.cast_signed());
    }

    /// Subtracts `amount` from one kind.
    #[inline]
    pub fn decrease(&mut self, kind: PoolKind, amount: u64) {
        let all = self.current();
        if all > self.peak {
            self.peak = all;
        }
        let counter = self.counter(kind);
        if counter.current > counter.peak {
            counter.peak = counter.current;
        }
        counter.current = counter.current.wrapping_sub(amount.cast_signed());
    }

    /// Applies a net change. Zero changes nothing.
    #[inline]
    pub fn change(&mut self, kind: PoolKind, net: i64) {
        self.decrease(kind, 0);
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_add(net);
        counter.allocated = counter.allocated.wrapping_add(net.max(0));
    }

    /// Sets the current value of one kind; totals and peaks stay.
    pub fn set_current(&mut self, kind: PoolKind, value: i64) {
        self.note_peak();
        let counter = self.counter(kind);
        let moved = value.wrapping_sub(counter.current);
        counter.current = value;
        counter.start = counter.start.wrapping_add(moved);
    }

    /// Undoes an increase; the peak stays.
    pub fn take_back(&mut self, kind: PoolKind, amount: u64) {
        self.note_peak();
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_sub(amount.cast_signed());
        counter.allocated = counter.allocated.wrapping_sub(amount.cast_signed());
    }

    /// Sets every peak to its current value.
    pub(super) fn reset_peak(&mut self) {
        for counter in &mut self.counters {
            counter.peak = counter.current;
        }
        self.peak = self.current();
    }

    /// Sets all totals to zero.
    pub(crate) fn reset_accumulated(&mut self) {
        self.counters
            .iter_mut()
            .for_each(Counter::reset_accumulated);
    }

    /// The statistic of what `self` and `part` count. `part` notes the peaks of both together
    /// ([`Self::note_peak_with`]).
    pub(super) fn with(&self, part: &Self) -> Self {
        let with = |at: usize| {
            let (own, other) = (&self.counters[at], &part.counters[at]);
            own.with(other, own.peak.max(other.peak))
        };
        Self {
            counters: [with(0), with(1)],
            peak: self.peak.max(part.peak),
        }
    }

    /// Notes the peaks of `whole` and `self` together.
    pub(super) fn note_peak_with(&mut self, whole: &Self) {
        let both = whole.with(self);
        self.peak = both.all().peak;
        for (counter, both) in self.counters.iter_mut().zip(both.counters) {
            counter.peak = both.stat().peak;
        }
    }

    /// Adds an amount that another statistic has already counted as an increase.
    pub(super) fn add(&mut self, kind: PoolKind, amount: u64) {
        let counter = self.counter(kind);
        counter.current = counter.current.wrapping_add(amount.cast_signed());
    }

    /// Whether a figure is not zero.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        let [small, large] = &self.counters;
        small.current | large.current != 0
    }

    fn note_peak(&mut self) {
        self.peak = self.peak.max(self.current());
        for counter in &mut self.counters {
            counter.peak = counter.peak.max(counter.current);
        }
    }

    #[inline]
    fn current(&self) -> i64 {
        let [small, large] = &self.counters;
        small.current.wrapping_add(large.current)
    }

    #[inline]
    fn counter(&mut self, kind: PoolKind) -> &mut Counter {
        &mut self.counters[kind as usize]
    }
}

#[cfg(test)]
mod tests;
