//! `coalesce replay`: the memory use of one workload.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use coalesce_alloc::printable::printable;
use coalesce_alloc::registry::POLICIES;
use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::measure::cell::{self, Cell, REFERENCE};
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::progress::Progress;
use coalesce_bench::measure::record::{PROVENANCE, Row, TIMING};
use coalesce_bench::text::coverage::{FROM_LIVE_BLOCKS, missing};
use coalesce_bench::text::lines::wrapped;
use coalesce_bench::text::{amount, duration, percent};
use coalesce_bench::timing::device::{Device, DeviceName};
use coalesce_bench::timing::on_gpu;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::demand::{Demand, DemandCount};
use coalesce_workloads::formats::snapshot::coverage::Coverage;
use coalesce_workloads::formats::snapshot::workload::{FAILED, without_mark};
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::Input;
use coalesce_workloads::json;
use coalesce_workloads::op::{Op, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};
use schemars::JsonSchema;
use serde::Serialize;

use super::conditions::ConditionFlags;
use super::history;
use super::input;
use super::output::{notice, print};

/// Replay a workload through an allocator and report its memory use.
///
/// The device is simulated unless --device names a GPU. Given the settings and the capacity to replay under, this
/// predicts what PyTorch reports. Requests that fail are counted. A trace continues without them; a snapshot ends at
/// the first, unless the recorded program survived such failures.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce replay workloads/traces/gpt2_small_amp_foreach.csv.gz --conf expandable_segments:True"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or compressed with gzip, xz, zstd or zip; the name of a preset; or `-` for standard input.
    #[arg(value_parser = input::workload)]
    workload: Source,
    /// The allocator, or `plugin:PATH` for a library made for PyTorch's CUDAPluggableAllocator, which then runs over
    /// the simulated device; `plugin:PATH:MALLOC,FREE` names its functions.
    #[arg(long, default_value = "pytorch", value_parser = PolicyOrPlugin(policies()))]
    policy: String,
    /// Device: sim, auto (the first GPU, else the simulated device) or cuda:0.
    #[arg(long, default_value_t = DeviceName::Sim)]
    device: DeviceName,
    /// On a GPU, write a pattern to every block when it is allocated and check it when it is freed, on all streams
    /// that use the block. The exit status is 1 if a check fails.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Cost of driver calls: `published` (older devices), `h100`, `h200`, or a TOML file written by `coalesce profile`.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// Print a JSON object, which `coalesce schema replay` describes.
    #[arg(long)]
    json: bool,
}

/// The names of the policies, as a parser for the command line.
pub fn policies() -> PossibleValuesParser {
    let policies = POLICIES.iter();
    PossibleValuesParser::new(
        policies.map(|policy| PossibleValue::new(policy.name).help(policy.summary)),
    )
}

/// Parses the name of a policy or of a library.
#[derive(Clone)]
struct PolicyOrPlugin(PossibleValuesParser);

