//! An allocator that several threads share.

use std::thread;
use std::time::Duration;

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A value behind a lock that costs little while nobody else wants it.
///
/// A call of an allocator takes less time than waking a thread, so waiting threads first spin. They look at
/// the lock ever less often: a thread that holds it can do many calls before another takes over, instead of
/// passing the allocator's state from core to core with every call. During long calls of the driver they
/// sleep. The lock is not fair.
#[derive(Debug, Default)]
pub struct Shared<A>(SpinMutex<A>);

/// Access to the value of a [`Shared`]; releases the lock when it is dropped.
pub type SharedGuard<'a, A> = SpinMutexGuard<'a, A>;

/// Looks at the lock before a waiting thread lets others run. The pauses between them double.
const SPINS: u32 = 10;
/// Looks while others run, before a waiting thread sleeps between looks.
const YIELDS: u32 = 20;
/// How long a waiting thread sleeps between looks. By then, the thread with the lock probably waits for the device.
const NAP: Duration = Duration::from_micros(50);

impl<A> Shared<A> {
    /// Puts a value behind a lock.
    pub const fn new(value: A) -> Self {
        Self(SpinMutex::new(value))
    }

    /// Waits for the lock and takes it. A thread that holds it already waits forever.
    #[inline]
    pub fn lock(&self) -> SharedGuard<'_, A> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut A {
        self.0.get_mut()
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> A {
        self.0.into_inner()
    }

    #[cold]
    fn wait(&self) -> SharedGuard<'_, A> {
        let mut looks = 0;
        loop {
            match looks {
                0..SPINS => (0..1 << looks).for_each(|_| std::hint::spin_loop()),
                SPINS..YIELDS => thread::yield_now(),
                _ => thread::sleep(NAP),
            }
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            looks = YIELDS.min(looks + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_is_lost() {
        const TIMES: u32 = 20_000;
        let count = Shared::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..TIMES).for_each(|_| *count.lock() += 1));
            }
        });
        assert_eq!(count.into_inner(), 4 * TIMES);
    }

    #[test]
    fn a_thread_that_sleeps_gets_the_lock() {
        let shared = Shared::new(0);
        thread::scope(|scope| {
            let held = shared.lock();
            let waiting = scope.spawn(|| *shared.lock());
            thread::sleep(Duration::from_millis(20));
            drop(held);
            assert_eq!(waiting.join().ok(), Some(0));
        });
    }
}
