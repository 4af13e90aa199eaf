//! What the throughput benchmark makes of its arguments.
//!
//! Tests cannot start the executable of a benchmark, so this program is one: it has no test harness and contains the
//! benchmark, and starts itself as such.

use std::env;
use std::process::{Command, Output};

#[path = "../throughput.rs"]
mod throughput;

/// Set where this program is the benchmark.
const IS_BENCHMARK: &str = "COALESCE_TEST_BENCHMARK";

fn main() -> anyhow::Result<()> {
    if env::var_os(IS_BENCHMARK).is_some() {
        return throughput::main();
    }
    a_filter_without_a_match_is_named_beside_the_benchmarks();
    a_match_runs_and_a_list_is_complete();
    filters_of_other_tests_are_no_error();
    baselines_work();
    Ok(())
}

fn a_filter_without_a_match_is_named_beside_the_benchmarks() {
    for arguments in [
        "NOSUCH",
        "NOSUCH --test",
        "--exact hot_4KiB",
        "hot_4KiB$ --save-baseline x",
    ] {
        let answer = run(&format!("--bench {arguments}"));
        assert_eq!(answer.status.code(), Some(1), "{arguments}");
        let error = String::from_utf8_lossy(&answer.stderr);
        let message =
            format!("no benchmark matches `{arguments}`. There are:\n  hot_4KiB/default\n");
        assert!(error.contains(&message), "{arguments}: {error}");
        let is_told = error.contains("\n  record_stream_4_streams/expandable\n");
        assert!(is_told, "{error}");
    }
}

fn a_match_runs_and_a_list_is_complete() {
    let tested = stdout("--bench --test --exact hot_4KiB/default");
    assert_eq!(tested.matches("Success").count(), 1, "{tested}");
    let found = stdout("--bench --test hot_4KiB").matches("Success").count();
    assert_eq!(found, 2);
    assert_eq!(stdout("--bench --list").matches(": benchmark").count(), 18);
    assert_eq!(
        stdout("--bench --list hot_4KiB")
            .matches(": benchmark")
            .count(),
        2
    );
    stdout("--bench --list NOSUCH");
    stdout("--bench --ignored");
}

/// `cargo test --benches NAME` gives the name of a test to benchmarks too.
fn filters_of_other_tests_are_no_error() {
    stdout("NOSUCH");
    assert_eq!(stdout("hot_4KiB").matches("Success").count(), 2);
}

fn baselines_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let short =
        "--bench --exact hot_4KiB/default --noplot --warm-up-time 0.01 --measurement-time 0.01";
    for (further, says) in [
        ("--save-baseline x", "time:"),
        ("--baseline x", "change:"),
        ("--load-baseline x --baseline x", "change:"),
    ] {
        let answer = command(&format!("{short} {further}"))
            .env("CRITERION_HOME", folder.path())
            .output()
            .expect("this program can start itself");
        assert!(answer.status.success(), "{further}: {answer:?}");
        let text = String::from_utf8_lossy(&answer.stdout);
        assert!(text.contains(says), "{further}: {text}");
    }
}

/// The benchmark with these arguments, on the simulated device.
fn command(arguments: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command
        .args(arguments.split(' '))
        .env(IS_BENCHMARK, "1")
        .env_remove("COALESCE_DEVICE");
    command
}

fn run(arguments: &str) -> Output {
    let answer = command(arguments).output();
    answer.expect("this program can start itself")
}

/// What a run prints that must succeed.
fn stdout(arguments: &str) -> String {
    let answer = run(arguments);
    assert!(answer.status.success(), "{arguments}: {answer:?}");
    String::from_utf8_lossy(&answer.stdout).into_owned()
}
