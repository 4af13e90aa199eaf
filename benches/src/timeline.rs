//! Memory over time, in few enough points to look at.

use workloads::op::WorkloadError;
use workloads::replay::{Observer, Step};

/// Memory at about one moment, in bytes: the most that was seen around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Point {
    /// The last event it stands for.
    pub event: u64,
    /// What was handed out.
    pub allocated: u64,
    /// What was held from the device.
    pub reserved: u64,
}

/// Collects points during a replay.
#[derive(Debug)]
pub struct Timeline {
    /// Events that one point stands for.
    width: u64,
    points: Vec<Point>,
}

impl Timeline {
    /// A timeline of about `points` points for a replay of `events` events.
    #[must_use]
    pub fn new(events: u64, points: u64) -> Self {
        Self {
            width: events.div_ceil(points.max(1)).max(1),
            points: Vec::new(),
        }
    }

    /// The points, in order.
    #[must_use]
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

impl Observer for Timeline {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if step.event.is_multiple_of(self.width) {
            self.points.push(Point::default());
        }
        if let Some(point) = self.points.last_mut() {
            let stats = step.stats;
            let now = |array: &allocator::stats::StatArray| array.all.current.cast_unsigned();
            point.event = step.event;
            point.allocated = point.allocated.max(now(&stats.allocated_bytes));
            point.reserved = point.reserved.max(now(&stats.reserved_bytes));
        }
        Ok(())
    }
}
