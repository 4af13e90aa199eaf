//! Which places each test reaches, and how long it takes.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::compile::Binary;
use crate::process::{self, Ended, Run};
use crate::report::Progress;
use crate::state::Log;

/// A test that passes without a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Test {
    /// The index of its program.
    pub binary: usize,
    /// Its name in the program.
    pub name: String,
    /// How long it took while places were recorded.
    pub time: Duration,
}

/// All tests, and those that reach each place.
#[derive(Debug, Default)]
pub struct Reach {
    /// The tests.
    pub tests: Vec<Test>,
    /// The indices of the tests that reach a place, by the number of its first mutant. The fastest come first.
    pub of_place: HashMap<u32, Vec<usize>>,
    /// Tests that fail without a mutant.
    pub failing: Vec<String>,
}

/// A test that takes longer than this without a mutant fails.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs each test that the log lacks, and notes which places it reaches.
///
/// # Errors
/// If tests cannot be run, or the program is interrupted.
pub fn record(
    binaries: &[Binary],
    folder: &Path,
    jobs: usize,
    log: &mut Log,
) -> anyhow::Result<Reach> {
    let mut all = Vec::new();
    for (binary, program) in binaries.iter().enumerate() {
        let names = process::tests(program)?;
        all.extend(names.into_iter().map(|name| (binary, name)));
    }
    let is_known = |&(binary, ref name): &(usize, String)| {
        let mut rows = log.rows().iter();
        rows.any(|row| row[..2] == [&*binaries[binary].name, name])
    };
    let missing: Vec<_> = all.iter().filter(|test| !is_known(test)).cloned().collect();
    if !missing.is_empty() {
        record_all(binaries, &missing, folder, jobs, log)?;
    }
    Ok(read(binaries, log.rows()))
}

fn record_all(
    binaries: &[Binary],
    tests: &[(usize, String)],
    folder: &Path,
    jobs: usize,
    log: &mut Log,
) -> anyhow::Result<()> {
    let progress = Progress::new("recording what each test reaches", tests.len());
    let next = AtomicUsize::new(0);
    let log = Mutex::new(log);
    let work = |job: usize| -> anyhow::Result<()> {
        let own = folder.join(format!("recorder-{job}"));
        fs::create_dir_all(&own).with_context(|| format!("{} cannot be created", own.display()))?;
        while let Some((binary, name)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = record_one(&binaries[*binary], name, &own)?;
            let row: Vec<&str> = row.iter().map(String::as_str).collect();
            lock(&log).append(&row)?;
            progress.advance(String::new);
        }
        Ok(())
    };
    let work = &work;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs)
            .map(|job| scope.spawn(move || work(job)))
            .collect();
        let mut ended = workers.into_iter().map(|worker| worker.join());
        ended.try_for_each(|ended| ended.unwrap_or_else(|_| bail!("recording failed")))
    })?;
    progress.finish();
    Ok(())
}

fn record_one(binary: &Binary, name: &str, folder: &Path) -> anyhow::Result<[String; 5]> {
    let places = folder.join("places");
    let _ = fs::remove_file(&places);
    let chosen = format!("reached:{}", places.display());
    let started = Instant::now();
    let ended = Run {
        binary,
        tests: &[(name, LIMIT)],
        chosen: Some(&chosen),
        scratch: &folder.join("scratch"),
        end: None,
    }
    .run()?;
    let time = started.elapsed().as_micros();
    if ended == Ended::Interrupted {
        bail!("interrupted");
    }
    let passes = match ended == Ended::Passed {
        true => "passes",
        false => "fails",
    };
    let mut reached: Vec<u32> = fs::read(&places)
        .unwrap_or_default()
        .chunks_exact(4)
        .filter_map(|number| Some(u32::from_le_bytes(number.try_into().ok()?)))
        .collect();
    reached.sort_unstable();
    reached.dedup();
    let mut before = 0;
    let differences = reached.iter().map(|&place| {
        let difference = place - before;
        before = place;
        difference.to_string()
    });
    let reached: Vec<String> = differences.collect();
    Ok([
        binary.name.clone(),
        name.to_owned(),
        passes.to_owned(),
        time.to_string(),
        reached.join(","),
    ])
}

fn read(binaries: &[Binary], rows: &[Vec<String>]) -> Reach {
    let mut reach = Reach::default();
    for row in rows {
        let [program, name, passes, time, reached] = &row[..] else {
            continue;
        };
        let Some(binary) = binaries.iter().position(|binary| binary.name == *program) else {
            continue;
        };
        if passes != "passes" {
            reach.failing.push(format!("{program} {name}"));
            continue;
        }
        let index = reach.tests.len();
        reach.tests.push(Test {
            binary,
            name: name.clone(),
            time: Duration::from_micros(time.parse().unwrap_or(0)),
        });
        let mut place = 0;
        for difference in reached
            .split(',')
            .filter_map(|text| text.parse::<u32>().ok())
        {
            place += difference;
            reach.of_place.entry(place).or_default().push(index);
        }
    }
    let times: Vec<Duration> = reach.tests.iter().map(|test| test.time).collect();
    for tests in reach.of_place.values_mut() {
        tests.sort_by_key(|&test| times[test]);
    }
    reach
}

/// A lock. A thread that panicked has not left half of anything behind it.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_which_tests_reach_a_place() {
        let binary = Binary {
            name: "p suite".to_owned(),
            program: "p".into(),
            folder: ".".into(),
        };
        let rows = [
            ["p suite", "slow", "passes", "5000", "3,4"],
            ["p suite", "fast", "passes", "1000", "7"],
            ["p suite", "broken", "fails", "1000", "7"],
            ["p gone", "other", "passes", "1000", "7"],
            ["p suite", "nothing", "passes", "1000", ""],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let reach = read(&[binary], &rows);
        let names = |place| {
            let tests = reach.of_place.get(&place).into_iter().flatten();
            let names = tests.map(|&test| &*reach.tests[test].name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(3), ["slow"]);
        assert_eq!(names(7), ["fast", "slow"]);
        assert_eq!(names(4), [""; 0]);
        assert_eq!(reach.failing, ["p suite broken"]);
        assert_eq!(reach.tests.len(), 3);
    }
}
