//! How much search is left.

use std::time::Instant;

use super::Effort;

/// Steps that may still be taken, or time that is left.
///
/// A step is a buffer tried at an offset.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    steps: u64,
    deadline: Option<Instant>,
    /// Steps until the clock is looked at again: that takes as long as several steps.
    until_look: u64,
}

impl Budget {
    const STEPS_A_LOOK: u64 = 256;

    pub(super) fn new(effort: Effort) -> Self {
        let (steps, deadline) = match effort {
            Effort::Steps(steps) => (steps, None),
            // A time so long that no clock holds it is no limit.
            Effort::Time(time) => (u64::MAX, Instant::now().checked_add(time)),
        };
        Self {
            steps,
            deadline,
            until_look: 0,
        }
    }

    /// Takes so many steps, and says whether they could be had.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        if self.steps < steps {
            self.steps = 0;
            return false;
        }
        self.steps -= steps;
        if self.until_look < steps {
            self.until_look = Self::STEPS_A_LOOK;
            if self.deadline.is_some_and(|end| Instant::now() >= end) {
                self.steps = 0;
                return false;
            }
        }
        self.until_look -= steps.min(self.until_look);
        true
    }

    /// Whether nothing is left.
    pub(super) fn is_spent(&self) -> bool {
        self.steps == 0
    }
}
