//! Memory over time, in few enough points to plot.

use coalesce_alloc::stats::StatArray;
use coalesce_workloads::op::WorkloadError;
use coalesce_workloads::replay::{Observer, Step};

/// Peak memory over a range of events, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The last event of the range.
    pub event: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Allocated bytes.
    pub allocated: u64,
    /// Reserved bytes.
    pub reserved: u64,
}

/// Collects points during a replay of any length.
#[derive(Debug)]
pub struct Timeline {
    /// Events per point. Doubles when there are too many points.
    width: u64,
    points: Vec<Point>,
}

impl Timeline {
    /// Maximum number of points; half as many remain after joining. Even, so that points can be joined in pairs.
    const MOST: usize = 1200;

    /// The points, in order.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    fn join_pairs(&mut self) {
        self.width *= 2;
        let pairs = self.points.chunks(2);
        self.points = pairs
            .map(|pair| pair.iter().fold(Point::default(), join))
            .collect();
    }
}

fn join(first: Point, second: &Point) -> Point {
    Point {
        event: second.event,
        requested: first.requested.max(second.requested),
        allocated: first.allocated.max(second.allocated),
        reserved: first.reserved.max(second.reserved),
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            width: 1,
            points: Vec::new(),
        }
    }
}

impl Observer for Timeline {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        let now = |array: &StatArray| array.all().current.cast_unsigned();
        let point = Point {
            event: step.event,
            requested: now(&step.stats.requested_bytes),
            allocated: now(&step.stats.allocated_bytes),
            reserved: now(&step.stats.reserved_bytes),
        };
        if self.points.len() == Self::MOST && step.event.is_multiple_of(self.width) {
            self.join_pairs();
        }
        match self.points.last_mut() {
            Some(last) if !step.event.is_multiple_of(self.width) => *last = join(*last, &point),
            _ => self.points.push(point),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::stats::{DeviceStats, PoolKind};
    use coalesce_workloads::op::Op;
    use coalesce_workloads::replay::Outcome;

    use super::*;

    /// The timeline of so many events, in which one figure falls and the others rise.
    fn of(events: u64) -> Timeline {
        let mut timeline = Timeline::default();
        let mut stats = DeviceStats::default();
        for event in 0..events {
            let now = event.cast_signed();
            stats
                .requested_bytes
                .set_current(PoolKind::Small, 10_000 - now);
            stats.allocated_bytes.set_current(PoolKind::Large, 2 * now);
            stats.reserved_bytes.set_current(PoolKind::Small, now);
            let step = Step {
                event,
                op: Op::Mark { tag: "" },
                outcome: Outcome::Done,
                bytes: 0,
                stats: &stats,
            };
            timeline.after(&step).unwrap();
        }
        timeline
    }

    #[test]
    fn points_are_joined_in_pairs_when_there_are_too_many() {
        let found = [1199, 1200, 1201, 2400, 2401, 4800, 4801].map(|events| {
            let timeline = of(events);
            (timeline.points.len(), timeline.width)
        });
        let expected = [
            (1199, 1),
            (1200, 1),
            (601, 2),
            (1200, 2),
            (601, 4),
            (1200, 4),
            (601, 8),
        ];
        assert_eq!(found, expected);
        let point = |event: u64, first: u64| Point {
            event,
            requested: 10_000 - first,
            allocated: 2 * event,
            reserved: event,
        };
        let two = of(1202);
        assert_eq!(two.points()[..2], [point(1, 0), point(3, 2)]);
        assert_eq!(two.points()[600], point(1201, 1200));
        let four = of(2404);
        assert_eq!(four.points()[..2], [point(3, 0), point(7, 4)]);
        assert_eq!(four.points()[600], point(2403, 2400));
    }
}
