//! `coalesce replay`: how much memory one trace takes.

use std::io::{Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use allocator::bytes;
use allocator::driver::sim::address::AddressPolicy;
use allocator::policy::POLICIES;
use anyhow::Context;
use benches::cell::{self, Cell};
use benches::input;
use benches::profile::{self, Profile};
use benches::progress::Progress;
use benches::record::{PROVENANCE, Row, TIMING};
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde::Serialize;
use workloads::demand::{Demand, DemandCount};
use workloads::op::{Op, WorkloadError};
use workloads::recording::program::FAILED;
use workloads::replay::{Observer, Outcome, Step};

/// Replay a recorded program through an allocator and say how much memory it takes.
///
/// The device is simulated: nothing but the recording is needed. With the settings that a program shall
/// have and the memory of its device, this predicts what PyTorch will report. Requests that find no
/// memory are counted. A trace goes on without them; the program of a snapshot ends, unless it
/// survived failures when it was recorded.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce replay workloads/traces/gpt2_small_amp_foreach.csv.gz --conf expandable_segments:True"
)]
pub struct Args {
    /// A memory snapshot of PyTorch, a trace as described in workloads/traces/README.md, a log of RMM or an
    /// instance of MiniMalloc, plain or compressed with gzip; or a preset of `coalesce workloads`.
    program: String,
    /// The allocator.
    #[arg(long, default_value = "pytorch", value_parser = policies())]
    policy: String,
    /// Its settings, written as for PYTORCH_CUDA_ALLOC_CONF. That variable itself is not read.
    #[arg(long, default_value = "", hide_default_value = true)]
    conf: String,
    /// Memory of the device.
    #[arg(long, default_value = "80GiB", value_parser = bytes::parse)]
    capacity: u64,
    /// Where the device places what it gives: up, down or firstfit. Allocators prefer low addresses,
    /// so the results hold for one of these. If it is not given: as the device of the snapshot did, else
    /// up.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    addresses: Option<AddressPolicy>,
    /// What the device's calls cost: `published`, or a TOML file like benches/profiles/published.toml.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// The device of a snapshot of several.
    #[arg(long, value_name = "NUMBER")]
    device: Option<u32>,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// The allocators, to choose from.
pub fn policies() -> PossibleValuesParser {
    let policies = POLICIES.iter();
    PossibleValuesParser::new(
        policies.map(|policy| PossibleValue::new(policy.name).help(policy.summary)),
    )
}

/// What is printed.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    row: Row,
    first_oom: Option<FailedRequest>,
    /// Requests that failed when they were recorded and do not fail here. What the program does then is
    /// not known, and not part of the figures.
    failures_averted: u64,
    /// What is strange about the recording or not known, one sentence each.
    remarks: Vec<String>,
}

