//! When work has to be over.

use std::time::{Duration, Instant};

/// A moment after which nothing more is begun.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    begun: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    /// So long from now; never, if there is no limit.
    #[must_use]
    pub fn after(limit: Option<Duration>) -> Self {
        Self {
            begun: Instant::now(),
            limit,
        }
    }

    /// The moment when so many percent of the time have passed.
    #[must_use]
    pub fn at_percent(self, percent: u32) -> Self {
        Self {
            limit: self.limit.map(|limit| limit * percent / 100),
            ..self
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.limit.is_some_and(|limit| self.elapsed() >= limit)
    }

    /// Whether it will be over before so much time has passed.
    #[must_use]
    pub fn is_within(self, time: Duration) -> bool {
        self.limit
            .is_some_and(|limit| self.elapsed().saturating_add(time) >= limit)
    }

    /// How long ago it began.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.begun.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_passes_or_never_does() {
        assert!(Deadline::after(Some(Duration::ZERO)).has_passed());
        assert!(!Deadline::after(None).at_percent(0).has_passed());
        let hour = Deadline::after(Some(Duration::from_secs(3600)));
        assert!(!hour.has_passed() && hour.at_percent(0).has_passed());
    }
}
