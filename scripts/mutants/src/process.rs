//! Runs tests with limits of time and memory.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::compile::Binary;

/// Set when the program is to end: no test is started, and those that run are ended.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The variable that chooses a mutant, as the switch knows it.
const VARIABLE: &str = "COALESCE_MUTANT";

/// Memory that a test may map, in KiB.
const MEMORY_KIB: u64 = 6 << 20;

/// The size of a file that a test may write, in blocks of 512 bytes.
const FILE_BLOCKS: u64 = 2 << 20;

/// The seed of all property tests, so that a run can be repeated.
const SEED: &str = "1";

/// A run of some tests of a program.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program.
    pub binary: &'a Binary,
    /// The names of the tests, each with its time limit.
    pub tests: &'a [(&'a str, Duration)],
    /// The variable of the switch; `None` for the unchanged program.
    pub chosen: Option<&'a str>,
    /// An own folder for temporary files. It is emptied.
    pub scratch: &'a Path,
    /// The run is interrupted at this time.
    pub end: Option<Instant>,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// All tests passed.
    Passed,
    /// This test failed, or was running when the program crashed.
    Failed(String),
    /// This test exceeded its time limit.
    Hung(String),
    /// A signal or the end of its time interrupted the run.
    Interrupted,
}

impl Run<'_> {
    /// Runs the tests one after the other, until one fails.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn run(&self) -> anyhow::Result<Ended> {
        // What an earlier test left behind, which may have removed its folder.
        let _ = fs::remove_dir_all(self.scratch);
        fs::create_dir_all(self.scratch)
            .with_context(|| format!("{} cannot be created", self.scratch.display()))?;
        let mut child = self.start()?;
        let ended = self.follow(&mut child);
        if !matches!(child.try_wait(), Ok(Some(_))) {
            kill(&child);
            child.wait().context("a test does not end")?;
        }
        ended
    }

    fn start(&self) -> anyhow::Result<Child> {
        let time = self.tests.iter().map(|&(_, limit)| limit).sum();
        let mut shell = limited(&self.binary.program, time);
        shell.args(["--exact", "--test-threads=1", "--color=never"]);
        shell.args(self.tests.iter().map(|(name, _)| name));
        shell
            .current_dir(&self.binary.folder)
            .env_remove(VARIABLE)
            .env_remove("PROPTEST_CASES")
            .env("CARGO_MANIFEST_DIR", &self.binary.folder)
            .env("PROPTEST_RNG_SEED", SEED)
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("RUST_BACKTRACE", "0")
            .env("TMPDIR", self.scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        if let Some(chosen) = self.chosen {
            shell.env(VARIABLE, chosen);
        }
        shell
            .spawn()
            .with_context(|| format!("{} cannot be run", self.binary.program.display()))
    }

    /// Reads what the tests print until they end, or one fails or exceeds its time limit.
    fn follow(&self, child: &mut Child) -> anyhow::Result<Ended> {
        let output = child.stdout.take().context("the output is not piped")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender
                    .send(String::from_utf8_lossy(&line).into_owned())
                    .is_err()
                {
                    break;
                }
            }
        });
        let mut progress = Progress::new(self.tests);
        loop {
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) if progress.note(&line) => return Ok(Ended::Failed(progress.current())),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let is_over = self.end.is_some_and(|end| Instant::now() > end);
                    if is_over || INTERRUPTED.load(Ordering::Relaxed) {
                        return Ok(Ended::Interrupted);
                    }
                    if progress.hangs() {
                        return Ok(Ended::Hung(progress.current()));
                    }
                }
            }
        }
        let status = child.wait().context("the test cannot be waited for")?;
        // A signal is for all programs, but reaches them in any order.
        if INTERRUPTED.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        Ok(match status.success() {
            true => Ended::Passed,
            false => Ended::Failed(progress.current()),
        })
    }
}

/// The names of the tests of a program that are not ignored.
///
/// # Errors
/// If they cannot be listed.
pub fn tests(binary: &Binary) -> anyhow::Result<Vec<String>> {
    let list = |more: &[&str]| -> anyhow::Result<Vec<String>> {
        let mut program = Command::new(&binary.program);
        program.args(["--list", "--format=terse"]).args(more);
        let cannot = || format!("the tests of {} cannot be listed", binary.name);
        let output = program
            .current_dir(&binary.folder)
            .output()
            .with_context(cannot)?;
        let text = String::from_utf8(output.stdout).with_context(cannot)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    };
    let ignored = list(&["--ignored"])?;
    let mut names = list(&[])?;
    names.retain(|name| !ignored.contains(name));
    Ok(names)
}

/// A shell that becomes a program after it has set limits. They hold for the programs that this one starts, too.
fn limited(program: &Path, limit: Duration) -> Command {
    let mut shell = Command::new("sh");
    // A test of several threads uses more processor time than it takes.
    let seconds = 4 * limit.as_secs() + 60;
    let sizes = format!("ulimit -v {MEMORY_KIB}; ulimit -f {FILE_BLOCKS}; ulimit -c 0");
    let limits = format!("{sizes}; ulimit -t {seconds}; exec \"$@\"");
    shell.args(["-c", &limits, "sh"]).arg(program);
    shell
}

