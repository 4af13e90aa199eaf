//! Failures injected on request.

use std::collections::VecDeque;

use crate::driver::calls::CallKind;
use crate::driver::tap::Hook;
use crate::driver::{DriverError, Status};

/// Decides which calls fail. A failed call has no effect.
#[derive(Debug, Default)]
pub struct Faults {
    /// Number of `malloc` and `create` calls still to refuse.
    refused: u64,
    /// In order; each counts its calls from the failure before it.
    planned: VecDeque<PlannedFault>,
    sticky: Option<DriverError>,
}

/// A planned failure.
#[derive(Debug)]
struct PlannedFault {
    /// Calls of any kind that succeed first.
    calls: u64,
    error: DriverError,
    /// Whether the device stays broken.
    breaks: bool,
}

impl Faults {
    /// Makes the next `count` calls of `malloc` or `create` run out of memory.
    pub fn refuse_next(&mut self, count: u64) {
        self.refused = count;
    }

    /// Makes one call of any kind fail with `error` after `calls` that succeed. Nothing that was planned before happens.
    pub fn fail_after(&mut self, calls: u64, error: DriverError) {
        self.planned.clear();
        self.then_fail_after(calls, error);
    }

    /// Makes one more call fail with `error`, after the failures planned before and `calls` that succeed.
    pub fn then_fail_after(&mut self, calls: u64, error: DriverError) {
        let breaks = false;
        self.planned.push_back(PlannedFault {
            calls,
            error,
            breaks,
        });
    }

    /// Breaks the device after `calls` that succeed; see [`Self::set_sticky`]. Nothing that was planned before happens.
    pub fn break_after(&mut self, calls: u64, error: DriverError) {
        let breaks = true;
        self.planned = VecDeque::from([PlannedFault {
            calls,
            error,
            breaks,
        }]);
    }

    /// Cancels the planned failures. Returns whether any was planned.
    pub fn cancel(&mut self) -> bool {
        let any = !self.planned.is_empty();
        self.planned.clear();
        any
    }

    /// Breaks the device: every call fails with `error`, as after an illegal access on a real device.
    /// `None` repairs it.
    pub fn set_sticky(&mut self, error: Option<DriverError>) {
        self.sticky = error;
    }
}

impl Hook for Faults {
    /// Fails the call if it is the planned one.
    fn before(&mut self, kind: CallKind, _: u64) -> Status {
        self.last_error()?;
        match self.planned.front_mut() {
            Some(next) if next.calls > 0 => next.calls -= 1,
            Some(_) => {
                if let Some(PlannedFault { error, breaks, .. }) = self.planned.pop_front() {
                    self.sticky = breaks.then(|| error.clone());
                    return Err(error);
                }
            }
            None => {}
        }
        if self.refused > 0 && matches!(kind, CallKind::Malloc | CallKind::Create) {
            self.refused -= 1;
            return Err(DriverError::OutOfMemory);
        }
        Ok(())
    }

    fn last_error(&self) -> Status {
        self.sticky.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(faults: &mut Faults, calls: usize) -> Vec<bool> {
        let strike = |_| faults.before(CallKind::Unmap, 0).is_err();
        (0..calls).map(strike).collect()
    }

    #[test]
    fn only_the_planned_call_fails() {
        let error = || DriverError::Failed("planned".to_owned());
        let mut faults = Faults::default();
        faults.fail_after(2, error());
        assert_eq!(strikes(&mut faults, 5), [false, false, true, false, false]);
        faults.fail_after(1, error());
        faults.then_fail_after(0, error());
        faults.then_fail_after(1, error());
        let expected = [false, true, true, false, true, false];
        assert_eq!(strikes(&mut faults, 6), expected);
        faults.break_after(2, error());
        assert_eq!(strikes(&mut faults, 5), [false, false, true, true, true]);
        assert_eq!(faults.last_error(), Err(error()));
        faults.set_sticky(None);
        faults.fail_after(1, error());
        assert!(faults.cancel() && !faults.cancel());
        assert_eq!(strikes(&mut faults, 3), [false; 3]);
    }

    #[test]
    fn refuses_the_given_number_of_requests() {
        let mut faults = Faults::default();
        faults.refuse_next(2);
        assert_eq!(strikes(&mut faults, 1), [false], "only requests for memory");
        let kinds = [CallKind::Malloc, CallKind::Create, CallKind::Malloc];
        let refused = kinds.map(|kind| faults.before(kind, 0).is_err());
        assert_eq!(refused, [true, true, false]);
    }
}
