//! How far long work is, on standard error, if somebody looks.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A line that is written over while work goes on, and is gone when the work is.
#[derive(Debug)]
pub struct Progress {
    label: &'static str,
    /// Pieces in all, if that is known.
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

/// How often the line changes at most.
const INTERVAL: Duration = Duration::from_millis(200);
const ERASE_LINE: &str = "\r\x1b[K";

impl Progress {
    /// Nothing of `total` pieces is done yet.
    #[must_use]
    pub fn new(label: &'static str, total: Option<u64>) -> Self {
        let now = Instant::now();
        Self {
            label,
            total,
            visible: stderr().is_terminal(),
            state: Mutex::new(State {
                done: 0,
                started: now,
                shown: now,
            }),
        }
    }

    /// So many more pieces are done, the last of them of `what`.
    pub fn add(&self, pieces: u64, what: &str) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.done += pieces;
        let now = Instant::now();
        if !self.visible || now - state.shown < INTERVAL {
            return;
        }
        state.shown = now;
        let (label, done) = (self.label, state.done);
        // Nobody is helped if progress cannot be shown.
        let _ = match self.total {
            Some(total) => {
                let pace = (now - state.started).as_secs_f64() / done.max(1) as f64;
                let left = pace * total.saturating_sub(done) as f64;
                write!(
                    stderr(),
                    "{ERASE_LINE}{label}: {done}/{total}, {left:.0} s left, {what}"
                )
            }
            None => write!(stderr(), "{ERASE_LINE}{label}: {done}, {what}"),
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.visible {
            let _ = write!(stderr(), "{ERASE_LINE}");
        }
    }
}
