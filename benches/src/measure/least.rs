//! The least memory that a workload can live in.
//!
//! **Least capacity**: the smallest device on which the workload runs to its end without a request that
//! fails, to a page of 2 MiB. Found by bisection, between what is asked for at the peak, with which
//! nobody can do with less, and what is held where there is room for everything.
//!
//! Bisection is right if whatever fits into a device fits into every larger one. That does not quite
//! hold: with more room an allocator caches more, in other places, and may fail where it did not with
//! less. So the devices above the one that was found are tried, too, some close and some far, and the
//! largest that fails is told.

use anyhow::ensure;
use coalesce_alloc::driver::GRANULARITY;
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::{Observer, Outcome, Step};

use crate::measure::cell::Cell;

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Least {
    /// Bytes of the smallest device, a whole number of pages.
    pub bytes: u64,
    /// Bytes of the largest of the devices tried above it on which it fails all the same.
    pub fails_above: Option<u64>,
}

/// Pages above the least at which it is tried again.
const CLOSE: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
/// Tries at equal distances from there up to where there is room for everything.
const FAR: u64 = 8;
/// A device larger than any that there will be.
pub const LARGEST: u64 = 1 << 50;

/// The least capacity for a cell.
///
/// # Errors
/// As [`Cell::run`]; or if it fails even with room for everything.
pub fn least(cell: &Cell<'_>) -> anyhow::Result<Least> {
    let roomy = cell.measure(LARGEST, &mut ())?;
    ensure!(
        roomy.ooms == 0,
        "{}, {}: requests fail on any device",
        roomy.workload,
        roomy.setting
    );
    let fits = |bytes: u64| fits(cell, bytes);
    let mut bracket = Bracket::new(cell.demand.lower_bound_bytes, roomy.peak_reserved_bytes);
    bracket.widen(&fits)?;
    let with_room = bracket.suffices();
    bracket.close(&fits)?;
    Ok(Least {
        bytes: bracket.suffices(),
        fails_above: fails_above(bracket.suffices(), with_room, &fits)?,
    })
}

/// Two devices, of which one is too small and the other is not. In pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bracket {
    low: u64,
    /// More than `low`.
    high: u64,
}

impl Bracket {
    /// Fewer pages than are asked for at the peak cannot do; those that are held where there is room
    /// for everything should. In bytes.
    #[must_use]
    pub fn new(lower_bound: u64, held_with_room: u64) -> Self {
        let low = pages(lower_bound).saturating_sub(1);
        Self {
            low,
            high: pages(held_with_room).max(low + 1),
        }
    }

    /// Bytes that suffice, as far as is known.
    #[must_use]
    pub fn suffices(&self) -> u64 {
        self.high * GRANULARITY
    }

    /// Makes the larger device larger until it suffices: some settings mean another thing on a smaller
    /// device. `fits` says it of a number of bytes.
    ///
    /// # Errors
    /// That of `fits`; or if no device is large enough.
    pub fn widen(&mut self, fits: &dyn Fn(u64) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        while !fits(self.suffices())? {
            self.low = self.high;
            self.high += self.high.div_ceil(4);
            ensure!(self.high < pages(LARGEST), "no device is large enough");
        }
        Ok(())
    }

    /// Takes note of whether a device of so many bytes suffices.
    pub fn learn(&mut self, bytes: u64, fits: bool) {
        if fits {
            self.high = pages(bytes).clamp(self.low + 1, self.high);
        } else {
            // A page that was there in part may suffice as a whole.
            self.low = (bytes / GRANULARITY).clamp(self.low, self.high - 1);
        }
    }

    /// Whether it is not known yet if so many bytes suffice.
    #[must_use]
    pub fn contains(&self, bytes: u64) -> bool {
        self.low < pages(bytes) && pages(bytes) < self.high
    }

    /// Bisects until the larger device has one page more than the smaller.
    ///
    /// # Errors
    /// That of `fits`.
    pub fn close(&mut self, fits: &dyn Fn(u64) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        self.close_to(GRANULARITY, fits)
    }

    /// Bisects until the larger device has at most so many bytes more than the smaller, or one page.
    ///
    /// # Errors
    /// That of `fits`.
    pub fn close_to(
        &mut self,
        bytes: u64,
        fits: &dyn Fn(u64) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let near = (bytes / GRANULARITY).max(1);
        while self.high - self.low > near {
            let middle = self.low + (self.high - self.low) / 2;
            if fits(middle * GRANULARITY)? {
                self.high = middle;
            } else {
                self.low = middle;
            }
        }
        Ok(())
    }
}

/// The largest of some devices larger than `least` that does not suffice, in bytes; those that are tried
/// are near it, or up to `with_room`.
///
/// # Errors
/// That of `fits`.
pub fn fails_above(
    least: u64,
    with_room: u64,
    fits: &dyn Fn(u64) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<u64>> {
    let (least, with_room) = (pages(least), pages(with_room).max(pages(least)));
    let far = (1..=FAR).map(|step| least + (with_room - least) * step / FAR);
    let close = CLOSE.into_iter().map(|more| least + more);
    let mut above: Vec<u64> = close.chain(far).filter(|&above| above > least).collect();
    above.sort_unstable();
    above.dedup();
    // The largest first: what is smaller than one that fails need not be tried.
    while let Some(pages) = above.pop() {
        if !fits(pages * GRANULARITY)? {
            return Ok(Some(pages * GRANULARITY));
        }
    }
    Ok(None)
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(GRANULARITY)
}

/// Whether the workload runs to its end on a device of `capacity` bytes. A program ends at the first
/// failure, and so does the replay.
///
/// # Errors
/// As [`Cell::run`].
pub fn fits(cell: &Cell<'_>, capacity: u64) -> anyhow::Result<bool> {
    let mut watch = UntilFailure { failed: false };
    match cell.run(capacity, &mut watch) {
        Ok(_) => Ok(true),
        Err(_) if watch.failed => Ok(false),
        Err(error) => Err(error),
    }
}

struct UntilFailure {
    failed: bool,
}

impl Observer for UntilFailure {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if step.outcome == Outcome::OutOfMemory {
            self.failed = true;
            return Err(WorkloadError::Stopped("out of memory".to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_bracket_closes_on_the_least_whatever_is_learnt_before() {
        let fits = |bytes: u64| anyhow::Ok(bytes >= 300 * MIB);
        for known in [0, 100 * MIB, 299 * MIB, 300 * MIB, 999 * MIB, 5000 * MIB] {
            let mut bracket = Bracket::new(100 * MIB, 1000 * MIB);
            bracket.learn(known, known >= 300 * MIB);
            bracket.close(&fits).unwrap();
            assert_eq!(bracket.suffices(), 300 * MIB, "{known}");
            assert!(!bracket.contains(300 * MIB));
        }
        let mut bracket = Bracket::new(100 * MIB, 200 * MIB);
        bracket.widen(&fits).unwrap();
        assert!(bracket.suffices() >= 300 * MIB && bracket.contains(300 * MIB - 1));
        bracket.close_to(20 * MIB, &fits).unwrap();
        assert!((300 * MIB..=320 * MIB).contains(&bracket.suffices()));
    }

    #[test]
    fn the_largest_that_fails_is_told() {
        let holes = |bytes: u64| anyhow::Ok(bytes != 104 * MIB && bytes != 102 * MIB);
        let found = fails_above(100 * MIB, 200 * MIB, &holes).unwrap();
        assert_eq!(found, Some(104 * MIB));
        let all = |_| anyhow::Ok(true);
        assert_eq!(fails_above(100 * MIB, 200 * MIB, &all).unwrap(), None);
    }
}
