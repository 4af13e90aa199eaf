//! `coalesce profile`: what the calls of a GPU's driver cost.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use coalesce_bench::measure::results;
use coalesce_bench::timing::device::DeviceName;
use coalesce_bench::timing::machine;
use coalesce_bench::timing::profile;
use coalesce_bench::timing::profile::measure::{Effort, measure};

use super::output::print;

/// Measure what the calls of a GPU's driver cost, and write the profile that the simulated device charges by.
///
/// Memory is taken, mapped and given back in sizes from 2 MiB to 16 GiB, as far as it is free, and events and
/// streams are used, each call alone on an idle device. Of each call there is a line through the medians: so
/// much whatever it is about, and so much for each MiB. Nothing is left on the device, also if this is
/// interrupted. `--profile FILE` of the other verbs takes what is written.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce profile --device cuda:0 --out h200.toml --samples h200.csv"
)]
pub struct Args {
    /// The GPU: cuda:0, or auto for the first.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Where the profile is written to; to standard output if it is not given.
    #[arg(long, value_name = "TOML")]
    out: Option<PathBuf>,
    /// Where a table of all medians and how far the times spread is written to.
    #[arg(long, value_name = "CSV")]
    samples: Option<PathBuf>,
    /// How often each call is made.
    #[arg(long, default_value_t = Effort::default().rounds, value_parser = clap::value_parser!(u32).range(3..))]
    rounds: u32,
    /// Seconds for each size, after which it is not made so often.
    #[arg(long, default_value_t = Effort::default().time.as_secs_f64(), value_parser = seconds)]
    seconds: f64,
}

/// A time, as it is written on the command line.
pub fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds: f64 = text.parse().map_err(|_| "no number of seconds")?;
    match (0.0..=3600.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("write 0 to 3600 seconds"),
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut device = args.device.open_gpu()?;
    let machine = machine::with_gpu(&device);
    eprintln!("{machine}");
    let begun = Instant::now();
    let clock = |_: &_| u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let effort = Effort {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
        ..Effort::default()
    };
    let samples = measure(&mut device, &clock, effort).context("the device failed")?;
    let text = profile::written(&machine, &samples);
    if let Some(table) = &args.samples {
        results::write(table, profile::table(&samples).as_bytes())?;
    }
    match &args.out {
        Some(out) => results::write(out, text.as_bytes())?,
        None => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}