impl TypedValueParser for PolicyOrPlugin {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        match value.to_str() {
            Some(text) if text.starts_with(coalesce_plugin::PREFIX) => Ok(text.to_owned()),
            _ => self.0.parse_ref(command, argument, value),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// The output.
#[derive(JsonSchema, Serialize)]
pub struct Report {
    /// How much of the recorded program the snapshot covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<Coverage>,
    /// What the recording lacks, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(flatten)]
    row: Row,
    first_oom: Option<FailedRequest>,
    #[serde(flatten)]
    on_gpu: Option<OnGpu>,
    /// Requests that failed when recorded and succeed here. What the program would then do is unknown and not
    /// replayed.
    failures_averted: u64,
    /// Peculiarities and unknowns of the recording, one sentence each.
    remarks: Vec<String>,
}

impl Report {
    fn contents(&self) -> Option<&Contents> {
        self.on_gpu.as_ref()?.verified.as_ref()
    }
}

/// Measurements that exist only on a GPU.
#[derive(JsonSchema, Serialize)]
struct OnGpu {
    device: String,
    /// Measured time of the driver calls.
    driver_measured_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Contents>,
}

/// The outcome of content verification.
#[derive(JsonSchema, Serialize)]
struct Contents {
    blocks: u64,
    bytes: u64,
    /// Failed checks.
    corrupt: u64,
    /// Descriptions of the first failures.
    first: Vec<String>,
}

/// The first request that failed.
#[derive(JsonSchema, Serialize)]
struct FailedRequest {
    /// Index of its event in the workload.
    event: u64,
    requested_bytes: u64,
    stream: u32,
    tag: String,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.conditions.open(&args.workload)?;
    for remark in &input.remarks {
        notice(remark);
    }
    history::require_or_show(&input, args.json)?;
    let conditions = args.conditions.resolve(&input, &args.policy)?;
    let conf = &conditions.conf;
    let plan = cell::plan(&args.policy, conf, &*input.workload)?;
    let cell = Cell {
        workload: &*input.workload,
        // Counted during the replay, so that a long trace is read once.
        demand: Demand::default(),
        policy: &args.policy,
        setting: if conf.is_empty() { "default" } else { conf },
        conf,
        plan: plan.as_ref(),
        conditions: conditions.replay,
        profile: &Profile::load(&args.profile, Path::new(""))?,
        schedule: None,
    };
    let mut watch = Watch::new();
    let mut count = (DemandCount::default(), &mut watch);
    let (row, on_gpu) = measure(args, &cell, &mut count)?;
    let demand = count.0.demand;
    let is_simulated_reference = on_gpu.is_none() && args.policy == REFERENCE;
    let lacking = lacking(&input, conf, is_simulated_reference);
    let mut remarks = input.remarks;
    if on_gpu.is_some() {
        remarks.extend(watch.left_out_on_gpu(&args.policy));
    } else if input.recording.is_some() {
        remarks.extend(conditions.sources.iter().cloned());
    }
    let report = Report {
        coverage: input.coverage,
        missing: lacking,
        row: Row {
            lower_bound_bytes: demand.lower_bound_bytes,
            streams: Some(demand.streams),
            pools: Some(demand.pools),
            ..row
        },
        first_oom: watch.first_oom.take(),
        on_gpu,
        failures_averted: watch.failures_averted,
        remarks,
    };
    // Its line of progress ends before the report.
    drop(watch);
    let text = if args.json {
        as_json(&report)?
    } else {
        wrapped(&describe(&report))
    };
    print(&text)?;
    let is_corrupt = report
        .contents()
        .is_some_and(|contents| contents.corrupt > 0);
    Ok(ExitCode::from(u8::from(is_corrupt)))
}

/// What a recording lacks. If the replay differs from the recorded run, also that its figures are lower bounds.
fn lacking(input: &Input, conf: &str, is_simulated_reference: bool) -> Vec<String> {
    let mut lacking = input.coverage.as_ref().map(missing).unwrap_or_default();
    if let Some(start) = input.workload.start()
        && (!is_simulated_reference || start.is_lower_bound(conf))
    {
        let who = if is_simulated_reference {
            "These settings"
        } else {
            "This allocator"
        };
        lacking.push(format!("{who} {FROM_LIVE_BLOCKS}."));
    }
    lacking
}

/// Replays on the chosen device.
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
                "{}--verify checks the contents of memory, which the simulated device does not have; use a \
                 GPU, such as --device cuda:0",
                reason.map_or_else(String::new, |reason| reason + "; ")
            );
            let row = cell.measure(observer)?;
            return Ok((row, None));
        }
        Device::Cuda(gpu) => *gpu,
    };
    let flags = &args.conditions;
    let simulated = flags.capacity.or(flags.limit).is_some() || flags.addresses.is_some();
    ensure!(
        !simulated && flags.others == 0,
        "--capacity, --limit, --reserve-for-others and --addresses apply to the simulated device only, not to \
         {name}"
    );
    let cell = &Cell {
        conditions: ReplayConditions {
            limit: None,
            ..cell.conditions
        },
        ..*cell
    };
    let (row, times, verdict) = if args.verify {
        let (row, times, verdict) = on_gpu::verify(cell, gpu, observer)?;
        (row, times, Some(verdict))
    } else {
        let (row, times) = on_gpu::measure(cell, gpu, None, observer)?;
        (row, times, None)
    };
    let on_gpu = OnGpu {
        device: name,
        driver_measured_ns: times.iter().map(|times| times.ns).sum(),
        verified: verdict.map(|verdict| Contents {
            blocks: verdict.blocks,
            bytes: verdict.bytes,
            corrupt: verdict.corrupt,
            first: verdict.first.iter().map(ToString::to_string).collect(),
        }),
    };
    Ok((row, Some(on_gpu)))
}

