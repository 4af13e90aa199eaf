//! Driver calls in the second half of a workload, when a program has become steady.

use coalesce_alloc::driver::calls::{CallCounts, CallKind};

/// The calls that count: those that change memory or mappings, or wait. Recording, querying and awaiting an event on a
/// stream neither take memory nor stop the host.
pub const COUNTED: [CallKind; 12] = [
    CallKind::Malloc,
    CallKind::Free,
    CallKind::Reserve,
    CallKind::FreeAddress,
    CallKind::Create,
    CallKind::Release,
    CallKind::Map,
    CallKind::SetAccess,
    CallKind::Unmap,
    CallKind::SynchronizeEvent,
    CallKind::SynchronizeStream,
    CallKind::SynchronizeDevice,
];

/// The most points to keep.
const MOST: usize = 1 << 16;

/// Driver calls and the allocations in which they were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LateCalls {
    /// Successful requests.
    pub allocations: u64,
    /// Calls of the kinds in [`COUNTED`], failed ones included.
    pub calls: u64,
}

impl LateCalls {
    /// Calls per thousand allocations; none without allocations.
    #[must_use]
    pub fn per_1000(&self) -> Option<f64> {
        (self.allocations > 0).then(|| self.calls as f64 / self.allocations as f64 * 1000.0)
    }
}

/// Counts the calls in the second half of a replay, whose length is not known in advance.
///
/// It notes how many calls were made when an allocation was served: of every allocation as long as there are few, then of
/// every second, every fourth and so on. So the second half may begin up to 1/32768 of the allocations too early.
#[derive(Clone, Debug)]
pub struct LateCount {
    /// Both counts, from their beginnings.
    points: Vec<LateCalls>,
    /// Allocations from one point to the next.
    stride: u64,
}

impl Default for LateCount {
    fn default() -> Self {
        Self {
            points: vec![LateCalls::default()],
            stride: 1,
        }
    }
}

impl LateCount {
    /// Takes the number of allocations and the driver's calls so far. To be called after each operation.
    pub fn after(&mut self, allocations: u64, counts: &CallCounts) {
        let last = self.points.last().map_or(0, |point| point.allocations);
        if allocations < last.saturating_add(self.stride) {
            return;
        }
        if self.points.len() == MOST {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
        self.points.push(LateCalls {
            allocations,
            calls: counted(counts),
        });
    }

    /// The calls after half of the allocations was served, up to the end of the replay with these totals.
    #[must_use]
    pub fn of(&self, allocations: u64, counts: &CallCounts) -> LateCalls {
        let middle = allocations.div_ceil(2);
        let first = self
            .points
            .partition_point(|point| point.allocations <= middle);
        let begin = first.checked_sub(1).and_then(|at| self.points.get(at));
        let begin = begin.copied().unwrap_or_default();
        LateCalls {
            allocations: allocations.saturating_sub(begin.allocations),
            calls: counted(counts).saturating_sub(begin.calls),
        }
    }
}

/// The number of calls that count.
fn counted(counts: &CallCounts) -> u64 {
    COUNTED.iter().map(|&kind| counts.of(kind)).sum()
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::driver::{Driver, StreamId};

    use super::*;

    /// A program that makes `early` calls in each allocation of its first half and `late` in the others.
    fn late_calls(allocations: u64, early: u64, late: u64) -> LateCalls {
        let mut device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
        let mut count = LateCount::default();
        for number in 1..=allocations {
            let calls = if number <= allocations.div_ceil(2) {
                early
            } else {
                late
            };
            for _ in 0..calls {
                device.synchronize_stream(StreamId::DEFAULT).unwrap();
            }
            // Does not count.
            device.memory_info().unwrap();
            count.after(number, device.counts());
        }
        count.of(allocations, device.counts())
    }

    #[test]
    fn only_calls_of_the_second_half_count() {
        assert_eq!(late_calls(0, 1, 1).per_1000(), None);
        for (allocations, half) in [(1, 0), (2, 1), (9, 4), (1000, 500)] {
            let late = late_calls(allocations, 3, 2);
            let expected = LateCalls {
                allocations: half,
                calls: 2 * half,
            };
            assert_eq!(late, expected);
        }
        assert_eq!(late_calls(1000, 3, 2).per_1000(), Some(2000.0));
        assert_eq!(late_calls(1000, 5, 0).per_1000(), Some(0.0));
    }

    #[test]
    fn long_programs_need_few_points_and_lose_little() {
        let allocations = 5 * MOST as u64 + 3;
        let late = late_calls(allocations, 0, 1);
        let half = allocations / 2;
        let early = late.allocations - half;
        assert!(early <= allocations / 32_768 + 1, "{early}");
        assert_eq!(late.calls, half);
    }
}
