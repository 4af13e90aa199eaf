//! Runs the tests on mutants.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::checkout::Copy;
use crate::compile::Binary;
use crate::process::{Ended, INTERRUPTED, Run};
use crate::reach::{Reach, lock};
use crate::report::Progress;
use crate::state::Log;

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This test fails.
    Caught(String),
    /// This test does not end.
    Hangs(String),
    /// All tests that reach it pass.
    Survives,
    /// No test reaches it.
    NotReached,
}

impl Verdict {
    /// Whether a test noticed it.
    #[must_use]
    pub fn is_caught(&self) -> bool {
        matches!(self, Self::Caught(_) | Self::Hangs(_))
    }

    /// The word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Caught(_) => "caught",
            Self::Hangs(_) => "hangs",
            Self::Survives => "survived",
            Self::NotReached => "not reached",
        }
    }

    /// The test that noticed it.
    #[must_use]
    pub fn test(&self) -> &str {
        match self {
            Self::Caught(test) | Self::Hangs(test) => test,
            Self::Survives | Self::NotReached => "",
        }
    }
}

/// A mutant to judge.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its number.
    pub number: u32,
    /// The number of the first mutant of its place.
    pub place: u32,
    /// Its file and function. What caught a neighbour often catches it.
    pub home: String,
}

/// Everything that judging needs.
#[derive(Debug)]
pub struct Court<'a> {
    /// The programs of tests.
    pub binaries: &'a [Binary],
    /// The tests.
    pub reach: &'a Reach,
    /// The folder for temporary files.
    pub folder: &'a Path,
    /// How many mutants are judged at a time.
    pub jobs: usize,
    /// Judging ends at this time. Mutants that are then being judged get no verdict.
    pub end: Option<Instant>,
}

/// A test hangs if it takes this much more than ten times its usual time.
const PATIENCE: Duration = Duration::from_secs(6);

/// The tests that caught neighbours and are tried first.
const FAVOURITES: usize = 3;

/// Favourites that take longer than this are not tried first.
const QUICK: Duration = Duration::from_secs(1);

/// The time of the first tests that run in one process. The next ones may take four times as long.
const FIRST_BATCH: Duration = Duration::from_millis(60);

impl Court<'_> {
    /// Judges the mutants whose verdict the log lacks, in their order.
    ///
    /// # Errors
    /// If tests cannot be run.
    pub fn judge(
        &self,
        subjects: &[Subject],
        copy: &mut Copy,
        log: &mut Log,
    ) -> anyhow::Result<HashMap<u32, Verdict>> {
        let known = self.read(log);
        let open: Vec<&Subject> = subjects
            .iter()
            .filter(|subject| !known.contains_key(&subject.number))
            .collect();
        let progress = Progress::new("judging", open.len());
        let next = AtomicUsize::new(0);
        let caught = AtomicUsize::new(0);
        let log = Mutex::new(log);
        let copy = Mutex::new(copy);
        let favourites = Mutex::new(Favourites::default());
        let verdicts = Mutex::new(known);
        let programs: Vec<&str> = self.binaries.iter().map(|binary| &*binary.name).collect();
        let programs = programs.join(",");
        let work = |job: usize| -> anyhow::Result<()> {
            let scratch = self.folder.join(format!("scratch-{job}"));
            while !INTERRUPTED.load(Ordering::Relaxed)
                && self.end.is_none_or(|end| Instant::now() < end)
                && let Some(subject) = open.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let started = Instant::now();
                let Some(verdict) = self.verdict(subject, &scratch, &favourites)? else {
                    break;
                };
                if verdict != Verdict::NotReached {
                    for file in lock(&copy).restore()? {
                        eprintln!("tests of {} changed {file}; restored", subject.home);
                    }
                }
                let row = [
                    &subject.number.to_string(),
                    verdict.word(),
                    verdict.test(),
                    &programs,
                    &started.elapsed().as_millis().to_string(),
                ];
                lock(&log).append(&row)?;
                caught.fetch_add(verdict.is_caught().into(), Ordering::Relaxed);
                lock(&verdicts).insert(subject.number, verdict);
                progress.advance(|| format!("{} caught", caught.load(Ordering::Relaxed)));
            }
            Ok(())
        };
        let work = &work;
        thread::scope(|scope| {
            let workers = (0..self.jobs).map(|job| scope.spawn(move || work(job)));
            let workers: Vec<_> = workers.collect();
            let mut ended = workers.into_iter().map(|worker| worker.join());
            ended.try_for_each(|ended| ended.unwrap_or_else(|_| bail!("judging failed")))
        })?;
        progress.finish();
        Ok(verdicts
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The verdicts of the log. A mutant that survived other programs of tests is judged again.
    fn read(&self, log: &Log) -> HashMap<u32, Verdict> {
        let verdicts = log.rows().iter().filter_map(|row| {
            let [number, word, test, programs, _] = &row[..] else {
                return None;
            };
            let is_complete = || {
                let mut binaries = self.binaries.iter();
                binaries.all(|binary| programs.split(',').any(|name| name == binary.name))
            };
            let verdict = match &**word {
                "caught" => Verdict::Caught(test.clone()),
                "hangs" => Verdict::Hangs(test.clone()),
                "survived" if is_complete() => Verdict::Survives,
                "not reached" if is_complete() => Verdict::NotReached,
                _ => return None,
            };
            Some((number.parse().ok()?, verdict))
        });
        verdicts.collect()
    }

    /// Runs the tests that reach a mutant until one fails. `None` if judging ends before the verdict.
    fn verdict(
        &self,
        subject: &Subject,
        scratch: &Path,
        favourites: &Mutex<Favourites>,
    ) -> anyhow::Result<Option<Verdict>> {
        let Some(tests) = self.reach.of_place.get(&subject.place) else {
            return Ok(Some(Verdict::NotReached));
        };
        let first = lock(favourites).of(&subject.home, |test| {
            tests.contains(&test) && self.reach.tests[test].time < QUICK
        });
        let chosen = subject.number.to_string();
        for batch in self.batches(first, tests) {
            let tests = batch.iter().map(|&test| &self.reach.tests[test]);
            let tests: Vec<_> = tests
                .map(|test| (&*test.name, PATIENCE + 10 * test.time))
                .collect();
            let binary = self.reach.tests[batch[0]].binary;
            let run = Run {
                binary: &self.binaries[binary],
                tests: &tests,
                chosen: Some(&chosen),
                scratch,
                end: self.end,
            };
            let (name, hangs) = match run.run()? {
                Ended::Passed => continue,
                Ended::Interrupted => return Ok(None),
                Ended::Failed(name) => (name, false),
                Ended::Hung(name) => (name, true),
            };
            let is_it = |&&test: &&usize| self.reach.tests[test].name == name;
            if let Some(&test) = batch.iter().find(is_it) {
                lock(favourites).note(&subject.home, test);
            }
            let name = format!("{} {name}", self.binaries[binary].name);
            return Ok(Some(match hangs {
                true => Verdict::Hangs(name),
                false => Verdict::Caught(name),
            }));
        }
        Ok(Some(Verdict::Survives))
    }

    /// The tests in the order in which they run, those that run in one process together.
    fn batches(&self, first: Vec<usize>, tests: &[usize]) -> Vec<Vec<usize>> {
        let mut steps = Vec::new();
        let mut step = Vec::new();
        let mut time = Duration::ZERO;
        let mut most = FIRST_BATCH;
        for &test in tests.iter().filter(|test| !first.contains(test)) {
            step.push(test);
            time += self.reach.tests[test].time;
            if time >= most {
                most *= 4;
                time = Duration::ZERO;
                steps.push(std::mem::take(&mut step));
            }
        }
        steps.push(step);
        let mut batches = Vec::new();
        for step in [first].into_iter().chain(steps) {
            for binary in 0..self.binaries.len() {
                let of_binary = step.iter().copied();
                let of_binary = of_binary.filter(|&test| self.reach.tests[test].binary == binary);
                let batch: Vec<usize> = of_binary.collect();
                if !batch.is_empty() {
                    batches.push(batch);
                }
            }
        }
        batches
    }
}

