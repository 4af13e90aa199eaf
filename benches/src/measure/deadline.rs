//! Time limits.

use std::time::{Duration, Instant};

/// A moment after which no further work is started.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    started: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    /// The given time from now; never, if there is no limit.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        Self {
            started: Instant::now(),
            limit,
        }
    }

    /// The moment when the given percentage of the time has passed.
    #[must_use]
    pub fn at_percent(self, percent: u32) -> Self {
        Self {
            limit: self.limit.map(|limit| limit * percent / 100),
            ..self
        }
    }

    /// Whether the deadline has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.limit.is_some_and(|limit| self.elapsed() >= limit)
    }

    /// Whether the deadline will pass within the given time.
    #[must_use]
    pub fn is_within(self, time: Duration) -> bool {
        self.limit
            .is_some_and(|limit| self.elapsed().saturating_add(time) >= limit)
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_unless_it_has_no_limit() {
        assert!(Deadline::after(Some(Duration::ZERO)).has_passed());
        assert!(!Deadline::after(None).at_percent(0).has_passed());
        let hour = Deadline::after(Some(Duration::from_secs(3600)));
        assert!(!hour.has_passed() && hour.at_percent(0).has_passed());
    }
}
