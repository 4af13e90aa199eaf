//! The time of a walk on a machine that does other things too.
//!
//! Other programs and interrupts only add time, so the shortest of several times is the closest to the allocator's own
//! (Chen and Revels, *Robust benchmarking in noisy environments*, 2016). On a busy machine a walk of 10 ms is nearly
//! always interrupted, but each part of 0.1 ms sometimes is not. So the shortest time of each part is kept.

use std::time::{Duration, Instant};

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::error::Error;

use crate::timing::walk::Walk;

/// Operations in a part. They take about 0.1 ms, and reading the clock less than a thousandth of that.
const OPERATIONS: usize = 1000;

/// The shortest time of each part of a walk, over several walks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fastest {
    parts: Vec<Duration>,
}

impl Fastest {
    /// Runs the walk once more. `settle` waits until the device has completed it, as a part of its own.
    ///
    /// # Errors
    /// As [`Walk::run`], and those of `settle`.
    pub fn run<A: Allocator + ?Sized>(
        &mut self,
        walk: &Walk,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
        settle: impl FnOnce(&mut A) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut parts, mut begun) = (0, Instant::now());
        let mut end_part = || {
            let time = begun.elapsed();
            match self.parts.get_mut(parts) {
                Some(shortest) => *shortest = time.min(*shortest),
                None => self.parts.push(time),
            }
            (parts, begun) = (parts + 1, Instant::now());
        };
        walk.run_in_parts(OPERATIONS, allocator, slots, &mut end_part)?;
        settle(allocator)?;
        end_part();
        Ok(())
    }

    /// The time of a walk: the sum over its parts.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.parts.iter().sum()
    }
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
        let mut fastest = Fastest::default();
        let mut settled = 0;
        let mut before = Vec::new();
        for walks in 1..=5 {
            fastest
                .run(&walk, &mut allocator, &mut slots, |_| {
                    settled += 1;
                    Ok(())
                })
                .unwrap();
            let operations = 2 * walk.pairs() as usize;
            assert_eq!(fastest.parts.len(), operations.div_ceil(OPERATIONS) + 1);
            assert!(
                fastest
                    .parts
                    .iter()
                    .zip(&before)
                    .all(|(now, before)| now <= before)
            );
            assert_eq!(fastest.total(), fastest.parts.iter().sum());
            assert_eq!(
                allocator.stats().allocation.all.allocated as u64,
                walks * walk.pairs()
            );
            before.clone_from(&fastest.parts);
        }
        assert_eq!(settled, 5);
    }
}
