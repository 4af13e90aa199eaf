//! `coalesce advise`: the settings under which a workload needs the least memory.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use coalesce_advisor::report::{html, text};
use coalesce_advisor::{AdviceRequest, Aim, advise};
use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::results;
use coalesce_workloads::cached::Cached;

use super::conditions::ConditionFlags;
use super::history;
use super::output::print;

/// Find the settings (PYTORCH_CUDA_ALLOC_CONF) that need the least memory.
///
/// Replays the workload under many settings. Reports how much memory it needs, how much of the reserved memory
/// is lost to fragmentation, which settings need less, their cost in driver time, and the smallest device on
/// which each of them works. Writes its output at the end, so an interrupted search leaves no partial files.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce advise workloads/traces/bert_base_dynpad_amp.csv.gz --capacity 8GiB"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or gzip-compressed; or the name of a preset.
    workload: String,
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Goal: run on the smallest device, spend the least time in the driver, or reserve the least memory on
    /// a roomy device.
    #[arg(long = "for", value_name = "AIM", default_value = "least-capacity", value_parser = aim)]
    aim: Aim,
    /// Cost of driver calls: `published`, or a TOML file like benches/profiles/published.toml.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// Seconds to search; 0 for no limit. Steps in progress are finished, and the diagnosis and the verification
    /// of a snapshot always run, so the command can take longer.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "15",
        allow_negative_numbers = true
    )]
    time_limit: f64,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
    /// Also write a self-contained HTML report.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn aim(text: &str) -> Result<Aim, String> {
    let known = Aim::ALL.map(Aim::name);
    let aim = Aim::ALL.into_iter().find(|aim| aim.name() == text);
    aim.ok_or_else(|| format!("expected one of: {}", known.join(", ")))
}

/// Perturbed copies of the workload to test the advice on.
const COPIES: u64 = 8;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.conditions.open(&args.workload)?;
    history::require(&input, &args.workload)?;
    let conditions = args.conditions.resolve(&input, REFERENCE)?;
    let mut remarks = input.remarks.clone();
    remarks.extend(conditions.sources.iter().cloned());
    let workload = Cached::of(input.workload.as_ref())?;
    let profile = Profile::load(&args.profile, Path::new(""))?;
    let request = AdviceRequest {
        workload: &workload,
        // A trace does not react to results, and reading the file for every replay would be slow.
        reactive: match input.recording {
            Some(_) => input.workload.as_ref(),
            None => &workload,
        },
        recording: input.recording.as_ref(),
        remarks: &remarks,
        present: &conditions.present,
        capacity: conditions.capacity,
        others: conditions.others,
        limit: conditions.limit,
        aim: args.aim,
        profile: &profile,
        addresses: conditions.addresses,
        time_limit: time_limit(args.time_limit)?,
        copies: COPIES,
    };
    let advice = advise(&request)?;
    if let Some(path) = &args.html {
        results::write(path, html::page(&request, &advice)?.as_bytes())?;
    }
    let page = match args.json {
        true => serde_json::to_string_pretty(&advice)? + "\n",
        false => text::page(&advice),
    };
    print(&page)?;
    Ok(ExitCode::SUCCESS)
}

fn time_limit(seconds: f64) -> anyhow::Result<Option<Duration>> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let limit = Duration::try_from_secs_f64(seconds);
    limit
        .map(Some)
        .with_context(|| format!("--time-limit {seconds}: expected a number of seconds"))
}
