//! `coalesce place`: offsets for buffers with known lifetimes.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use coalesce_alloc::placement::{Effort, Placement, lower_bound, pack_watched};
use coalesce_bench::measure::progress::Progress;
use coalesce_workloads::formats::minimalloc::{self, Instance};
use coalesce_workloads::formats::source::Source;
use schemars::JsonSchema;
use serde::Serialize;

use super::files::{InputPath, OutputFile};
use super::input::source;
use super::output::{self, ensure_apart, is_stdout, print, print_json};

/// Find offsets for buffers with known lifetimes, in as little memory as possible.
///
/// The peak of live bytes is a lower bound. Several packing algorithms run in turn until one of them reaches it or
/// the time is up.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce convert workloads/traces/resnet50_fp32_fixed224.csv.gz resnet50.csv --to minimalloc\n  coalesce place resnet50.csv --out placed.csv"
)]
pub struct Args {
    /// A CSV in MiniMalloc's format, with a buffer on each line: id,lower,upper,size; `-` for standard input.
    instance: InputPath,
    /// Seconds to search. The result depends on the speed of the machine.
    #[arg(long, default_value = "5", value_parser = seconds, conflicts_with = "steps")]
    seconds: Duration,
    /// Steps to search, for a result that is the same on every machine. A million steps take about a second.
    #[arg(long)]
    steps: Option<u64>,
    /// Output file for the instance with offsets. Updated with every better placement, so that an interrupted
    /// search leaves the best one. `-` prints the best one at the end, instead of the text.
    #[arg(long, value_name = "CSV")]
    out: Option<OutputFile>,
    /// Print a JSON object, which `coalesce schema place` describes.
    #[arg(long)]
    json: bool,
}

/// The outcome of a search.
#[derive(JsonSchema, Serialize)]
pub struct PlaceReport {
    /// The number of buffers.
    buffers: usize,
    /// The peak of live bytes.
    lower_bound: u64,
    /// Bytes that the placement needs.
    height: u64,
    /// `height / lower_bound`.
    ratio: f64,
    /// Seconds of search until the placement was found.
    found_after_s: f64,
    /// The algorithm that found it.
    packer: &'static str,
    /// The offset of each buffer, in the order of the instance.
    offsets: Vec<u64>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a number of seconds, such as 5 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// A placement, and the search time until it was found.
struct Found {
    placement: Placement,
    after: Duration,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_printed = args.out.as_deref().is_some_and(is_stdout);
    ensure_apart(("--json", args.json), ("--out -", is_printed))?;
    if let Some(path) = &args.out {
        output::ensure_folder(path)?;
    }
    let source = source(&args.instance);
    let instance = minimalloc::read(source.clone())?;
    let found = search(args, &instance).with_context(|| source.to_string())?;
    found.placement.check(&instance.buffers)?;
    if let Some(path) = &args.out {
        output::write(path, &placed(&instance, &found.placement)?)?;
    }
    if args.json {
        print_json(&report(&instance, &found))?;
    } else if !is_printed {
        print(&describe(&source, &instance, &found))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Packs on a separate thread, so that this one can show progress.
fn search(args: &Args, instance: &Instance) -> anyhow::Result<Found> {
    const TICK: Duration = Duration::from_secs(1);
    let effort = args.steps.map_or(Effort::Time(args.seconds), Effort::Steps);
    let total = args.steps.is_none().then_some(args.seconds.as_secs());
    let progress = Progress::new("seconds", total);
    let bound = lower_bound(&instance.buffers);
    let best = Mutex::new(String::new());
    let begun = Instant::now();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let packing = scope.spawn(|| {
            let _done = done;
            let mut after = Duration::ZERO;
            let placement = pack_watched(&instance.buffers, effort, &mut |placement| {
                after = begun.elapsed();
                if let Ok(mut best) = best.lock() {
                    *best = format!("{} x lower bound", ratio(placement.height, bound));
                }
                // An error is reported by the last write.
                let _ = save(args, instance, placement);
            });
            placement.map(|placement| Found { placement, after })
        });
        while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if let Ok(best) = best.lock() {
                progress.add(1, &best);
            }
        }
        let placed = packing.join().map_err(|_| anyhow!("the search failed"))?;
        Ok(placed?)
    })
}

/// Writes a placement to the output file, if there is one.
fn save(args: &Args, instance: &Instance, placement: &Placement) -> anyhow::Result<()> {
    match args.out.as_deref() {
        Some(path) if !is_stdout(path) => output::write(path, &placed(instance, placement)?),
        _ => Ok(()),
    }
}

/// The instance with the offsets of a placement.
fn placed(instance: &Instance, placement: &Placement) -> anyhow::Result<Vec<u8>> {
    let mut csv = Vec::new();
    minimalloc::write(instance, Some(&placement.offsets), &mut csv)?;
    Ok(csv)
}

fn ratio(height: u64, bound: u64) -> String {
    format!("{:.4}", height as f64 / bound.max(1) as f64)
}

fn report(instance: &Instance, found: &Found) -> PlaceReport {
    let Placement { height, packer, .. } = found.placement;
    let bound = lower_bound(&instance.buffers);
    PlaceReport {
        buffers: instance.buffers.len(),
        lower_bound: bound,
        height,
        ratio: height as f64 / bound.max(1) as f64,
        found_after_s: found.after.as_secs_f64(),
        packer,
        offsets: found.placement.offsets.clone(),
    }
}

fn describe(source: &Source, instance: &Instance, found: &Found) -> String {
    let Placement { height, packer, .. } = found.placement;
    let bound = lower_bound(&instance.buffers);
    let seconds = found.after.as_secs_f64();
    let mut text = format!("{source}: {} buffers\n\n", instance.buffers.len());
    for (name, figure, meaning) in [
        ("lower bound", bound.to_string(), "peak of live bytes"),
        (
            "height",
            height.to_string(),
            "memory that the placement needs",
        ),
        ("ratio", ratio(height, bound), "height / lower bound"),
        ("found after", format!("{seconds:.2} s"), packer),
    ] {
        text.push_str(&format!("{name:<12}{figure:>20}  {meaning}\n"));
    }
    text
}