/// Whether the output has this column: it lacks those of sweeps and timings.
pub fn is_printed(column: &str) -> bool {
    ![&TIMING[..], &PROVENANCE].concat().contains(&column)
}

/// The output as JSON.
fn as_json(report: &Report) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(report)?;
    if let Some(object) = value.as_object_mut() {
        object.retain(|column, _| is_printed(column));
    }
    Ok(json::pretty(&value)?)
}

/// Shows progress, keeps the first failed request, and counts requests that failed only when recorded.
struct Watch {
    progress: Progress,
    first_oom: Option<FailedRequest>,
    failures_averted: u64,
    /// Whether the workload changed its surroundings: other processes or running kernels.
    has_surroundings: bool,
    /// Whether the workload limited its memory.
    has_limits: bool,
}

impl Watch {
    fn new() -> Self {
        Self {
            progress: Progress::new("events", None),
            first_oom: None,
            failures_averted: 0,
            has_surroundings: false,
            has_limits: false,
        }
    }

    /// What a replay on a GPU leaves out of the workload, one sentence each.
    fn left_out_on_gpu(&self, policy: &str) -> Vec<String> {
        let surroundings = "The workload's changes of other processes' memory and of running kernels are not made on a GPU.";
        let limits = "The workload limits its memory, but on a GPU only the policy pytorch has such a limit.";
        let sentences = [
            (self.has_surroundings, surroundings),
            (self.has_limits && policy != REFERENCE, limits),
        ];
        let left_out = sentences
            .into_iter()
            .filter(|(is_left_out, _)| *is_left_out);
        left_out.map(|(_, sentence)| sentence.to_owned()).collect()
    }
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
        self.has_surroundings |= matches!(step.op, Op::Surroundings(_));
        self.has_limits |= matches!(step.op, Op::Limit { .. });
        if let (Outcome::Placed(_), Op::Malloc { tag, .. }) = (step.outcome, step.op) {
            self.failures_averted += u64::from(tag.starts_with(FAILED));
        }
        Ok(())
    }
}

fn describe(report: &Report) -> String {
    let mut text = report.missing.join("\n");
    if !text.is_empty() {
        text += "\n\n";
    }
    text += &heading(report);
    for (name, figure, meaning) in figures(&report.row) {
        text += &line(name, &figure, meaning);
    }
    text += &driver_time(report);
    text += &report
        .contents()
        .map_or_else(String::new, describe_contents);
    if let Some(first) = &report.first_oom {
        text += &describe_failed(first);
    }
    if report.failures_averted > 0 {
        text += &format!(
            "\nrequests that failed when recorded and succeed here: {}\n\
             What the program would do after them is unknown and not included.\n",
            report.failures_averted
        );
    }
    if !report.remarks.is_empty() {
        text += &format!("\n{}\n", report.remarks.join("\n"));
    }
    text
}

