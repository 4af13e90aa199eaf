//! The time of a walk on a machine that does other things too.
//!
//! Other programs and interrupts only add time, so the shortest of several times is the closest to the allocator's own
//! (Chen and Revels, *Robust benchmarking in noisy environments*, 2016). On a busy machine a walk of 10 ms is nearly
//! always interrupted, but each part of 0.1 ms sometimes is not. So the shortest time of each part is kept.
//!
//! Some disturbances last for seconds: a lower clock, or a program of another virtual machine on the same core. They
//! slow the [`Yardstick`] too, so it runs each part in turn with the allocator, and the result is the ratio of the two
//! times.

use std::time::{Duration, Instant};

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::error::Error;

use crate::timing::walk::Walk;
use crate::timing::yardstick::Yardstick;

/// Operations in a part. They take about 0.1 ms, and reading the clock less than a thousandth of that.
const OPERATIONS: usize = 1000;

/// The shortest times of each part of a walk, over several walks.
#[derive(Clone, Debug)]
pub struct Fastest<'a> {
    walk: &'a Walk,
    allocator: Vec<Duration>,
    yardstick: Vec<Duration>,
    /// Frees all of its memory in a walk, as the allocator does.
    yard: Yardstick,
}

impl<'a> Fastest<'a> {
    /// No times yet.
    #[must_use]
    pub fn of(walk: &'a Walk) -> Self {
        let parts = walk.parts(OPERATIONS).count();
        Self {
            walk,
            // The device completes the walk in a part of its own.
            allocator: vec![Duration::MAX; parts + 1],
            yardstick: vec![Duration::MAX; parts],
            yard: Yardstick::new(walk.slots().len()),
        }
    }

    /// Runs the walk once more. `settle` waits until the device has completed it.
    ///
    /// # Errors
    /// As [`Walk::run`], and those of `settle`.
    pub fn run<A: Allocator + ?Sized>(
        &mut self,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
        settle: impl FnOnce(&mut A) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (settled, shortest) = self.allocator.split_last_mut().expect("new adds it");
        let both = shortest.iter_mut().zip(&mut self.yardstick);
        for (part, (allocating, measuring)) in self.walk.parts(OPERATIONS).zip(both) {
            keep_shortest(allocating, || part.run(allocator, slots))?;
            keep_shortest(measuring, || part.run_yardstick(&mut self.yard));
        }
        keep_shortest(settled, || settle(allocator))
    }

    /// The time of a walk: the sum over its parts.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.allocator.iter().sum()
    }

    /// The time that the yardstick needs for a walk.
    #[must_use]
    pub fn yardstick(&self) -> Duration {
        self.yardstick.iter().sum()
    }

    /// The time of a walk, divided by that of the yardstick.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.total().div_duration_f64(self.yardstick())
    }
}

fn keep_shortest<T>(shortest: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    *shortest = begun.elapsed().min(*shortest);
    result
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::PyTorch;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::settings::Settings;

    use super::*;
    use crate::timing::shapes;

    #[test]
    fn more_walks_only_shorten_parts_and_all_of_a_walk_is_timed() {
        let shape = shapes::find("hot_4KiB", None).unwrap().unwrap();
        let walk = Walk::prepare(&*shape).unwrap();
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
        let mut allocator = PyTorch::new(device, Settings::default());
        let mut slots = walk.slots();
        let mut fastest = Fastest::of(&walk);
        let found = OPERATIONS * fastest.yardstick.len();
        assert_eq!(found, 2 * walk.pairs() as usize);
        let mut settled = 0;
        for walks in 1..=5 {
            let before = fastest.clone();
            fastest
                .run(&mut allocator, &mut slots, |_| {
                    settled += 1;
                    Ok(())
                })
                .unwrap();
            let shorter = |now: &[Duration], before: &[Duration]| {
                now.iter().zip(before).all(|(now, before)| now <= before)
            };
            assert!(shorter(&fastest.allocator, &before.allocator));
            assert!(shorter(&fastest.yardstick, &before.yardstick));
            let times = fastest.allocator.iter().chain(&fastest.yardstick);
            assert!(times.clone().all(|&time| time < Duration::MAX));
            assert_eq!(
                allocator.stats().allocation.all().allocated as u64,
                walks * walk.pairs()
            );
        }
        assert_eq!(settled, 5);
        fastest.allocator.fill(Duration::from_millis(3));
        fastest.yardstick.fill(Duration::from_millis(2));
        assert_eq!(fastest.ratio(), 9.0 / 4.0);
    }
}
