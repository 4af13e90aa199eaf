//! What is printed: progress, the table of survivors, the score.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::judge::Verdict;
use crate::reach::lock;
use crate::site::{Mutable, Mutant};

/// How often progress is shown on a terminal, and elsewhere.
const PERIODS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(30)];

/// Shows the progress of a long task.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: usize,
    started: Instant,
    is_terminal: bool,
    state: Mutex<(usize, Option<Instant>)>,
}

impl Progress {
    /// Starts a task of `total` steps.
    #[must_use]
    pub fn new(what: &'static str, total: usize) -> Self {
        Self {
            what,
            total,
            started: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
            state: Mutex::default(),
        }
    }

    /// Completes a step, and shows it with `remark`.
    pub fn advance(&self, remark: impl FnOnce() -> String) {
        let mut state = lock(&self.state);
        state.0 += 1;
        let period = match self.is_terminal {
            true => PERIODS[0],
            false => PERIODS[1],
        };
        if state.1.is_some_and(|shown| shown.elapsed() < period) {
            return;
        }
        state.1 = Some(Instant::now());
        self.show(state.0, &remark());
    }

    /// Ends the task, complete or not.
    pub fn finish(&self) {
        if self.total == 0 {
            return;
        }
        self.show(lock(&self.state).0, "");
        if self.is_terminal {
            eprintln!();
        }
    }

    fn show(&self, done: usize, remark: &str) {
        let seconds = self.started.elapsed().as_secs();
        let mut line = format!("{}: {done} of {}, {seconds} s", self.what, self.total);
        if !remark.is_empty() {
            line += &format!(", {remark}");
        }
        let mut error = std::io::stderr().lock();
        // Nobody sees it if this fails.
        let _ = match self.is_terminal {
            true => write!(error, "\r\x1b[K{line}").and_then(|()| error.flush()),
            false => writeln!(error, "{line}"),
        };
    }
}

/// The heading of the tables.
pub const HEADING: &str = "area\tplace\tfunction\tmutation\twhy\n";

/// The row of a mutant.
#[must_use]
pub fn row(area: &str, file: &Mutable, mutant: &Mutant, why: &str) -> String {
    let Mutant {
        line,
        function,
        what,
        ..
    } = mutant;
    format!("{area}\t{}:{line}\t{function}\t{what}\t{why}\n", file.file)
}

/// The counts of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Score {
    /// Mutants that a test noticed.
    pub caught: usize,
    /// Those of them that hang.
    pub hangs: usize,
    /// Mutants that passed all tests that reach them.
    pub survived: usize,
    /// Mutants that no test reaches.
    pub not_reached: usize,
    /// Mutants that were to be judged and were not.
    pub open: usize,
}

impl Score {
    /// Counts the verdicts on some mutants.
    pub fn of<'a>(
        mutants: impl IntoIterator<Item = &'a u32>,
        verdicts: &HashMap<u32, Verdict>,
    ) -> Self {
        let mut score = Self::default();
        for mutant in mutants {
            let count = match verdicts.get(mutant) {
                Some(Verdict::Caught(_)) => &mut score.caught,
                Some(Verdict::Hangs(_)) => {
                    score.hangs += 1;
                    &mut score.caught
                }
                Some(Verdict::Survives) => &mut score.survived,
                Some(Verdict::NotReached) => &mut score.not_reached,
                None => &mut score.open,
            };
            *count += 1;
        }
        score
    }

    /// The share of the judged mutants that were caught, in percent; `None` if none was judged.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let judged = self.caught + self.survived + self.not_reached;
        (judged > 0).then(|| 100.0 * self.caught as f64 / judged as f64)
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let judged = self.caught + self.survived + self.not_reached;
        match self.percent() {
            None => write!(f, "no mutant judged")?,
            Some(percent) => write!(
                f,
                "{percent:.1} % caught: {} of {judged} ({} by a hang), {} survived, {} not reached",
                self.caught, self.hangs, self.survived, self.not_reached
            )?,
        }
        if self.open > 0 {
            write!(f, "; {} not judged", self.open)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_counts_hangs_as_caught_and_leaves_out_what_was_not_judged() {
        let verdicts = HashMap::from([
            (0, Verdict::Caught(String::new())),
            (1, Verdict::Hangs(String::new())),
            (2, Verdict::Survives),
            (3, Verdict::NotReached),
        ]);
        let score = Score::of(&[0, 1, 2, 3, 4], &verdicts);
        assert_eq!(score.percent(), Some(50.0));
        assert_eq!(
            score.to_string(),
            "50.0 % caught: 2 of 4 (1 by a hang), 1 survived, 1 not reached; 1 not judged"
        );
        assert_eq!(Score::of(&[], &verdicts).percent(), None);
    }
}
