//! The minimum device memory of a workload.
//!
//! **Minimum device memory**: the smallest capacity, to a page of 2 MiB, on which the workload completes without a
//! failed request. Found by bisection between the peak requested, a lower bound, and the peak reserved on a roomy
//! device.
//!
//! Bisection assumes that a workload that fits on a device also fits on every larger one. This is almost true: with more
//! memory an allocator caches more, in different places, and can fail where it did not with less. So some larger devices
//! are tried too, and the largest on which the workload fails is reported.

use anyhow::ensure;
use coalesce_alloc::driver::GRANULARITY;
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::{Outcome, Step};

use crate::measure::capacity::ROOMY;
use crate::measure::cell::Cell;
use crate::measure::parallel::Jobs;

/// The result of the search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Least {
    /// Minimum device memory in bytes, a whole number of pages.
    pub bytes: u64,
    /// Bytes of the largest device tried above the minimum on which the workload fails.
    pub fails_above: Option<u64>,
}

/// Distances above the minimum to try, in pages.
const CLOSE: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];
/// Number of tries at equal distances between the minimum and the roomy device.
const FAR: u64 = 8;
/// Bytes of a device larger than any real one.
pub const LARGEST: u64 = 1 << 50;

/// Bytes of a roomy device for a workload: so many times its demand that neither fragmentation nor limits in
/// fractions of the device matter. Allocators that reserve addresses in proportion to the device can do so for
/// millions of segments.
#[must_use]
pub fn roomy(lower_bound: u64) -> u64 {
    const TIMES: u64 = 64;
    let several = lower_bound.saturating_mul(TIMES).min(LARGEST);
    several.next_power_of_two().clamp(ROOMY, LARGEST)
}

/// Finds the minimum device memory for a cell.
///
/// # Errors
/// As [`Cell::run`]; or if requests fail on any device.
pub fn least(cell: &Cell<'_>) -> anyhow::Result<Least> {
    let roomy = cell.on(LARGEST).measure(&mut ())?;
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
        fails_above: fails_above(bracket.suffices(), with_room, Jobs::ONE, &fits)?,
    })
}

/// A capacity that is too small and one that suffices, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bracket {
    low: u64,
    /// More than `low`.
    high: u64,
}

impl Bracket {
    /// The bracket between the peak requested and the peak reserved on a roomy device, in bytes. Less than the former
    /// cannot suffice; the latter should.
    #[must_use]
    pub fn new(lower_bound: u64, reserved_on_roomy: u64) -> Self {
        let low = pages(lower_bound).saturating_sub(1);
        Self {
            low,
            high: pages(reserved_on_roomy).max(low + 1),
        }
    }

    /// The smallest capacity known to suffice, in bytes.
    #[must_use]
    pub fn suffices(&self) -> u64 {
        self.high * GRANULARITY
    }

    /// The smallest capacity not known to be too small, in bytes.
    #[must_use]
    pub fn at_least(&self) -> u64 {
        (self.low + 1) * GRANULARITY
    }

    /// Raises the upper capacity until it suffices: some settings behave differently on a smaller device. `fits` tells
    /// whether a number of bytes suffices.
    ///
    /// # Errors
    /// Those of `fits`; or if no device is large enough.
    pub fn widen(&mut self, fits: &dyn Fn(u64) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        while !fits(self.suffices())? {
            self.low = self.high;
            self.high += self.high.div_ceil(4);
            ensure!(self.high < pages(LARGEST), "no device is large enough");
        }
        Ok(())
    }

    /// Narrows the bracket by whether a capacity suffices.
    pub fn learn(&mut self, bytes: u64, fits: bool) {
        if fits {
            self.high = pages(bytes).clamp(self.low + 1, self.high);
        } else {
            // The partial last page may suffice once it is whole.
            self.low = (bytes / GRANULARITY).clamp(self.low, self.high - 1);
        }
    }

    /// Whether it is unknown if the given bytes suffice.
    #[must_use]
    pub fn contains(&self, bytes: u64) -> bool {
        self.low < pages(bytes) && pages(bytes) < self.high
    }

    /// Bisects until the capacities differ by one page.
    ///
    /// # Errors
    /// Those of `fits`.
    pub fn close(&mut self, fits: &dyn Fn(u64) -> anyhow::Result<bool>) -> anyhow::Result<()> {
        self.close_to(GRANULARITY, fits)
    }

