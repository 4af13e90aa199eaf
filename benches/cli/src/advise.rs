//! `coalesce advise`: the settings that fit a program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use coalesce_advisor::advise::{Advice, Aim, Picture, Question, advise, html, picture, text};
use coalesce_alloc::bytes;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_bench::measure::capacity::USUAL;
use coalesce_bench::measure::profile::{self, Profile};
use coalesce_bench::measure::results;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::input::Input;

use super::output::print;

/// Find the PYTORCH_CUDA_ALLOC_CONF that fits a program, by replaying it under many.
///
/// Says how much memory the program needs, how much of what it holds is lost, which settings would need
/// less, what they cost, and on how small a device each still runs. Nothing is written before the end, so
/// that nothing half done is left if it is interrupted.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce advise workloads/traces/bert_base_dynpad_amp.csv.gz --capacity 8GiB"
)]
pub struct Args {
    /// A memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot), a trace as described in
    /// workloads/traces/README.md, or the name of a preset.
    program: String,
    /// Memory of the device. If it is not given: what there was when a request failed, if the snapshot
    /// has one that did; otherwise 80GiB.
    #[arg(long, value_parser = bytes::parse)]
    capacity: Option<u64>,
    /// How much of it is not for the program's tensors: other processes, the CUDA context, libraries.
    #[arg(long, default_value = "0", value_parser = bytes::parse)]
    reserve_for_others: u64,
    /// The settings it has now, written as for PYTORCH_CUDA_ALLOC_CONF, if they are not known from the
    /// snapshot. That variable itself is not read.
    #[arg(long)]
    conf: Option<String>,
    /// Which device, of a snapshot of several. If it is not given: the one on which most happened.
    #[arg(long)]
    recorded_device: Option<u32>,
    /// What is wanted: to run in the least memory, to spend the least time in the driver, or to hold the
    /// least memory on a device with room.
    #[arg(long = "for", value_name = "AIM", default_value = "least-capacity", value_parser = aim)]
    aim: Aim,
    /// Where the device places what it gives: up, down or firstfit. If it is not given: as the device of
    /// the snapshot did, else up.
    #[arg(long, value_parser = str::parse::<AddressPolicy>)]
    addresses: Option<AddressPolicy>,
    /// What the device's calls cost: `published`, or a TOML file like benches/profiles/published.toml.
    #[arg(long, default_value = profile::PUBLISHED)]
    profile: String,
    /// How long to search, in seconds; 0 for as long as it takes. What is found until then is shown. It
    /// may take longer: what has begun is finished, be it the plan of an allocator that plans ahead, and
    /// the program is diagnosed and its snapshot verified in any case.
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
    /// Write a report for a browser, too: one file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn aim(text: &str) -> Result<Aim, String> {
    let known = Aim::ALL.map(Aim::name);
    let aim = Aim::ALL.into_iter().find(|aim| aim.name() == text);
    aim.ok_or_else(|| format!("there is {}", known.join(", ")))
}

/// Other runs of the program.
const COPIES: u64 = 8;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = Input::open(&args.program, args.recorded_device)?;
    let recording = input.recording.as_ref();
    let recorded = recording.and_then(|recording| recording.conf.clone());
    let present = args.conf.clone().or(recorded).unwrap_or_default();
    let recorded = recording.and_then(Recording::capacity);
    // What was free at that time is free of others already.
    let recorded = recorded.map(|bytes| bytes.saturating_add(args.reserve_for_others));
    let capacity = args.capacity.or(recorded).unwrap_or(USUAL);
    ensure!(
        args.reserve_for_others < capacity,
        "--reserve-for-others leaves nothing of the device for the program"
    );
    let program = Cached::of(input.workload.as_ref())?;
    let profile = Profile::load(&args.profile, Path::new(""))?;
    let question = Question {
        program: &program,
        // A trace does not look at answers, and would be read again for every replay.
        answering: match input.recording {
            Some(_) => input.workload.as_ref(),
            None => &program,
        },
        recording: input.recording.as_ref(),
        remarks: &input.remarks,
        present: &present,
        capacity,
        others: args.reserve_for_others,
        aim: args.aim,
        profile: &profile,
        addresses: args.addresses.unwrap_or_else(|| input.address_policy()),
        time_limit: time_limit(args.time_limit)?,
        copies: COPIES,
    };
    let advice = advise(&question)?;
    if let Some(path) = &args.html {
        results::write(path, report(&question, &advice)?.as_bytes())?;
    }
    let page = match args.json {
        true => serde_json::to_string_pretty(&advice)? + "\n",
        false => text::page(&advice),
    };
    print(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// The page, with pictures of the present setting and of the advised one, or else the best of the others.
fn report(question: &Question<'_>, advice: &Advice) -> anyhow::Result<String> {
    let advised = advice.ranking.iter().find(|row| row.is_advised);
    let other = advised.or(advice.ranking.iter().find(|row| !row.is_present));
    let mut pictures = vec![picture(question, question.present)?];
    if let Some(row) = other {
        pictures.push(picture(question, &row.conf)?);
    }
    let pictures: Vec<&Picture> = pictures.iter().collect();
    Ok(html::page(advice, &pictures))
}

fn time_limit(seconds: f64) -> anyhow::Result<Option<Duration>> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let limit = Duration::try_from_secs_f64(seconds);
    limit
        .map(Some)
        .with_context(|| format!("--time-limit {seconds}: write a number of seconds"))
}
