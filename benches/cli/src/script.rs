//! `coalesce script`: runs or times a conformance script.

use std::io::{BufWriter, Read, Write, stdin, stdout};
use std::process::ExitCode;

use anyhow::Context;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::pytorch::pinned::PinnedAllocator;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_script::bench::{self, BenchOptions};
use coalesce_script::{Options, RunError, Script};
use coalesce_workloads::formats::source::Source;

use super::input::announce;
use super::output::{complain, ensure_stdout};

/// Run a conformance script from standard input and print the reference's decisions.
///
/// Flags, environment variables (PYTORCH_CUDA_ALLOC_CONF, FAKE_TOTAL_BYTES, FAKE_ADDR, ...), output and exit
/// status are those of the oracle in scripts/conformance. Exits with 1 if the settings are invalid, 2 if
/// the script is invalid, and 3 if an operation failed with an error other than out of memory.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  printf 'a x 3000000\\nf x\\np\\n' | coalesce script --stats --cudalog"
)]
pub struct Args {
    /// Print statistics after each operation.
    #[arg(long)]
    stats: bool,
    /// Record the history and print it at the end.
    #[arg(long)]
    history: bool,
    /// Print the device calls that each operation makes.
    #[arg(long)]
    cudalog: bool,
    /// Omit the final statistics and segments.
    #[arg(long)]
    no_final: bool,
    /// Omit the texts of out-of-memory errors.
    #[arg(long)]
    no_oom_msg: bool,
    /// Omit the line for each operation.
    #[arg(long)]
    quiet: bool,
    /// Limit memory to this fraction before the first operation.
    #[arg(long, value_name = "F")]
    fraction: Option<f64>,
    /// Time N replays, after one to warm up.
    #[arg(long, value_name = "N")]
    bench: Option<usize>,
    /// With --bench: repeat the script K times in each run.
    #[arg(long, value_name = "K", default_value_t = 1)]
    inner: usize,
    /// With --bench: run the whole script on each of K threads, with separate streams.
    #[arg(long, value_name = "K", default_value_t = 1)]
    threads: usize,
    /// With --bench and --threads 2: one thread runs the script, the other frees its blocks.
    #[arg(long, requires = "bench")]
    free_on_other_thread: bool,
    /// With --bench: empty the cache before each run.
    #[arg(long)]
    cold: bool,
    /// With --bench: call the allocator without the lock that threads need to share it.
    #[arg(long, requires = "bench")]
    unlocked: bool,
    /// With --bench: the interface to call; only one exists.
    #[arg(long, value_parser = ["raw"], default_value = "raw")]
    api: String,
    /// Run the script on PyTorch's allocator of pinned host memory.
    #[arg(long, conflicts_with_all = ["bench", "history", "stats", "fraction"])]
    pinned: bool,
    /// The release of PyTorch, for example 2.13.
    #[arg(long, value_name = "RELEASE", default_value_t = Release::DEFAULT)]
    torch: Release,
    /// With --bench: accepted for compatibility with the oracle, without effect.
    #[arg(long)]
    single_thread: bool,
}

const WRONG_SETTINGS: u8 = 1;
const WRONG_SCRIPT: u8 = 2;
const FAILED_OPERATIONS: u8 = 3;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let variable = |name: &str| std::env::var(name).ok();
    ensure_stdout()?;
    announce(&Source::StandardInput);
    let mut text = String::new();
    stdin()
        .read_to_string(&mut text)
        .context("cannot read the script from standard input")?;
    let script = match Script::parse(&text) {
        Ok(script) => script,
        Err(error) => return Ok(fail(WRONG_SCRIPT, &error)),
    };
    let config = SimConfig::from_variables("FAKE", variable)?;
    let settings = match Settings::of_release(args.torch).started_in(variable) {
        Ok(settings) => settings,
        Err(error) => return Ok(fail(WRONG_SETTINGS, &format!("fatal: {error}"))),
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "a script makes its output printable"
    )]
    let mut out = BufWriter::with_capacity(1 << 20, stdout().lock());
    let device = SimDevice::new(&config);
    if args.pinned {
        let mut allocator = PinnedAllocator::new(device, settings);
        let done = coalesce_script::run_pinned(&script, &mut allocator, &mut out);
        out.flush().context("cannot write to standard output")?;
        return exit_code(done);
    }
    let mut allocator = PyTorch::new(device, settings);
    if let Some(fraction) = args.fraction
        && let Err(error) = allocator.set_memory_fraction(fraction)
    {
        return Ok(fail(WRONG_SETTINGS, &format!("fatal: {error}")));
    }
    let code = match args.bench {
        Some(runs) => bench(args, runs, &script, allocator, &mut out)?,
        None => replay(args, &script, &mut allocator, &mut out)?,
    };
    out.flush().context("cannot write to standard output")?;
    Ok(code)
}

fn replay(
    args: &Args,
    script: &Script,
    allocator: &mut PyTorch<SimDevice>,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let options = Options {
        stats: args.stats,
        history: args.history,
        calls: args.cudalog,
        no_final: args.no_final,
        no_oom_message: args.no_oom_msg,
        quiet: args.quiet,
    };
    exit_code(coalesce_script::run(script, allocator, options, out))
}

/// The oracle's status after a script.
fn exit_code(done: Result<usize, RunError>) -> anyhow::Result<ExitCode> {
    match done {
        Ok(0) => Ok(ExitCode::SUCCESS),
        Ok(errors) => Ok(fail(
            FAILED_OPERATIONS,
            &format!(
                "{errors} operations failed for a reason other than out of memory ('err' lines)"
            ),
        )),
        Err(RunError::Fatal(error)) => Ok(fail(WRONG_SETTINGS, &format!("fatal: {error}"))),
        Err(error @ RunError::AlreadyLive { .. }) => Ok(fail(WRONG_SCRIPT, &error)),
        Err(RunError::Output(error)) => Err(error).context("cannot write to standard output"),
    }
}

fn bench(
    args: &Args,
    runs: usize,
    script: &Script,
    mut allocator: PyTorch<SimDevice>,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let options = BenchOptions {
        runs,
        walks: args.inner,
        threads: args.threads,
        free_on_other_thread: args.free_on_other_thread,
        cold: args.cold,
        unlocked: args.unlocked,
    };
    options.validate()?;
    if args.history {
        allocator.record_history(Some(HistoryOptions {
            max_entries: 1 << 20,
            ..HistoryOptions::default()
        }));
    }
    match bench::bench(script, allocator, options, out) {
        Err(error) if error.is::<RunError>() => Ok(fail(WRONG_SCRIPT, &error)),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

fn fail(code: u8, why: &dyn std::fmt::Display) -> ExitCode {
    complain(&why.to_string());
    ExitCode::from(code)
}
