//! Finds the minimum memory of settings.

use std::collections::BTreeSet;

use coalesce_alloc::driver::GRANULARITY;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::{Bracket, fails_above};

use super::tried::{MinimumMemory, TriedSettings};
use super::{PRESENT, Search, tolerance};
use crate::advise::request::Aim;
use crate::advise::simulator::{PYTORCH, Simulator};

impl Search<'_> {
    /// Finds the minimum memory of some tried settings, by index, until the deadline.
    pub fn complete(&mut self, which: &BTreeSet<usize>, deadline: Deadline) {
        let simulator = self.simulator.until(deadline);
        let which: Vec<usize> = which.iter().copied().collect();
        let found = simulator.jobs.map(&which, |&index| {
            let mut tried = self.tried.get(index)?.clone();
            if deadline.has_passed() || tried.error.is_some() {
                return None;
            }
            if let Err(error) = find(&mut tried, simulator) {
                tried.error = Some(format!("{error:#}"));
            }
            Some(tried)
        });
        for (index, found) in which.into_iter().zip(found) {
            if let (Some(tried), Some(found)) = (self.tried.get_mut(index), found) {
                self.extent.failed += u64::from(found.error.is_some());
                *tried = found;
            }
        }
    }

    /// Tests whether the current settings and those with the lowest minimum memory fail with more memory than
    /// that. Repeats this until the best settings have been tested.
    pub fn look_above(&mut self, deadline: Deadline) {
        let simulator = self.simulator.until(deadline);
        let mut next = Some(PRESENT);
        while let Some(tried) = next.and_then(|index| self.tried.get_mut(index)) {
            if let Some(minimum) = tried.minimum.known() {
                let fits = |bytes: u64| simulator.fits(PYTORCH, &tried.conf, bytes);
                let reserved = tried.with_room.peak_reserved_bytes;
                match fails_above(minimum, reserved, simulator.jobs, &fits) {
                    Ok(found) => tried.fails_above = found,
                    Err(_) if deadline.has_passed() => return,
                    Err(error) => {
                        tried.error = Some(format!("{error:#}"));
                        self.extent.failed += 1;
                    }
                }
            }
            tried.looked_above = true;
            let is_untested = |&index: &usize| {
                let tried = self.tried.get(index);
                tried.is_some_and(|tried| !tried.looked_above)
            };
            next = self.best(Aim::LeastCapacity).filter(is_untested);
        }
    }
}

/// Finds the minimum memory if it is lower than `bound` by more than the tolerance, or as much about it as the
/// simulator's deadline allows.
pub(super) fn find_below(
    bound: u64,
    tried: &mut TriedSettings,
    simulator: Simulator<'_>,
) -> anyhow::Result<()> {
    let lower_bound = simulator.demand.lower_bound_bytes;
    let target = bound.saturating_sub(tolerance(lower_bound));
    let target = target / GRANULARITY * GRANULARITY;
    if target < lower_bound {
        tried.minimum = MinimumMemory::AtLeast(lower_bound);
        return Ok(());
    }
    match simulator.fits(PYTORCH, &tried.conf, target) {
        Ok(true) => narrow(tried, simulator, Bracket::new(lower_bound, target)),
        Ok(false) => {
            tried.minimum = MinimumMemory::AtLeast(target);
            Ok(())
        }
        Err(_) if simulator.deadline.has_passed() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Finds the minimum memory, or as much about it as the simulator's deadline allows.
pub(super) fn find(tried: &mut TriedSettings, simulator: Simulator<'_>) -> anyhow::Result<()> {
    let MinimumMemory::AtLeast(floor) = tried.minimum else {
        return Ok(());
    };
    let fits = |bytes: u64| simulator.fits(PYTORCH, &tried.conf, bytes);
    let reserved = tried.with_room.peak_reserved_bytes;
    let mut bracket = Bracket::new(simulator.demand.lower_bound_bytes, reserved);
    match bracket.widen(&fits) {
        Ok(()) => {
            bracket.learn(floor.saturating_sub(GRANULARITY), false);
            narrow(tried, simulator, bracket)
        }
        Err(_) if simulator.deadline.has_passed() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Closes the bracket of the minimum memory, as far as the simulator's deadline allows. What is known to the
/// tolerance by then is good enough.
fn narrow(
    tried: &mut TriedSettings,
    simulator: Simulator<'_>,
    mut bracket: Bracket,
) -> anyhow::Result<()> {
    let closed = bracket.close(&|bytes| simulator.fits(PYTORCH, &tried.conf, bytes));
    let left = bracket.suffices() - bracket.at_least();
    tried.minimum = match closed {
        Err(error) if !simulator.deadline.has_passed() => return Err(error),
        Err(_) if left > tolerance(simulator.demand.lower_bound_bytes) => {
            MinimumMemory::AtLeast(bracket.at_least())
        }
        _ => MinimumMemory::Exactly(bracket.suffices()),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::advise::tests::{tried, with_search};
    use crate::diagnose::testing::MIB;

    /// What is known of the minimum if time runs out when it lies between these MiB.
    fn known(at_least: u64, suffices: u64) -> MinimumMemory {
        with_search(
            |request| request,
            Vec::new(),
            |_, search| {
                let over = Deadline::after(Some(Duration::ZERO));
                let mut settings = tried("", 0, 900, 1);
                let bracket = Bracket::new(at_least * MIB, suffices * MIB);
                narrow(&mut settings, search.simulator.until(over), bracket).unwrap();
                settings.minimum
            },
        )
    }

    /// Half a percent of 600 MiB makes no difference, but less than two pages do not exist.
    #[test]
    fn what_is_known_to_the_tolerance_is_good_enough() {
        assert_eq!(known(600, 602), MinimumMemory::Exactly(602 * MIB));
        assert_eq!(known(600, 604), MinimumMemory::AtLeast(600 * MIB));
    }

    #[test]
    fn a_minimum_below_a_bound() {
        let found = |bound: u64, needs: u64| {
            with_search(
                |request| request,
                Vec::new(),
                |_, search| {
                    let mut settings = tried("", needs, 900, 1);
                    find_below(bound * MIB, &mut settings, search.simulator).unwrap();
                    settings.minimum
                },
            )
        };
        // The workload needs 600 MiB; the tolerance is 3 MiB, and pages have 2.
        assert_eq!(found(900, 0), MinimumMemory::Exactly(600 * MIB));
        assert_eq!(found(603, 0), MinimumMemory::Exactly(600 * MIB));
        assert_eq!(found(602, 700), MinimumMemory::AtLeast(600 * MIB));
    }
}
