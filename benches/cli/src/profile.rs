//! `coalesce profile`: measures the cost of driver calls.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use coalesce_alloc::driver::DriverError;
use coalesce_bench::timing::device::DeviceName;
use coalesce_bench::timing::machine;
use coalesce_bench::timing::profile;
use coalesce_bench::timing::profile::measure::{Effort, measure};
use coalesce_bench::timing::profile::{clearing, contention};
use coalesce_workloads::formats::source::STANDARD_STREAM;

use super::files::OutputFile;
use super::output::{self, ensure_apart, is_stdout, notice};

/// Measure the cost of driver calls on a GPU, and write a cost profile.
///
/// The simulated device charges its calls by such a profile.
/// Measures each call alone on an idle device: those that allocate, map and free memory, in sizes from 2 MiB to 16 GiB as
/// far as memory is free, and those of events, streams and the device's pool. The profile has a fixed cost and a cost per
/// MiB for each call, fitted to the means. Also measures how fast the device clears memory that is returned, for which all
/// memory is taken for a moment, and how much longer calls take among kernels. All memory is freed at the end. Pass the
/// file to other verbs with `--profile FILE`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce profile --device cuda:0 --out h200.toml --samples h200.csv"
)]
pub struct Args {
    /// GPU: cuda:0, or auto for the first.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Output file for the profile; `-` for standard output.
    #[arg(long, value_name = "TOML", default_value = STANDARD_STREAM)]
    out: OutputFile,
    /// Output file for a table of medians and percentiles; `-` for standard output.
    #[arg(long, value_name = "CSV")]
    samples: Option<OutputFile>,
    /// Number of times to make each call.
    #[arg(long, default_value_t = Effort::default().rounds, value_parser = clap::value_parser!(u32).range(3..))]
    rounds: u32,
    /// Seconds for each size. Once they have passed, fewer calls are made.
    #[arg(long, default_value_t = Effort::default().time.as_secs_f64(), value_parser = seconds)]
    seconds: f64,
}

/// Parses a number of seconds on the command line.
pub fn seconds(text: &str) -> Result<f64, &'static str> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if (0.0..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("expected 0 to 3600 seconds")
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let are_samples_printed = args.samples.as_deref().is_some_and(is_stdout);
    ensure_apart(
        ("--samples", are_samples_printed),
        ("--out", is_stdout(&args.out)),
    )?;
    let mut files = args.samples.iter().chain([&args.out]);
    files.try_for_each(|path| output::ensure_folder(path))?;
    let mut device = args.device.open_gpu()?;
    let machine = machine::with_gpu(&device);
    notice(&format!("measuring on this machine:\n{machine}"));
    let begun = Instant::now();
    let clock = |_: &_| u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let effort = Effort {
        rounds: args.rounds,
        time: Duration::from_secs_f64(args.seconds),
        ..Effort::default()
    };
    let samples = measure(&mut device, &clock, effort).context("the device failed")?;
    let rest = |bytes| effort.rest(bytes);
    let cleared = clearing::measure(&mut device, &clock, &rest);
    let clearing = unless_short(cleared, "how fast returned memory is cleared")?;
    let contention = contention::measure(&mut device, &clock);
    let percent = unless_short(contention, "how much longer calls take among kernels")?;
    let text = profile::toml(&machine, &samples, clearing, percent);
    if let Some(table) = &args.samples {
        output::write(table, profile::table(&samples).as_bytes())?;
    }
    output::write(&args.out, text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The measured value, or the default if there was too little memory. What was measured before is then not lost.
fn unless_short<T: Default>(measured: Result<T, DriverError>, what: &str) -> anyhow::Result<T> {
    match measured {
        Err(DriverError::OutOfMemory) => {
            notice(&format!("not measured for lack of memory: {what}"));
            Ok(T::default())
        }
        measured => measured.context("the device failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_memory_is_left_out_and_other_errors_end_the_measurement() {
        assert_eq!(unless_short(Ok(7), "it").unwrap(), 7);
        let found = unless_short::<u64>(Err(DriverError::OutOfMemory), "it").unwrap();
        assert_eq!(found, 0);
        let failed = unless_short::<u64>(Err(DriverError::InvalidValue), "it").unwrap_err();
        assert_eq!(format!("{failed:#}"), "the device failed: invalid argument");
    }
}
