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
    use coalesce_workloads::written::written;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// So many operations. At the last, which requests so many bytes, the deadline has passed.
    fn many(count: u64, bytes: u64, deadline: Deadline) -> impl Workload {
        written("many", move |sink| {
            for id in 0..count {
                let is_last = id + 1 == count;
                if is_last && bytes > 0 {
                    thread::sleep(deadline.remaining().unwrap_or_default());
                }
                sink.op(Op::malloc(id, if is_last { bytes } else { 1 }))?;
            }
            Ok(())
        })
    }

    /// The number of operations before the end, and the reason of the end.
    fn made(count: u64, bytes: u64, limit: Option<Duration>) -> (u64, Result<(), String>) {
        let deadline = Deadline::after(limit);
        let workload = UntilDeadline {
            workload: &many(count, bytes, deadline),
            deadline,
        };
        assert_eq!(workload.name(), "many");
        let mut made = 0;
        let ended = workload.emit(&mut |_: Op<'_>| {
            made += 1;
            Ok(Answer::Done)
        });
        (made, ended.map_err(|error| error.to_string()))
    }

    /// The clock is looked at every 256 operations and before large requests.
    #[test]
    fn nothing_is_done_after_the_deadline_and_everything_without_one() {
        let late = || Err("stopped: time ran out".to_owned());
        let soon = Some(Duration::from_millis(30));
        assert_eq!(made(1000, 0, None), (1000, Ok(())));
        assert_eq!(made(1000, 0, Some(HOUR)), (1000, Ok(())));
        assert_eq!(made(1000, 0, Some(Duration::ZERO)), (0, late()));
        assert_eq!(made(2, 4 << 30, soon), (1, late()));
        assert_eq!(made(2, (4 << 30) - 1, soon), (2, Ok(())));
        assert_eq!(made(256, 1, soon), (256, Ok(())));
        assert_eq!(made(257, 1, soon), (256, late()));
    }

    #[test]
    fn a_part_of_the_time_ends_earlier() {
        let whole = Deadline::after(Some(2 * HOUR));
        let half = whole.at_percent(50);
        assert_eq!((half.limit, half.started), (Some(HOUR), whole.started));
        let moment = whole.started.checked_add(HOUR);
        assert!(moment.is_some() && half.moment() == moment);
        let left = half.remaining().unwrap();
        assert!(left <= HOUR && left > HOUR / 2);
        assert!(half.is_within(HOUR) && half.is_within(Duration::MAX));
        assert!(!half.is_within(HOUR / 2) && !half.has_passed());
        assert!(whole.at_percent(0).has_passed());
        let none = Deadline::after(None);
        assert!(none.moment().is_none() && none.remaining().is_none());
        assert!(!none.is_within(Duration::MAX) && !none.at_percent(0).has_passed());
    }

    #[test]
    fn work_ends_at_the_deadline() {
        let soon = Deadline::after(Some(Duration::from_millis(20)));
        assert!(within(soon, || thread::sleep(Duration::from_secs(60))).is_none());
        assert_eq!(within(Deadline::after(None), || 1), Some(1));
        assert_eq!(within(Deadline::after(Some(HOUR)), || 1), Some(1));
    }
}
