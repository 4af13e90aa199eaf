//! How far long work is, on standard error, if somebody looks.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A line that is written over while work goes on.
#[derive(Debug)]
pub struct Progress {
    label: &'static str,
    total: usize,
    visible: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    done: usize,
    started: Instant,
    shown: Instant,
}

/// How often the line changes at most.
const INTERVAL: Duration = Duration::from_millis(200);

impl Progress {
    /// Nothing of `total` pieces is done yet.
    #[must_use]
    pub fn new(label: &'static str, total: usize) -> Self {
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

    /// One more piece is done.
    pub fn step(&self, what: &str) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        state.done += 1;
        let now = Instant::now();
        if !self.visible || (now - state.shown < INTERVAL && state.done < self.total) {
            return;
        }
        state.shown = now;
        let left = self.total.saturating_sub(state.done) as f64;
        let pace = (now - state.started).as_secs_f64() / state.done as f64;
        let (label, done, total) = (self.label, state.done, self.total);
        // Nobody is helped if progress cannot be shown.
        let _ = write!(
            stderr(),
            "\r\x1b[K{label}: {done}/{total}, {:.0} s left, {what}",
            pace * left
        );
        if state.done >= self.total {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
