//! The remaining effort of a search.

use std::time::Instant;

use super::Effort;

/// Remaining steps or time.
///
/// A step is a buffer tried at an offset.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    steps: u64,
    deadline: Option<Instant>,
    /// Steps until the clock is read again, which costs as much as several steps.
    until_clock: u64,
}

impl Budget {
    const STEPS_PER_CLOCK: u64 = 256;

    pub(super) fn new(effort: Effort) -> Self {
        let (steps, deadline) = match effort {
            Effort::Steps(steps) => (steps, None),
            // A deadline beyond the range of the clock is no limit.
            Effort::Time(time) => (u64::MAX, Instant::now().checked_add(time)),
        };
        Self {
            steps,
            deadline,
            until_clock: 0,
        }
    }

    /// Spends steps. Returns whether enough were left.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        if self.steps < steps {
            self.steps = 0;
            return false;
        }
        self.steps -= steps;
        if self.until_clock < steps {
            self.until_clock = Self::STEPS_PER_CLOCK;
            if self.deadline.is_some_and(|end| Instant::now() >= end) {
                self.steps = 0;
                return false;
            }
        }
        self.until_clock -= steps.min(self.until_clock);
        true
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.steps == 0
    }
}
