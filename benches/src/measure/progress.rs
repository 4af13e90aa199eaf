//! Progress of long work, on standard error if it is a terminal, and to a listener.

use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use coalesce_alloc::printable::printable;
use coalesce_workloads::clock::Instant;

/// Whether nothing but errors may be written to standard error. It holds for the process, as standard error does:
/// progress begins in many places, which know nothing of the user's wish.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Hides the progress of all work that begins later.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Whether [`be_quiet`] was called.
#[must_use]
pub fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Who is told the number of pieces that are done, with the label.
static LISTENER: OnceLock<fn(&'static str, u64)> = OnceLock::new();

/// Tells a function about the progress of all work, for programs without a standard error; the first is kept.
pub fn set_listener(listener: fn(&'static str, u64)) {
    LISTENER.get_or_init(|| listener);
}

/// A progress line, updated during the work and erased at its end.
#[derive(Debug)]
pub struct Progress {
    label: &'static str,
    /// Total number of pieces, if known.
    total: Option<u64>,
    visible: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: u64,
    started: Instant,
    shown: Instant,
}

/// Shortest time between two updates.
const INTERVAL: Duration = Duration::from_millis(200);
const ERASE_LINE: &str = "\r\x1b[K";

#[expect(
    clippy::disallowed_methods,
    reason = "names of pieces are made printable"
)]
impl Progress {
    /// Progress of work with `total` pieces, if their number is known.
    #[must_use]
    pub fn new(label: &'static str, total: Option<u64>) -> Self {
        let now = Instant::now();
        Self {
            label,
            total,
            visible: stderr().is_terminal() && !is_quiet(),
            state: Mutex::new(State {
                done: 0,
                started: now,
                shown: now,
            }),
        }
    }

    /// Adds completed pieces. `what` names the last of them.
    pub fn add(&self, pieces: u64, what: &str) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.done += pieces;
        if let Some(listener) = LISTENER.get() {
            listener(self.label, state.done);
        }
        let now = Instant::now();
        if !self.visible || now.duration_since(state.shown) < INTERVAL {
            return;
        }
        state.shown = now;
        let so_far = self.text(state.done, now.duration_since(state.started), what);
        // Failing to show progress is not an error.
        let _ = write!(stderr(), "{ERASE_LINE}{so_far}");
    }

    /// What is done after so long, and how long the rest takes at this pace.
    fn text(&self, done: u64, elapsed: Duration, what: &str) -> String {
        const LONGEST: usize = 80;
        let (label, what) = (self.label, printable(what).within(LONGEST));
        match self.total {
            Some(total) => {
                let pace = elapsed.as_secs_f64() / done.max(1) as f64;
                let left = pace * total.saturating_sub(done) as f64;
                format!("{label}: {done}/{total}, {left:.0} s left, {what}")
            }
            None => format!("{label}: {done}, {what}"),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing from outside is printed")]
impl Drop for Progress {
    fn drop(&mut self) {
        if self.visible {
            let _ = write!(stderr(), "{ERASE_LINE}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        let of = |total| {
            let progress = Progress::new("pieces", total);
            progress.text(3, Duration::from_secs(6), "the third")
        };
        assert_eq!(of(Some(13)), "pieces: 3/13, 20 s left, the third");
        assert_eq!(of(Some(2)), "pieces: 3/2, 0 s left, the third");
        assert_eq!(of(None), "pieces: 3, the third");
    }

    #[test]
    fn listeners_are_told_the_pieces_so_far() {
        static TOLD: Mutex<Vec<u64>> = Mutex::new(Vec::new());
        const LABEL: &str = "pieces that are listened to";
        set_listener(|label, done| {
            if label == LABEL {
                TOLD.lock().unwrap().push(done);
            }
        });
        let progress = Progress::new(LABEL, Some(5));
        progress.add(1, "one");
        progress.add(4, "the others");
        assert_eq!(*TOLD.lock().unwrap(), [1, 5]);
    }
}