/// Ends a program and those that it has started.
fn kill(child: &Child) {
    let group = format!("kill -KILL -{} 2>/dev/null", child.id());
    // Usually all have ended.
    let _ = Command::new("sh").args(["-c", &group]).status();
}

/// Which test runs, by what the program has printed.
struct Progress<'a> {
    tests: &'a [(&'a str, Duration)],
    current: Option<String>,
    /// When the current test started.
    since: Instant,
}

impl<'a> Progress<'a> {
    fn new(tests: &'a [(&'a str, Duration)]) -> Self {
        Self {
            tests,
            current: None,
            since: Instant::now(),
        }
    }

    /// Whether the current test has exceeded its time limit.
    fn hangs(&self) -> bool {
        let current = self.current();
        let mut tests = self.tests.iter();
        let limit = tests.find_map(|&(name, limit)| (name == current).then_some(limit));
        // What a test prints can look like the name of another test.
        let longest = || self.tests.iter().map(|&(_, limit)| limit).max();
        let limit = limit.or_else(longest).unwrap_or_default();
        self.since.elapsed() > limit
    }

    /// Notes a line, and returns whether it says that a test failed.
    fn note(&mut self, line: &str) -> bool {
        let name = line.strip_prefix("test ").and_then(|rest| {
            let (name, _) = rest.split_once(" ... ")?;
            Some(name.trim_end_matches(" - should panic"))
        });
        if let Some(name) = name {
            self.current = Some(name.to_owned());
        }
        if line.ends_with(" ok") || line == "ok" {
            self.current = self.next();
            self.since = Instant::now();
        }
        !line.starts_with("test result") && line.ends_with("FAILED")
    }

    /// The test that comes after the current one: they run in the order of their names.
    fn next(&self) -> Option<String> {
        let current = self.current.as_deref()?;
        let names = self.tests.iter().map(|&(name, _)| name);
        let after = names.filter(|name| *name > current);
        after.min().map(str::to_owned)
    }

    /// The test that runs; the first, if none has ended.
    fn current(&self) -> String {
        let names = self.tests.iter().map(|&(name, _)| name);
        let first = || names.min().unwrap_or_default().to_owned();
        self.current.clone().unwrap_or_else(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_tells_which_test_runs() {
        let tests = ["a::c", "a::b", "d"].map(|name| (name, Duration::ZERO));
        let mut progress = Progress::new(&tests);
        assert_eq!(progress.current(), "a::b");
        assert!(!progress.note("running 3 tests"));
        assert!(!progress.note("test a::b ... ok"));
        assert_eq!(progress.current(), "a::c");
        assert!(!progress.note("test a::c - should panic ... noise"));
        assert!(!progress.note("ok"));
        assert_eq!(progress.current(), "d");
        assert!(progress.note("test d ... FAILED"));
        assert_eq!(progress.current(), "d");
        assert!(!progress.note("test result: FAILED. 2 passed"));
    }

    fn run(script: &str, limits: [Duration; 2]) -> (Ended, Duration) {
        run_until(script, limits, None)
    }

    fn run_until(script: &str, [a, b]: [Duration; 2], end: Option<Instant>) -> (Ended, Duration) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        let binary = Binary {
            name: "p".to_owned(),
            program,
            folder: folder.path().to_owned(),
        };
        let started = Instant::now();
        let run = Run {
            binary: &binary,
            tests: &[("a", a), ("b", b)],
            chosen: Some("7"),
            scratch: &folder.path().join("scratch"),
            end,
        };
        (run.run().unwrap(), started.elapsed())
    }

    const LONG: Duration = Duration::from_secs(50);
    const SHORT: Duration = Duration::from_millis(200);
    /// A test that is ended does not take its whole time, even on a busy machine.
    const SOON: Duration = Duration::from_secs(40);

    #[test]
    fn a_run_ends_as_its_program_does() {
        let long = [LONG; 2];
        assert_eq!(run("echo test a ... ok", long).0, Ended::Passed);
        assert_eq!(run("[ $COALESCE_MUTANT = 7 ]", long).0, Ended::Passed);
        assert_eq!(run("touch $TMPDIR/x", long).0, Ended::Passed);
        let crashed = run("echo test a ... ok; kill -SEGV $$", long).0;
        assert_eq!(crashed, Ended::Failed("b".to_owned()));
    }

    #[test]
    fn a_failure_and_the_end_of_the_time_end_a_run() {
        let (ended, time) = run("echo test a ... FAILED; sleep 100", [LONG; 2]);
        assert_eq!(ended, Ended::Failed("a".to_owned()));
        assert!(time < SOON);
        let (ended, time) = run_until("sleep 100", [LONG; 2], Some(Instant::now() + SHORT));
        assert_eq!(ended, Ended::Interrupted);
        assert!(time < SOON);
    }

    #[test]
    fn each_test_has_its_own_time_limit() {
        let (ended, time) = run("echo test a ... ok; sleep 100", [LONG, SHORT]);
        assert_eq!(ended, Ended::Hung("b".to_owned()));
        assert!(time < SOON);
        let (ended, _) = run("sleep 1; echo test a ... ok", [LONG, SHORT]);
        assert_eq!(ended, Ended::Passed);
        let (ended, _) = run("sleep 100", [SHORT, LONG]);
        assert_eq!(ended, Ended::Hung("a".to_owned()));
    }
}