/// The tests that caught mutants, by the file and function of these.
#[derive(Debug, Default)]
struct Favourites(HashMap<String, Vec<(usize, u32)>>);

impl Favourites {
    /// Notes that a test caught a mutant.
    fn note(&mut self, home: &str, test: usize) {
        let tests = self.0.entry(home.to_owned()).or_default();
        match tests.iter_mut().find(|(known, _)| *known == test) {
            Some((_, count)) => *count += 1,
            None => tests.push((test, 1)),
        }
        tests.sort_by_key(|&(_, count)| u32::MAX - count);
    }

    /// The tests that caught most neighbours, of those that are suitable.
    fn of(&self, home: &str, is_suitable: impl Fn(usize) -> bool) -> Vec<usize> {
        let tests = self.0.get(home).into_iter().flatten();
        let tests = tests
            .map(|&(test, _)| test)
            .filter(|&test| is_suitable(test));
        tests.take(FAVOURITES).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::Test;

    #[test]
    fn tests_that_caught_neighbours_come_first() {
        let mut favourites = Favourites::default();
        for test in [3, 5, 5, 8, 8, 8, 9, 9] {
            favourites.note("f", test);
        }
        assert_eq!(favourites.of("f", |test| test != 9), [8, 5, 3]);
        assert_eq!(favourites.of("g", |_| true), [0; 0]);
    }

    #[test]
    fn batches_grow_and_are_of_one_program() {
        let binary = |name: &str| Binary {
            name: name.to_owned(),
            program: "p".into(),
            folder: ".".into(),
        };
        let binaries = [binary("a"), binary("b")];
        let test = |index: usize| Test {
            binary: index % 2,
            name: String::new(),
            time: Duration::from_millis(30),
        };
        let reach = Reach {
            tests: (0..12).map(test).collect(),
            ..Reach::default()
        };
        let court = Court {
            binaries: &binaries,
            reach: &reach,
            folder: Path::new("."),
            jobs: 1,
            end: None,
        };
        let all: Vec<usize> = (0..12).collect();
        let expected = [&[7][..], &[0], &[1], &[2, 4, 6, 8, 10], &[3, 5, 9], &[11]];
        assert_eq!(court.batches(vec![7], &all), expected);
    }
}
