//! Runs the same work on many items, on several threads.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// How many threads work at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jobs(NonZeroUsize);

impl Default for Jobs {
    /// One thread for each core.
    fn default() -> Self {
        Self(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

impl Jobs {
    /// No other thread than the caller's.
    pub const ONE: Self = Self(NonZeroUsize::MIN);

    /// The given number of threads; by default one for each core.
    #[must_use]
    pub fn of(given: Option<NonZeroUsize>) -> Self {
        given.map_or_else(Self::default, Self)
    }

    /// The number of threads for some items. More would have nothing to do, and the system may refuse them.
    #[must_use]
    pub fn threads(self, items: usize) -> usize {
        self.0.get().min(items.max(1))
    }

    /// Applies `work` to each item, in any order. Returns the results in the order of the items.
    pub fn map<T: Sync, R: Send>(self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(items.len()));
        let run = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return };
                let result = work(item);
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((index, result));
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads(items.len()) {
                scope.spawn(run);
            }
            run();
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|&(index, _)| index);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Does two pieces of work, at once if there may be several threads.
    pub fn join<A: Send, B>(
        self,
        one: impl FnOnce() -> A + Send,
        other: impl FnOnce() -> B,
    ) -> (A, B) {
        if self.threads(2) == 1 {
            return (one(), other());
        }
        thread::scope(|scope| {
            let one = scope.spawn(one);
            let other = other();
            let one = one.join().unwrap_or_else(|panic| resume_unwind(panic));
            (one, other)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        for jobs in [Jobs::default(), Jobs::of(NonZeroUsize::new(7))] {
            let squares = jobs.map(&items, |item| item * item);
            assert!(
                squares
                    .iter()
                    .zip(&items)
                    .all(|(square, item)| *square == item * item)
            );
            assert_eq!(squares.len(), 1000);
            assert!(jobs.map(&[] as &[u64], |item| *item).is_empty());
            assert_eq!(jobs.join(|| 1, || 2), (1, 2));
        }
    }

    #[test]
    fn one_job_is_one_thread() {
        let one = Jobs::of(NonZeroUsize::new(1));
        let this = thread::current().id();
        let threads = one.map(&[0; 9], |_| thread::current().id());
        assert!(threads.iter().all(|&thread| thread == this));
        let (first, second) = one.join(|| thread::current().id(), || thread::current().id());
        assert_eq!((first, second), (this, this));
    }

    /// Each piece of work waits for all others, so it ends only if all have a thread.
    #[test]
    fn as_many_threads_work_as_there_are_jobs() {
        let three = Jobs::of(NonZeroUsize::new(3));
        let all = Barrier::new(3);
        let met = three.map(&[1, 2, 3], |item| {
            all.wait();
            (*item, thread::current().id())
        });
        let threads: HashSet<_> = met.iter().map(|(_, thread)| *thread).collect();
        assert_eq!(threads.len(), 3);
        let both = Barrier::new(2);
        let two = Jobs::of(NonZeroUsize::new(2));
        let met = two.join(|| both.wait().is_leader(), || both.wait().is_leader());
        assert_ne!(met.0, met.1);
    }

    #[test]
    fn there_are_no_more_threads_than_items_and_at_least_one() {
        let four = Jobs::of(NonZeroUsize::new(4));
        let found = [0, 1, 3, 4, 5].map(|items| four.threads(items));
        assert_eq!(found, [1, 1, 3, 4, 4]);
        assert_eq!(Jobs::ONE.threads(9), 1);
    }
}