/// The first request that found no memory.
#[derive(Serialize)]
struct FailedRequest {
    /// Counted from 0, all events of the trace included.
    event: u64,
    requested_bytes: u64,
    stream: u32,
    tag: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = input::open(&args.program, args.device)?;
    for remark in &input.remarks {
        eprintln!("coalesce: {remark}");
    }
    let plan = cell::plan(&args.policy, &args.conf, &*input.workload)?;
    let cell = Cell {
        workload: &*input.workload,
        // Counted on the way: a long trace is not read twice.
        demand: Demand::default(),
        policy: &args.policy,
        setting: if args.conf.is_empty() {
            "default"
        } else {
            &args.conf
        },
        conf: &args.conf,
        plan: plan.as_ref(),
        others: 0,
        address_policy: args.addresses.unwrap_or_else(|| input.address_policy()),
        profile: &Profile::load(&args.profile, Path::new(""))?,
    };
    let mut watch = Watch {
        progress: Progress::new("events", None),
        first_oom: None,
        failures_averted: 0,
    };
    let mut count = (DemandCount::default(), &mut watch);
    let row = cell.measure(args.capacity, &mut count)?;
    let row = Row {
        lower_bound_bytes: count.0.demand.lower_bound_bytes,
        ..row
    };
    let report = Report {
        row,
        first_oom: watch.first_oom.take(),
        failures_averted: watch.failures_averted,
        remarks: input.remarks,
    };
    drop(watch);
    let text = if args.json {
        json(&report)?
    } else {
        describe(&report)
    };
    stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// All but what is said of sweeps and of time.
fn json(report: &Report) -> anyhow::Result<String> {
    let mut json = serde_json::to_value(report)?;
    if let Some(object) = json.as_object_mut() {
        object.retain(|column, _| ![&TIMING[..], &PROVENANCE].concat().contains(&&column[..]));
    }
    Ok(serde_json::to_string_pretty(&json)? + "\n")
}

/// Shows how far the replay is, keeps the first failure and counts those that were averted.
struct Watch {
    progress: Progress,
    first_oom: Option<FailedRequest>,
    failures_averted: u64,
}

impl Observer for Watch {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        const EVENTS_A_STEP: u64 = 1 << 12;
        if step.event.is_multiple_of(EVENTS_A_STEP) {
            self.progress.add(EVENTS_A_STEP, "replayed");
        }
        if let (
            None,
            Outcome::OutOfMemory,
            Op::Malloc {
                bytes, stream, tag, ..
            },
        ) = (&self.first_oom, step.outcome, step.op)
        {
            self.first_oom = Some(FailedRequest {
                event: step.event,
                requested_bytes: bytes,
                stream,
                tag: tag.to_owned(),
            });
        }
        if let (Outcome::Placed(_), Op::Malloc { tag, .. }) = (step.outcome, step.op) {
            self.failures_averted += u64::from(tag.starts_with(FAILED));
        }
        Ok(())
    }
}

fn describe(report: &Report) -> String {
    let row = &report.row;
    let mib = |bytes: u64| format!("{:>12.1} MiB", bytes as f64 / (1 << 20) as f64);
    let mut text = format!(
        "{}: {} events, {} allocations\n{}, settings: {}; a device of {}, addresses: {}\n\n",
        row.workload,
        row.events,
        row.allocations,
        row.policy,
        row.setting,
        mib(row.capacity_bytes).trim_start(),
        row.address_policy
    );
    let figures = [
        (
            "peak requested",
            mib(row.peak_requested_bytes),
            "asked for, and given, at one time",
        ),
        (
            "peak allocated",
            mib(row.peak_allocated_bytes),
            "handed out for it",
        ),
        (
            "peak reserved",
            mib(row.peak_reserved_bytes),
            "held from the device",
        ),
        (
            "peak inactive split",
            mib(row.peak_inactive_split_bytes),
            "free, but stuck in segments in use",
        ),
        (
            "efficiency",
            row.efficiency
                .map_or_else(String::new, |share| format!("{:.1} %  ", 100.0 * share)),
            if row.efficiency.is_some() {
                "peak requested / peak reserved"
            } else {
                "none, for requests failed"
            },
        ),
        ("device allocs", row.device_allocs.to_string(), ""),
        ("device frees", row.device_frees.to_string(), ""),
        (
            "retries",
            row.retries.to_string(),
            "all cached memory given back, then asked again",
        ),
        (
            "ooms",
            row.ooms.to_string(),
            "requests that failed; a program ends at the first",
        ),
    ];
    for (name, figure, meaning) in figures {
        text.push_str(format!("{name:<20}{figure:>16}  {meaning}").trim_end());
        text.push('\n');
    }
    if let Some(first) = &report.first_oom {
        text.push_str(&format!(
            "\nthe first to fail: event {}, {} for {}\n",
            first.event,
            mib(first.requested_bytes).trim_start(),
            first.tag
        ));
    }
    if report.failures_averted > 0 {
        text.push_str(&format!(
            "\nrequests that failed when they were recorded and do not fail here: {}\n\
             What the program does then is not known, and not part of the figures.\n",
            report.failures_averted
        ));
    }
    for remark in &report.remarks {
        text.push_str(&format!("\n{remark}\n"));
    }
    text
}
