//! `coalesce model`: whether driver calls cost what a profile says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::cell::Cell;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::measure::results;
use coalesce_bench::timing::bench::record;
use coalesce_bench::timing::device::DeviceName;
use coalesce_bench::timing::model;
use coalesce_bench::timing::on_gpu;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::input::Input;
use coalesce_workloads::presets;

use super::output::print;
use super::profile::seconds;

/// Hold what a profile says that driver calls cost against what they take on a GPU.
///
/// Every program is replayed on the GPU by PyTorch's allocator, with its default settings and with expandable
/// segments, and by the driver's own pool. The calls that it makes are timed, and charged by the profile: the
/// ratio of the two is what the simulated device is wrong by.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce model --device cuda:0 --profile h200.toml --out model.csv"
)]
pub struct Args {
    /// What is replayed, as for `coalesce replay`; all presets if there is none.
    programs: Vec<String>,
    /// The GPU: cuda:0, or auto for the first.
    #[arg(long, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// What the calls should cost: `published`, or a TOML file as `coalesce profile` writes it.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// Begin no program after so many seconds.
    #[arg(long, default_value_t = 600.0, value_parser = seconds)]
    seconds: f64,
    /// Write a row for each run and kind of call into this file, after each program what there is.
    #[arg(long, value_name = "CSV")]
    out: Option<PathBuf>,
}

/// What is run: policy, name, settings.
const RUNS: [(&str, &str, &str); 3] = [
    ("pytorch", "default", ""),
    ("pytorch", "expandable", "expandable_segments:True"),
    ("cuda_async", "default", ""),
];

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // It stays open, so that the context does.
    let open = args.device.open_gpu()?;
    let number = open.ordinal();
    let profile = Profile::load(&args.profile, Path::new(""))?;
    let programs = match args.programs.is_empty() {
        true => presets::list()?
            .iter()
            .map(|preset| preset.name.clone())
            .collect(),
        false => args.programs.clone(),
    };
    let until = Deadline::after(Some(Duration::from_secs_f64(args.seconds)));
    let progress = Progress::new("programs", Some(programs.len() as u64));
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for program in &programs {
        if until.has_passed() {
            left_out.push(program.as_str());
            continue;
        }
        let input = Input::open(program, None)?;
        for (policy, setting, conf) in RUNS {
            let cell = Cell {
                workload: &*input.workload,
                demand: Demand::default(),
                policy,
                setting,
                conf,
                plan: None,
                others: 0,
                address_policy: AddressPolicy::default(),
                profile: &profile,
            };
            let device = CudaDevice::open(number, StreamHandles::Numbered)?;
            let (row, times) = on_gpu::measure(&cell, device, &mut ())?;
            rows.extend(model::rows(
                &row.workload,
                policy,
                setting,
                row.ooms,
                &times,
            ));
        }
        if let Some(out) = &args.out {
            results::write(out, &record::csv(&rows)?)?;
        }
        progress.add(1, program);
    }
    drop(progress);
    if !left_out.is_empty() {
        eprintln!("coalesce: no time for {}", left_out.join(", "));
    }
    print(&model::markdown(&rows))?;
    Ok(ExitCode::SUCCESS)
}