    /// Bisects until the capacities differ by at most the given bytes, or by one page.
    ///
    /// # Errors
    /// Those of `fits`.
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

/// Tries capacities near `least` and up to `with_room`, several at a time. Returns the largest that does not suffice, in
/// bytes.
///
/// # Errors
/// Those of `fits`.
pub fn fails_above(
    least: u64,
    with_room: u64,
    jobs: Jobs,
    fits: &(dyn Fn(u64) -> anyhow::Result<bool> + Sync),
) -> anyhow::Result<Option<u64>> {
    let (least, with_room) = (pages(least), pages(with_room).max(pages(least)));
    let far = (1..=FAR).map(|step| least + (with_room - least) * step / FAR);
    let close = CLOSE.into_iter().map(|more| least + more);
    let mut above: Vec<u64> = close.chain(far).filter(|&above| above > least).collect();
    above.sort_unstable();
    above.dedup();
    // The largest first, so that the first failure ends the search.
    above.reverse();
    for few in above.chunks(jobs.threads(above.len())) {
        let found = jobs.map(few, |&pages| fits(pages * GRANULARITY));
        for (&pages, fits) in few.iter().zip(found) {
            if !fits? {
                return Ok(Some(pages * GRANULARITY));
            }
        }
    }
    Ok(None)
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(GRANULARITY)
}

/// Whether the workload completes on a device of `capacity` bytes. The replay ends at the first failed request.
///
/// # Errors
/// As [`Cell::run`].
pub fn fits(cell: &Cell<'_>, capacity: u64) -> anyhow::Result<bool> {
    let mut failed = false;
    let mut watch = |step: &Step<'_>| {
        failed |= step.outcome == Outcome::OutOfMemory;
        if failed {
            return Err(WorkloadError::Stopped("out of memory".to_owned()));
        }
        Ok(())
    };
    match cell.on(capacity).run(&mut watch) {
        Ok(_) => Ok(true),
        Err(_) if failed => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::path::Path;
    use std::sync::Mutex;

    use coalesce_workloads::demand::Demand;
    use coalesce_workloads::op::Op;
    use coalesce_workloads::presets;
    use coalesce_workloads::written::listed;
    use toml::Table;

    use super::*;
    use crate::measure::profile::{PUBLISHED, Profile};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_bracket_closes_on_the_minimum_whatever_was_learnt_before() {
        let fits = |bytes: u64| anyhow::Ok(bytes >= 300 * MIB);
        for known in [0, 100 * MIB, 299 * MIB, 300 * MIB, 999 * MIB, 5000 * MIB] {
            let mut bracket = Bracket::new(100 * MIB, 1000 * MIB);
            bracket.learn(known, known >= 300 * MIB);
            bracket.close(&fits).unwrap();
            assert_eq!(bracket.suffices(), 300 * MIB, "{known}");
            assert!(!bracket.contains(300 * MIB));
        }
    }

    #[test]
    fn a_roomy_device_is_a_power_of_two_of_64_times_the_demand() {
        for (demand, roomy_bytes) in [
            (0, ROOMY),
            (16 << 30, ROOMY),
            ((16 << 30) + 1, 2 * ROOMY),
            (100 << 30, 8 * ROOMY),
            (16 << 40, LARGEST),
            (u64::MAX, LARGEST),
        ] {
            assert_eq!(roomy(demand), roomy_bytes, "{demand}");
        }
    }

    #[test]
    fn the_largest_failing_capacity_is_found() {
        let holes = |bytes: u64| anyhow::Ok(bytes != 104 * MIB && bytes != 102 * MIB);
        for jobs in [Jobs::ONE, Jobs::of(NonZeroUsize::new(3))] {
            let found = fails_above(100 * MIB, 200 * MIB, jobs, &holes).unwrap();
            assert_eq!(found, Some(104 * MIB));
        }
        let all = |_| anyhow::Ok(true);
        let shown = fails_above(100 * MIB, 200 * MIB, Jobs::ONE, &all).unwrap();
        assert_eq!(shown, None);
    }

    #[test]
    fn a_bracket_begins_a_page_below_the_demand() {
        let of = |lower, reserved| {
            let bracket = Bracket::new(lower, reserved);
            (bracket.low, bracket.high)
        };
        assert_eq!(of(0, 0), (0, 1));
        assert_eq!(of(2 * MIB, 2 * MIB), (0, 1));
        assert_eq!(of(2 * MIB + 1, 9 * MIB), (1, 5));
        assert_eq!(of(8 * MIB, 2 * MIB), (3, 4));
    }

    #[test]
    fn what_is_learnt_stays_within_the_bracket() {
        let page = GRANULARITY;
        let learnt = |bytes, fits| {
            let mut bracket = Bracket { low: 10, high: 20 };
            bracket.learn(bytes, fits);
            (bracket.low, bracket.high)
        };
        assert_eq!(learnt(30 * page, true), (10, 20));
        assert_eq!(learnt(15 * page - 1, true), (10, 15));
        assert_eq!(learnt(15 * page, true), (10, 15));
        assert_eq!(learnt(10 * page, true), (10, 11));
        assert_eq!(learnt(0, false), (10, 20));
        assert_eq!(learnt(16 * page - 1, false), (15, 20));
        assert_eq!(learnt(30 * page, false), (19, 20));
        let bracket = Bracket { low: 10, high: 20 };
        let unknown = [10 * page, 10 * page + 1, 19 * page, 19 * page + 1];
        let unknown = unknown.map(|bytes| bracket.contains(bytes));
        assert_eq!(unknown, [false, true, true, false]);
        let found = (bracket.at_least(), bracket.suffices());
        assert_eq!(found, (11 * page, 20 * page));
    }

    #[test]
    fn a_bracket_is_widened_by_a_quarter_and_halved() {
        let from = |pages: u64| move |bytes: u64| anyhow::Ok(bytes >= pages * GRANULARITY);
        let mut bracket = Bracket { low: 8, high: 10 };
        bracket.widen(&from(17)).unwrap();
        assert_eq!(bracket, Bracket { low: 13, high: 17 });
        for (near, low, high) in [(10, 31, 37), (12, 25, 37), (1, 36, 37), (0, 36, 37)] {
            let mut bracket = Bracket { low: 0, high: 100 };
            bracket.close_to(near * GRANULARITY, &from(37)).unwrap();
            assert_eq!(bracket, Bracket { low, high }, "to {near} pages");
        }
        // A quarter more is as much as the largest device has, on which nothing is tried.
        let high = 429_496_729_u64;
        assert_eq!(high + high.div_ceil(4), pages(LARGEST));
        let none = |bytes: u64| {
            assert_eq!(bytes, high * GRANULARITY);
            anyhow::Ok(false)
        };
        let mut bracket = Bracket { low: 0, high };
        let error = bracket.widen(&none).unwrap_err();
        assert_eq!(error.to_string(), "no device is large enough");
    }

    #[test]
    fn larger_devices_are_tried_from_the_largest_down() {
        let tried = |with_room| {
            let tried = Mutex::new(Vec::new());
            let fits = |bytes| {
                tried.lock().unwrap().push(bytes / GRANULARITY);
                anyhow::Ok(true)
            };
            let found = fails_above(100 * MIB - 1, with_room, Jobs::ONE, &fits);
            assert_eq!(found.unwrap(), None);
            tried.into_inner().unwrap()
        };
        // 50 pages and up to 34 more, and between 50 and 100.
        let both = [
            100, 93, 87, 84, 81, 75, 71, 68, 63, 62, 58, 56, 55, 53, 52, 51,
        ];
        assert_eq!(tried(200 * MIB), both);
        assert_eq!(tried(0), [84, 71, 63, 58, 55, 53, 52, 51]);
    }

    #[test]
    fn errors_of_a_search_say_what_is_wrong() {
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let error = |bytes, policy| {
            let workload = listed("request", vec![Op::malloc(0, bytes)]);
            let cell = Cell {
                policy,
                ..Cell::new(&workload, &profile)
            };
            let fits = fits(&cell, 4 * MIB).map_err(|error| format!("{error:#}"));
            let least = least(&cell).map_err(|error| format!("{error:#}"));
            (fits, least)
        };
        let on_any = "request, default: requests fail on any device".to_owned();
        assert_eq!(error(LARGEST + 1, "pytorch"), (Ok(false), Err(on_any)));
        let (fits, least) = error(1, "nonsense");
        assert!(fits.is_err() && fits.unwrap_err() == least.unwrap_err());
        // The demand is not known here, so the search begins at 0.
        let one_page = Least {
            bytes: 2 * MIB,
            fails_above: None,
        };
        assert_eq!(error(1, "pytorch"), (Ok(true), Ok(one_page)));
    }

    #[test]
    fn the_minimum_device_memory_of_programs_is_as_recorded() {
        let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
        let mut found = Vec::new();
        for name in ["fragmentation_small", "fragmentation_article"] {
            let workload = presets::build(name, Table::new()).unwrap();
            for (policy, conf) in [
                ("pytorch", ""),
                ("pytorch", "expandable_segments:True"),
                ("bfc", ""),
                ("tlsf", ""),
            ] {
                let cell = Cell {
                    demand: Demand::of(&*workload).unwrap(),
                    policy,
                    conf,
                    ..Cell::new(&*workload, &profile)
                };
                let Least { bytes, fails_above } = least(&cell).unwrap();
                found.push((bytes >> 20, fails_above.map(|bytes| bytes >> 20)));
                assert!(fits(&cell, bytes).unwrap() && !fits(&cell, bytes - 2 * MIB).unwrap());
            }
        }
        let expected = [140, 138, 182, 172, 104, 120, 138, 128];
        assert_eq!(found, expected.map(|mib| (mib, None)));
    }
}
