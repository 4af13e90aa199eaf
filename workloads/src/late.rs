//! Driver calls in the second half of a workload, when a program has become steady.

use coalesce_alloc::driver::calls::{CallCounts, CallKind};

use crate::op::Op;

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

/// Driver calls and the part of a program in which they were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LateCalls {
    /// Its length: allocations, or steps.
    pub length: u64,
    /// Calls of the kinds in [`COUNTED`], failed ones included.
    pub calls: u64,
}

impl LateCalls {
    /// Calls per allocation or step; none if there are none.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (self.length > 0).then(|| self.calls as f64 / self.length as f64)
    }
}

/// Counts the calls in the second half of a replay, whose length is not known in advance.
///
/// It notes how many calls were made when an allocation was served or a step began: of each of them as long as there are
/// few, then of every second, every fourth and so on. So the second half may begin up to 1/32768 of the length too early.
#[derive(Clone, Debug)]
pub struct LateCount {
    /// Both counts, from their beginnings.
    points: Vec<LateCalls>,
    /// The length from one point to the next.
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
    /// Takes the length and the calls so far. To be called as the length grows.
    pub fn after(&mut self, length: u64, calls: u64) {
        let last = self.points.last().map_or(0, |point| point.length);
        if length < last.saturating_add(self.stride) {
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
        self.points.push(LateCalls { length, calls });
    }

    /// The calls of the second half, of a replay with these totals.
    #[must_use]
    pub fn of(&self, length: u64, calls: u64) -> LateCalls {
        let middle = length.div_ceil(2);
        let first = self.points.partition_point(|point| point.length <= middle);
        let begin = first
            .checked_sub(1)
            .and_then(|at| self.points.get(at))
            .copied()
            .unwrap_or_default();
        LateCalls {
            length: length.saturating_sub(begin.length),
            calls: calls.saturating_sub(begin.calls),
        }
    }
}

/// The number of calls of the kinds in [`COUNTED`].
#[must_use]
pub fn counted(counts: &CallCounts) -> u64 {
    COUNTED.iter().map(|&kind| counts.of(kind)).sum()
}

/// The steps of a replay and the driver calls in them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Steps {
    /// Steps that the program marked.
    pub steps: u64,
    /// The first step, from 1 on, from which on no calls were made; none if there were calls in the last step.
    pub quiet_from: Option<u64>,
    /// The second half of the steps.
    pub late: LateCalls,
}

/// Counts the calls in the steps of a program. A step begins at a mark such as `step 3` and ends at the next one, or at the
/// mark `end`.
#[derive(Clone, Debug, Default)]
pub struct StepCount {
    steps: u64,
    is_in_step: bool,
    /// Calls before the step.
    before: u64,
    /// Calls in the steps so far, without the present one.
    calls: u64,
    /// The last step with calls, from 1 on; 0 if there is none.
    last_with_calls: u64,
    late: LateCount,
}

impl StepCount {
    /// Takes an operation and the calls up to its end.
    pub fn after(&mut self, op: Op<'_>, calls: u64) {
        let Op::Mark { tag } = op else {
            return;
        };
        let phase = tag.split(' ').next();
        if !matches!(phase, Some("step" | "end")) {
            return;
        }
        self.end_step(calls);
        self.is_in_step = phase == Some("step");
        if self.is_in_step {
            self.before = calls;
            self.late.after(self.steps, self.calls);
            self.steps += 1;
        }
    }

    fn end_step(&mut self, calls: u64) {
        let made = calls - self.before;
        if self.is_in_step && made > 0 {
            self.calls += made;
            self.last_with_calls = self.steps;
        }
    }

    /// The steps of a replay with this many calls.
    #[must_use]
    pub fn finish(mut self, calls: u64) -> Steps {
        self.end_step(calls);
        Steps {
            steps: self.steps,
            quiet_from: (self.last_with_calls < self.steps).then_some(self.last_with_calls + 1),
            late: self.late.of(self.steps, self.calls),
        }
    }
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
            count.after(number, counted(device.counts()));
        }
        count.of(allocations, counted(device.counts()))
    }

    #[test]
    fn only_calls_of_the_second_half_count() {
        assert_eq!(late_calls(0, 1, 1).rate(), None);
        for (allocations, half) in [(1, 0), (2, 1), (9, 4), (1000, 500)] {
            let late = late_calls(allocations, 3, 2);
            let expected = LateCalls {
                length: half,
                calls: 2 * half,
            };
            assert_eq!(late, expected);
        }
        assert_eq!(late_calls(1000, 3, 2).rate(), Some(2.0));
        assert_eq!(late_calls(1000, 5, 0).rate(), Some(0.0));
    }

    /// The steps of a program that makes these calls in them, 7 before the first and 9 after the mark `end`.
    fn steps(calls: &[u64]) -> Steps {
        let mut count = StepCount::default();
        let mut made = 7;
        for (number, of_step) in calls.iter().enumerate() {
            let tag = format!("step {number}");
            count.after(Op::Mark { tag: &tag }, made);
            count.after(Op::EmptyCache, made + of_step / 2);
            made += of_step;
            count.after(Op::Mark { tag: "forward" }, made);
        }
        count.after(Op::Mark { tag: "end" }, made);
        count.finish(made + 9)
    }

    #[test]
    fn steps_are_counted_apart_from_what_comes_before_and_after() {
        assert_eq!(steps(&[]), Steps::default());
        let Steps {
            steps: number,
            quiet_from,
            late,
        } = steps(&[50, 3, 0, 4, 0]);
        assert_eq!((number, quiet_from), (5, Some(5)));
        assert_eq!(
            late,
            LateCalls {
                length: 2,
                calls: 4
            }
        );
        assert_eq!(steps(&[5, 0, 0]).quiet_from, Some(2));
        assert_eq!(steps(&[0]).quiet_from, Some(1));
        assert_eq!(steps(&[0, 1]).quiet_from, None);
    }

    #[test]
    fn points_are_equally_far_apart() {
        let mut count = LateCount::default();
        for length in 1..=5 * MOST as u64 {
            count.after(length, 3 * length);
        }
        assert!(count.points.len() > MOST / 2 && count.points.len() <= MOST);
        for (number, point) in (0..).zip(&count.points) {
            let length = number * count.stride;
            let calls = 3 * length;
            assert_eq!(*point, LateCalls { length, calls });
        }
    }

    #[test]
    fn long_programs_need_few_points_and_lose_little() {
        let allocations = 5 * MOST as u64 + 3;
        let late = late_calls(allocations, 0, 1);
        let half = allocations / 2;
        let early = late.length - half;
        assert!(early <= allocations / 32_768 + 1, "{early}");
        assert_eq!(late.calls, half);
    }
}
