//! `coalesce model`: how accurate a cost profile is on a GPU.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use coalesce_alloc::Kernels;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::measure::cell::Cell;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::timing::bench::record;
use coalesce_bench::timing::device::DeviceName;
use coalesce_bench::timing::{self, model, scale};
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::presets;

use super::files::OutputFile;
use super::input;
use super::output::{self, is_stdout, notice, print, print_bytes};
use super::profile::seconds;

/// Compare the driver times of a cost profile with those measured on a GPU.
///
/// Replays each workload under the reference, with default settings and with expandable segments, and under the
/// driver's own pool: once on the simulated device, and several times on the GPU, whose times vary from run to run. Prints
/// the simulated time of the driver calls, the median of the measured times, and their ratio.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce profile --device cuda:0 --out measured.toml\n  coalesce model --device cuda:0 --profile \
                  measured.toml --scaled h200.toml"
)]
pub struct Args {
    /// Workloads as for `coalesce replay`. Default: all presets.
    workloads: Vec<String>,
    /// GPU: cuda:0, or auto for the first.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// Cost profile: `published`, `h100`, `h200`, or a TOML file written by `coalesce profile`.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// Number of times to replay each workload on the GPU.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run a kernel after each request, 4 µs and 1 µs for each MiB of its block, so that work is pending when memory is freed.
    #[arg(long)]
    kernels: bool,
    /// Start no further workload after this many seconds.
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    seconds: f64,
    /// Write a row for each run and kind of call into this file, updated after each workload; `-`
    /// prints them at the end, instead of the table.
    #[arg(long, value_name = "CSV")]
    out: Option<OutputFile>,
    /// Also write the profile into this file, with the cost of each call scaled to what it took in these programs. Test
    /// the result on other programs.
    #[arg(long, value_name = "TOML")]
    scaled: Option<OutputFile>,
}

/// Runs of each workload: policy, setting name, settings.
const RUNS: [(&str, &str, &str); 3] = [
    ("pytorch", "default", ""),
    ("pytorch", "expandable", "expandable_segments:True"),
    ("cuda_async", "default", ""),
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut files = [&args.out, &args.scaled].into_iter().flatten();
    files.try_for_each(|path| output::ensure_folder(path))?;
    // Keeps the CUDA context alive.
    let open = args.device.open_gpu()?;
    let number = open.ordinal();
    let profile = Profile::load(&args.profile, Path::new(""))?;
    let programs = if args.workloads.is_empty() {
        let presets = presets::list()?.into_iter();
        presets.map(|preset| preset.name).collect()
    } else {
        args.workloads.clone()
    };
    let until = Deadline::after(Some(Duration::from_secs_f64(args.seconds)));
    let kernels = args.kernels.then(Kernels::default);
    let progress = Progress::new("programs", Some(programs.len() as u64));
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for program in &programs {
        if until.has_passed() {
            left_out.push(program.as_str());
            continue;
        }
        let input = input::open(&Source::named(program), None)?;
        for (policy, setting, conf) in RUNS {
            let cell = Cell {
                policy,
                setting,
                conf,
                conditions: ReplayConditions {
                    addresses: AddressPolicy::Cuda,
                    ..ReplayConditions::on(ROOMY)
                },
                ..Cell::new(&*input.workload, &profile)
            };
            let gpu = || Ok(CudaDevice::open(number, StreamHandles::Numbered)?);
            rows.extend(model::compare(&cell, gpu, args.rounds, kernels)?);
        }
        if let Some(out) = args.out.as_deref().filter(|out| !is_stdout(out)) {
            output::write(out, &record::csv(&rows)?)?;
        }
        progress.add(1, program);
    }
    drop(progress);
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        notice(&format!("not measured, out of time: {left_out}"));
    }
    if let Some(out) = &args.scaled {
        let text = timing::profile::scaled(&profile, &scale::factors(&rows));
        output::write(out, text.as_bytes())?;
    }
    if args.out.as_deref().is_some_and(is_stdout) {
        print_bytes(&record::csv(&rows)?)?;
    } else {
        print(&model::markdown(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}
