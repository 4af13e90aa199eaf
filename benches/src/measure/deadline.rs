//! Time limits.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use coalesce_workloads::budget::Budget;
use coalesce_workloads::clock::Instant;
use coalesce_workloads::op::{Op, Sink, Workload, WorkloadError};
use coalesce_workloads::start::StartState;

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

    /// The time that is left; `None` without a limit.
    #[must_use]
    pub fn remaining(self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.elapsed()))
    }

    /// The moment; `None` without a limit.
    #[must_use]
    pub fn moment(self) -> Option<Instant> {
        self.started.checked_add(self.limit?)
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

/// A workload that ends with an error when the deadline has passed, so that no replay outlasts it.
#[derive(Clone, Copy)]
pub struct UntilDeadline<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// The deadline.
    pub deadline: Deadline,
}

impl Workload for UntilDeadline<'_> {
    fn name(&self) -> &str {
        self.workload.name()
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        /// Operations between two looks at the clock: a few milliseconds, even if each maps pages.
        const INTERVAL: u32 = 256;
        /// A request of so many bytes maps hundreds of pages.
        const LARGE: u64 = 4 << 30;
        let mut operations = 0_u32;
        self.workload.emit(&mut |op: Op<'_>| {
            let is_large = matches!(op, Op::Malloc { bytes, .. } if bytes >= LARGE);
            let looks = is_large || operations.is_multiple_of(INTERVAL);
            if looks && self.deadline.has_passed() {
                return Err(WorkloadError::Stopped("time ran out".to_owned()));
            }
            operations = operations.wrapping_add(1);
            sink.op(op)
        })
    }

    fn start(&self) -> Option<&Arc<StartState>> {
        self.workload.start()
    }

    fn budget(&self) -> Budget {
        self.workload.budget()
    }
}

/// The result of `work`, which cannot be interrupted, or `None` if it does not end before the deadline. The work
/// then continues in a thread that ends with the process. `None` also where there are no threads.
pub fn within<R: Send + 'static>(
    deadline: Deadline,
    work: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let Some(remaining) = deadline.remaining() else {
        return Some(work());
    };
    let (sender, receiver) = mpsc::channel();
    // Nobody receives the result after the deadline.
    let spawned = thread::Builder::new().spawn(move || _ = sender.send(work()));
    spawned.ok()?;
    receiver.recv_timeout(remaining).ok()
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::op::Answer;

    use super::*;

    struct Endless;

    impl Workload for Endless {
        fn name(&self) -> &'static str {
            "endless"
        }

        fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
            loop {
                sink.op(Op::EmptyCache)?;
            }
        }
    }

    /// A thousand operations.
    struct Many;

    impl Workload for Many {
        fn name(&self) -> &'static str {
            "many"
        }

        fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
            (0..1000).try_for_each(|_| sink.op(Op::EmptyCache).map(|_| ()))
        }
    }

    /// A request for so many bytes when the deadline has passed.
    struct LargeTooLate(Deadline, u64);

    impl Workload for LargeTooLate {
        fn name(&self) -> &'static str {
            "large, too late"
        }

        fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
            sink.op(Op::EmptyCache)?;
            thread::sleep(self.0.remaining().unwrap_or_default());
            sink.op(Op::Malloc {
                id: 0,
                bytes: self.1,
                stream: 0,
                tag: "",
            })?;
            Ok(())
        }
    }

    #[test]
    fn no_large_request_is_made_after_the_deadline() {
        let ended = |bytes| {
            let deadline = Deadline::after(Some(Duration::from_millis(20)));
            let workload = UntilDeadline {
                workload: &LargeTooLate(deadline, bytes),
                deadline,
            };
            let mut made = 0;
            let ended = workload.emit(&mut |_: Op<'_>| {
                made += 1;
                Ok(Answer::Done)
            });
            (ended.map_err(|error| error.to_string()), made)
        };
        assert_eq!(ended(4 << 30), (Err("stopped: time ran out".to_owned()), 1));
        assert_eq!(ended((4 << 30) - 1), (Ok(()), 2));
    }

    #[test]
    fn nothing_is_done_after_the_deadline_and_everything_without_one() {
        let made = |limit| {
            let workload = UntilDeadline {
                workload: &Many,
                deadline: Deadline::after(limit),
            };
            let mut made = 0;
            let ended = workload.emit(&mut |_: Op<'_>| {
                made += 1;
                Ok(Answer::Done)
            });
            assert_eq!(workload.name(), "many");
            (ended.is_ok(), made)
        };
        assert_eq!(made(None), (true, 1000));
        assert_eq!(made(Some(Duration::from_secs(3600))), (true, 1000));
        assert_eq!(made(Some(Duration::ZERO)), (false, 0));
    }

    /// The operation after 256 others is the first that is not made.
    #[test]
    fn the_clock_is_looked_at_every_256_operations() {
        let deadline = Deadline::after(Some(Duration::from_millis(30)));
        let workload = UntilDeadline {
            workload: &Many,
            deadline,
        };
        let mut made = 0;
        let ended = workload.emit(&mut |_: Op<'_>| {
            thread::sleep(deadline.remaining().unwrap_or_default());
            made += 1;
            Ok(Answer::Done)
        });
        assert_eq!((ended.is_ok(), made), (false, 256));
    }

    #[test]
    fn a_part_of_the_time_ends_earlier() {
        let whole = Deadline::after(Some(Duration::from_secs(4000)));
        let half = whole.at_percent(50);
        assert_eq!(half.limit, Some(Duration::from_secs(2000)));
        assert_eq!(half.started, whole.started);
        let moment = whole.started.checked_add(Duration::from_secs(2000));
        assert!(moment.is_some() && half.moment() == moment);
        let left = half.remaining().unwrap();
        assert!(left <= Duration::from_secs(2000) && left > Duration::from_secs(1000));
        assert!(half.is_within(Duration::from_secs(2000)));
        assert!(half.is_within(Duration::MAX) && !half.is_within(Duration::from_secs(900)));
        let none = Deadline::after(None);
        assert!(none.moment().is_none() && none.remaining().is_none());
        assert!(!none.is_within(Duration::MAX));
    }

    #[test]
    fn work_ends_at_the_deadline() {
        let deadline = Deadline::after(Some(Duration::from_millis(20)));
        let workload = UntilDeadline {
            workload: &Endless,
            deadline,
        };
        let ended = workload.emit(&mut |_: Op<'_>| Ok(Answer::Done));
        assert!(ended.unwrap_err().to_string().contains("time ran out"));
        assert!(within(deadline, || thread::sleep(Duration::from_secs(60))).is_none());
        assert_eq!(within(Deadline::after(None), || 1), Some(1));
        let hour = Deadline::after(Some(Duration::from_secs(3600)));
        assert_eq!(within(hour, || 1), Some(1));
    }

    #[test]
    fn a_deadline_passes_unless_it_has_no_limit() {
        assert!(Deadline::after(Some(Duration::ZERO)).has_passed());
        assert!(!Deadline::after(None).at_percent(0).has_passed());
        let hour = Deadline::after(Some(Duration::from_secs(3600)));
        assert!(!hour.has_passed() && hour.at_percent(0).has_passed());
    }
}
