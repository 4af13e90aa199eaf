//! `coalesce replay`: how much memory one trace takes.

use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::{PossibleValue, PossibleValuesParser};
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::policy::POLICIES;
use coalesce_bench::measure::capacity::USUAL;
use coalesce_bench::measure::cell::{self, Cell};
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::measure::record::{PROVENANCE, Row, TIMING};
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::on_gpu;
use coalesce_workloads::demand::{Demand, DemandCount};
use coalesce_workloads::formats::snapshot::workload::FAILED;
use coalesce_workloads::input::Input;
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};
use serde::Serialize;

use super::output::print;

/// Replay a recorded program through an allocator and say how much memory it takes.
///
/// The device is simulated, unless a GPU is named: nothing but the recording is needed. With the settings
/// that a program shall have and the memory of its device, this predicts what PyTorch will report. Requests
/// that find no memory are counted. A trace goes on without them; the program of a snapshot ends, unless it
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
    /// What it runs on: sim, auto (the first GPU, or else the simulated device) or cuda:0.
    #[arg(long, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// On a GPU, fill every block on its stream when it is allocated, and look whether that is still there
    /// when it is freed, on all streams that use it. If it is not, this fails.
    #[arg(long)]
    verify: bool,
    /// Memory of the simulated device; 80 GiB if it is not given.
    #[arg(long, value_parser = bytes::parse)]
    capacity: Option<u64>,
    /// Where the simulated device places what it gives: up, down or firstfit. Allocators prefer low
    /// addresses, so the results hold for one of these. If it is not given: as the device of the snapshot
    /// did, else up.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    addresses: Option<AddressPolicy>,
    /// What the device's calls cost: `published`, or a TOML file like benches/profiles/published.toml.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// The device of a snapshot of several.
    #[arg(long, value_name = "NUMBER")]
    recorded_device: Option<u32>,
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
    #[serde(flatten)]
    on_gpu: Option<OnGpu>,
    /// Requests that failed when they were recorded and do not fail here. What the program does then is
    /// not known, and not part of the figures.
    failures_averted: u64,
    /// What is strange about the recording or not known, one sentence each.
    remarks: Vec<String>,
}

/// What is only known of a GPU.
#[derive(Serialize)]
struct OnGpu {
    device: String,
    /// How long the driver's calls took, beside what the profile says.
    driver_measured_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Contents>,
}

/// What was found in the memory.
#[derive(Serialize)]
struct Contents {
    blocks: u64,
    bytes: u64,
    /// Checks that found other words than were written there.
    corrupt: u64,
    /// The first of them, in words.
    first: Vec<String>,
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
    let input = Input::open(&args.program, args.recorded_device)?;
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
        has_surroundings: false,
    };
    let mut count = (DemandCount::default(), &mut watch);
    let (row, on_gpu) = measure(args, &cell, &mut count)?;
    let row = Row {
        lower_bound_bytes: count.0.demand.lower_bound_bytes,
        ..row
    };
    let mut remarks = input.remarks;
    if on_gpu.is_some() && watch.has_surroundings {
        remarks.push(
            "What the workload says of other processes and of kernels is not made so on a GPU."
                .to_owned(),
        );
    }
    let report = Report {
        row,
        first_oom: watch.first_oom.take(),
        on_gpu,
        failures_averted: watch.failures_averted,
        remarks,
    };
    drop(watch);
    let text = if args.json {
        json(&report)?
    } else {
        describe(&report)
    };
    print(&text)?;
    let contents = report.on_gpu.and_then(|on_gpu| on_gpu.verified);
    Ok(match contents {
        Some(contents) if contents.corrupt > 0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// Runs it on the device that was named.
fn measure(
    args: &Args,
    cell: &Cell<'_>,
    observer: &mut dyn Observer,
) -> anyhow::Result<(Row, Option<OnGpu>)> {
    let device = args.device.open()?;
    let name = device.to_string();
    let gpu = match device {
        Device::Sim(reason) => {
            ensure!(
                !args.verify,
                "{}--verify looks at what lies in memory, which the simulated device has none of: name a \
                 GPU, as --device cuda:0",
                reason.map_or_else(String::new, |reason| reason + "; ")
            );
            let row = cell.measure(args.capacity.unwrap_or(USUAL), observer)?;
            return Ok((row, None));
        }
        Device::Cuda(gpu) => *gpu,
    };
    ensure!(
        args.capacity.is_none() && args.addresses.is_none(),
        "--capacity and --addresses are of the simulated device; {name} has what it has"
    );
    let (row, times, verdict) = if args.verify {
        let (row, times, verdict) = on_gpu::verify(cell, gpu, observer)?;
        (row, times, Some(verdict))
    } else {
        let (row, times) = on_gpu::measure(cell, gpu, observer)?;
        (row, times, None)
    };
    let on_gpu = OnGpu {
        device: name,
        driver_measured_ns: times.iter().map(|times| times.measured_ns).sum(),
        verified: verdict.map(|verdict| Contents {
            blocks: verdict.blocks,
            bytes: verdict.bytes,
            corrupt: verdict.corrupt,
            first: verdict.first.iter().map(ToString::to_string).collect(),
        }),
    };
    Ok((row, Some(on_gpu)))
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
    /// Whether anything happened that was not the program's doing.
    has_surroundings: bool,
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
        self.has_surroundings |= matches!(step.op, Op::Around(_));
        if let (Outcome::Placed(_), Op::Malloc { tag, .. }) = (step.outcome, step.op) {
            self.failures_averted += u64::from(tag.starts_with(FAILED));
        }
        Ok(())
    }
}

fn describe(report: &Report) -> String {
    let row = &report.row;
    let mib = |bytes: u64| format!("{:>12.1} MiB", bytes as f64 / (1 << 20) as f64);
    let capacity = mib(row.capacity_bytes);
    let capacity = capacity.trim_start();
    let device = match &report.on_gpu {
        Some(on_gpu) => format!("{}, {capacity}", on_gpu.device),
        None => format!("a device of {capacity}, addresses: {}", row.address_policy),
    };
    let mut text = format!(
        "{}: {} events, {} allocations\n{}, settings: {}; {device}\n\n",
        row.workload, row.events, row.allocations, row.policy, row.setting,
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
    if let Some(on_gpu) = &report.on_gpu {
        let ms = |ns: u64| ns as f64 / 1e6;
        text.push_str(&format!(
            "{:<20}{:>13.1} ms  in its calls; {:.1} ms by the profile {}\n",
            "driver time",
            ms(on_gpu.driver_measured_ns),
            ms(row.driver_time_ns),
            row.profile
        ));
        if let Some(contents) = &on_gpu.verified {
            text.push_str(&describe_contents(contents));
        }
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

fn describe_contents(contents: &Contents) -> String {
    let Contents {
        blocks,
        bytes,
        corrupt,
        first,
    } = contents;
    let gib = *bytes as f64 / (1_u64 << 30) as f64;
    if *corrupt == 0 {
        return format!("\nverified: {blocks} blocks, {gib:.1} GiB, hold what was written there\n");
    }
    format!(
        "\nNOT VERIFIED: of {blocks} blocks, {gib:.1} GiB, {corrupt} checks found what was not written \
         there; the first:\n  {}\n",
        first.join("\n  ")
    )
}