/// The request, what it was for if that is known, and whether it failed when recorded, too.
fn describe_failed(request: &FailedRequest) -> String {
    let (event, bytes) = (request.event, amount(request.requested_bytes));
    let purpose = match without_mark(&request.tag) {
        "" => String::new(),
        origin => format!(" for {}", printable(origin)),
    };
    let recorded = if request.tag.starts_with(FAILED) {
        ", which failed when recorded, too"
    } else {
        ""
    };
    format!("\nfirst failed request: event {event}, {bytes}{purpose}{recorded}\n")
}

/// What was replayed, under which conditions.
fn heading(report: &Report) -> String {
    let row = &report.row;
    let capacity = match row.capacity_bytes {
        ROOMY => "no limit".to_owned(),
        bytes => amount(bytes),
    };
    let device = match &report.on_gpu {
        Some(on_gpu) => format!("{}, {capacity}", on_gpu.device),
        None => format!(
            "simulated device, {capacity}, addresses {}",
            row.address_policy
        ),
    };
    format!(
        "{}: {} events, {} allocations\n{}, settings: {}; {device}\n\n",
        printable(&row.workload),
        row.events,
        row.allocations,
        printable(&row.policy),
        printable(&row.setting),
    )
}

/// The figures of a replay: name, value, meaning.
fn figures(row: &Row) -> [(&'static str, String, &'static str); 9] {
    let of_blocks = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), amount);
    let (efficiency, of_efficiency) = match row.efficiency {
        Some(share) => (percent(share), "peak requested / peak reserved"),
        None => (String::new(), "no value: requests failed"),
    };
    let requested = amount(row.peak_requested_bytes);
    let reserved = amount(row.peak_reserved_bytes);
    let inactive = of_blocks(row.peak_inactive_split_bytes);
    let of_inactive = "free blocks in segments that are partly in use";
    let of_retries = "requests repeated after all cached memory was returned";
    let of_ooms = "failed requests; a program usually ends at the first";
    [
        ("peak requested", requested, "size of all live requests"),
        (
            "peak allocated",
            of_blocks(row.peak_allocated_bytes),
            "size of their blocks",
        ),
        ("peak reserved", reserved, "memory taken from the device"),
        ("peak inactive split", inactive, of_inactive),
        ("efficiency", efficiency, of_efficiency),
        ("device allocs", row.device_allocs.to_string(), ""),
        ("device frees", row.device_frees.to_string(), ""),
        ("retries", row.retries.to_string(), of_retries),
        ("ooms", row.ooms.to_string(), of_ooms),
    ]
}

fn line(name: &str, figure: &str, meaning: &str) -> String {
    let padded = format!("{name:<20}{figure:>16}  {meaning}");
    format!("{}\n", padded.trim_end())
}

/// The line of the time that driver calls take: measured on a GPU, else by the profile.
fn driver_time(report: &Report) -> String {
    let modelled = duration(report.row.driver_time_ns);
    let source = format!("by the profile {}", report.row.profile);
    match &report.on_gpu {
        Some(on_gpu) => line(
            "driver time",
            &duration(on_gpu.driver_measured_ns),
            &format!("measured; {modelled} {source}"),
        ),
        None => line("driver time", &modelled, &source),
    }
}

fn describe_contents(contents: &Contents) -> String {
    let Contents {
        blocks,
        bytes,
        corrupt,
        first,
    } = contents;
    let bytes = amount(*bytes);
    if *corrupt == 0 {
        return format!("\nverified: {blocks} blocks, {bytes}, kept their contents\n");
    }
    format!(
        "\nCORRUPT: {corrupt} checks of {blocks} blocks, {bytes}, found changed contents; the first:\n  {}\n",
        first.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_contents_are_described() {
        let contents = Contents {
            blocks: 5,
            bytes: 3 << 20,
            corrupt: 2,
            first: vec!["block 1".to_owned(), "block 2".to_owned()],
        };
        assert_eq!(
            describe_contents(&contents),
            "\nCORRUPT: 2 checks of 5 blocks, 3.0 MiB, found changed contents; the first:\n  block 1\n  block 2\n"
        );
    }
}
