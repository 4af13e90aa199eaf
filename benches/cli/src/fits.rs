//! `coalesce fits`: whether a PyTorch program fits into a GPU that is not there yet.

mod answer;
mod assumed;
mod gpus;
mod libraries;
mod more;
mod pinned;
mod processes;
mod program;
mod refused;
mod run;
mod server;
mod standins;
mod table;
mod unrounded;
mod vary;
mod world;

use std::process::ExitCode;

use anyhow::{Context, ensure};
use coalesce_advisor::Advice;
use coalesce_alloc::bytes;
use coalesce_bench::text::amount;
use serde::Serialize;

pub use self::answer::FitsReport;
use self::answer::{Found, Verdict};
use self::assumed::Extent;
use self::gpus::Gpu;
use self::processes::last_lines;
use self::program::{Device, Program, ROOMY};
use self::run::Run;
pub use self::table::FitsTable;
use self::table::{Row, Varied, WORLD, combinations};
use self::vary::{Largest, Parameter, Tried, Values, Vary};
use self::world::{Ranks, World, grouped};
use super::advise;
use super::conditions::ConditionFlags;
use super::files::OutputFile;
use super::output::{self, failed, is_stdout, notice, print};

/// Find out whether a PyTorch program fits into a GPU, without a GPU.
///
/// Runs the unmodified program on a simulated GPU: nothing is computed, but PyTorch's own allocator serves every
/// request. If it runs out of memory, it runs again with more memory to find out how much it needs, and which settings
/// help. Exit status 0 if it fits, 1 if it does not, 2 if there is no answer.
///
/// An epoch ends early when three steps of the optimizer in a row made the same requests, if a `DataLoader` provides its
/// batches. The program goes on with what follows, such as an evaluation. It is ended when a further epoch reserves no
/// more memory, and before it writes a checkpoint. Without a `DataLoader` it is ended after the three steps. `--whole`
/// runs all of it. The program then also writes its files, such as checkpoints, with meaningless contents, and may
/// replace earlier files.
///
/// Integers and masks that come from the host have their real values. All other values that the program reads from the GPU
/// are zeros, or ones if it fails on zeros. If a mask of such values decides what the program requests, the answer is a range:
/// at its lower end the mask selects no element, at its upper end all. Workspaces of cuDNN and cuFFT have a range, too, which was
/// measured.
/// The answer lists the lines.
///
/// A vLLM server, started by `vllm serve` or a script, runs until it is ready. The answer is the memory at the end of each
/// phase and the tokens that its KV cache holds. The model is a folder with its config.json, or a name of which the cache of the
/// Hugging Face hub has that file: weights and tokenizer are not needed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        coalesce fits --device rtx4090 -- python train.py\n  \
        coalesce fits --memory 80GiB --vary BATCH=1..256 -- python train.py --batch-size {BATCH}\n  \
        coalesce fits --device h100 --vary LEN=4096..131072 -- vllm serve MODEL --max-model-len {LEN}")]
pub struct Args {
    /// The GPU, such as h100, a100, rtx4090, l4 or t4: its memory, its compute capability and its number of
    /// multiprocessors.
    #[arg(long, value_name = "GPU", required_unless_present = "memory")]
    device: Option<Gpu>,
    /// Memory of the GPU, as PyTorch reports it: 24GiB or 24G for 24 * 2^30 bytes, 24GB for 24 * 10^9. Default: that of
    /// --device.
    #[arg(long, value_parser = bytes::parse_memory)]
    memory: Option<u64>,
    /// Part of it that other processes use. What CUDA and its libraries take is known.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes::parse_memory)]
    reserve_for_others: u64,
    /// End the program after this many steps of its optimizer without a new peak of reserved memory, even if they differ.
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Run all of the program, even if its steps repeat.
    #[arg(long, conflicts_with = "steps")]
    whole: bool,
    /// Find the largest number in a range with which the program fits, FIRST..LAST, or answer for each of several values,
    /// A,B,C, in a table. The command contains the value as {NAME}, or the program reads the environment variable NAME.
    /// Larger numbers of the range must need more memory. They have as many decimals as FIRST and LAST. The option can be
    /// repeated, with at most one range: the table has all combinations.
    #[arg(long, value_name = "NAME=VALUES")]
    vary: Vec<Vary>,
    /// Simulate a job of this many ranks. Up to 8 run at the same time. Of more, ranks 0, 1, 2, 4, 8 and so on and the last
    /// one run, one after the other and each alone. The answer is about the rank that needs the most. A launcher such as
    /// torchrun starts the processes of one machine. Of several numbers, 8,64,256, each has a row of a table.
    #[arg(long, value_name = "RANKS", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    world: Vec<u32>,
    /// Also run a server with smaller batches, fewer CUDA graphs and other settings of the allocator, and say how many tokens its
    /// KV cache holds with each. The command must be `vllm serve`, as arguments are added to it.
    #[arg(long, conflicts_with_all = ["vary", "world"])]
    more: bool,
    /// Also exit with status 1 if it reserves more than this at its peak, or at the upper end of its range: for checks in CI.
    #[arg(long, value_name = "BYTES", value_parser = bytes::parse_memory)]
    fail_over: Option<u64>,
    /// Also write the memory snapshot of the answer's run, for `coalesce advise` and `coalesce diff`.
    #[arg(long, value_name = "FILE")]
    save: Option<OutputFile>,
    /// Print a JSON object, which `coalesce schema fits` describes. With a file, write it there and print the text too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<OutputFile>,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args
        .variants()
        .and_then(|variants| answers(args, &variants))
    {
        Ok(status) => Ok(status),
        Err(error) => Ok(failed(&error, 2)),
    }
}

/// A program on a device, and what is asked about it.
struct Variant {
    program: Program,
    device: Device,
    world: Option<World>,
    /// The number whose largest value is wanted.
    range: Option<Parameter>,
}

impl Args {
    /// What to answer: one variant if nothing is listed, else one for each combination, with the values that it has.
    fn variants(&self) -> anyhow::Result<Vec<(Vec<Varied>, Variant)>> {
        let memory = self.memory.or(self.device.map(Gpu::bytes));
        let device = Device {
            memory: memory.context("give --device or --memory")?,
            others: self.reserve_for_others,
            gpu: self.device,
        };
        ensure!(
            device.others < device.memory,
            "--reserve-for-others leaves no memory for the program"
        );
        ensure!(
            !self.save.as_deref().is_some_and(is_stdout),
            "--save: expected a file; standard output has the answer"
        );
        let program = Program::new(&self.command, (!self.whole).then_some(self.steps))?;
        let (mut ranges, mut listed) = (Vec::new(), Vec::new());
        if self.world.len() > 1 {
            listed.push(Values {
                name: WORLD.to_owned(),
                values: self.world.iter().map(u32::to_string).collect(),
            });
        }
        for vary in &self.vary {
            match vary {
                Vary::Range(range) => ranges.push(range.clone()),
                Vary::Each(values) => listed.push(values.clone()),
            }
        }
        ensure!(ranges.len() <= 1, "--vary: expected one range at most");
        let range = ranges.pop();
        let given = listed.iter().map(|values| &values.name);
        let mut names: Vec<&String> = given
            .chain(range.as_ref().map(|range| &range.name))
            .collect();
        names.sort_unstable();
        ensure!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "--vary: expected each name once"
        );
        let variant = |varied: Vec<Varied>| {
            let with = |program: Program, one: &Varied| program.with(&one.name, &one.value);
            let size = varied
                .iter()
                .find(|one| one.name == WORLD && self.world.len() > 1);
            let size = size.map_or(self.world.first().copied(), |one| one.value.parse().ok());
            let variant = Variant {
                program: varied.iter().fold(program.clone(), with),
                device,
                world: size.map(|size| World { size }),
                range: range.clone(),
            };
            (varied, variant)
        };
        Ok(combinations(&listed).into_iter().map(variant).collect())
    }
}

/// Prints and writes what was asked for.
fn answers(args: &Args, variants: &[(Vec<Varied>, Variant)]) -> anyhow::Result<ExitCode> {
    for path in args.save.iter().chain(&args.json) {
        output::ensure_writable(path)?;
    }
    let [(varied, variant)] = variants else {
        return tabulated(args, variants);
    };
    if !varied.is_empty() {
        return tabulated(args, variants);
    }
    let (mut report, run) = answer_to(variant)?;
    if args.more {
        let server = report.server.as_mut();
        let server = server.context("--more: the program starts no server")?;
        server.changes = more::changes(&args.command, variant.device, server)?;
    }
    let shown = show(args, &answer::page(&report), &report);
    // Also if the answer cannot be written.
    let saved = args.save.as_deref().map_or(Ok(()), |path| run.save(path));
    shown.and(saved)?;
    let over = args
        .fail_over
        .filter(|&limit| report.largest_reserved_bytes() > limit);
    if let Some(limit) = over {
        let (reserved, limit) = (amount(report.largest_reserved_bytes()), amount(limit));
        notice(&format!(
            "it reserves {reserved}, more than the {limit} of --fail-over"
        ));
    }
    Ok(ExitCode::from(u8::from(!report.fits() || over.is_some())))
}

/// Answers about each variant in a table. A variant without an answer, such as an impossible combination, does not end it.
fn tabulated(args: &Args, variants: &[(Vec<Varied>, Variant)]) -> anyhow::Result<ExitCode> {
    ensure!(
        args.save.is_none() && args.fail_over.is_none(),
        "--save and --fail-over are for one answer, and this is a table of several"
    );
    let mut rows = Vec::new();
    for (varied, variant) in variants {
        let named: Vec<String> = varied.iter().map(Varied::to_string).collect();
        notice(&format!("{}:", named.join(", ")));
        let (answer, error) = match answer_to(variant) {
            Ok((report, _)) => (Some(report), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        rows.push(Row {
            varied: varied.clone(),
            answer,
            error,
        });
    }
    let table = FitsTable { format: 1, rows };
    show(args, &table::page(&table), &table)?;
    Ok(ExitCode::from(table.status()))
}

/// Prints an answer and writes it, after the text, so that an error there does not lose the answer.
fn show(args: &Args, page: &str, answer: &impl Serialize) -> anyhow::Result<()> {
    if !args.json.as_deref().is_some_and(is_stdout) {
        print(page)?;
    }
    let json = args.json.as_deref();
    json.map_or(Ok(()), |path| output::write_json(path, answer))
}

/// The answer, and the run that it is about.
fn answer_to(variant: &Variant) -> anyhow::Result<(FitsReport, Run)> {
    let Variant {
        program,
        device,
        range,
        ..
    } = variant;
    let (device, range) = (*device, range.as_ref());
    let Some(world) = variant.world else {
        return answered(range, program, device);
    };
    if world.runs_together() {
        return answered(range, &program.of_job(world), device);
    }
    let example = match range {
        Some(parameter) => program.with(&parameter.name, parameter.first),
        None => program.clone(),
    };
    let ranks = each_alone(&example, device, world)?;
    let binding = program.of_rank(world, ranks[0].ranks[0])?;
    let (mut report, run) = answered(range, &binding, device)?;
    report.ranks = match (range, report.largest.as_ref().and_then(|found| found.value)) {
        (Some(parameter), Some(value)) => {
            each_alone(&program.with(&parameter.name, value), device, world)?
        }
        _ => ranks,
    };
    Ok((report, run))
}

/// The answer about a program, a job that runs as a whole, or one rank.
fn answered(
    range: Option<&Parameter>,
    program: &Program,
    device: Device,
) -> anyhow::Result<(FitsReport, Run)> {
    let (program, found, largest) = match range {
        Some(parameter) => largest_that_fits(program, device, parameter)?,
        None => (program.clone(), decide(program, device)?, None),
    };
    let conf = match &found.verdict {
        Verdict::FitsWith { conf, .. } => Some(conf.as_str()),
        _ => None,
    };
    let report = FitsReport {
        largest,
        pinned: unrounded::judged(&program, device, &found.run, conf),
        ..FitsReport::of(&program, device, &found)
    };
    Ok((report, found.run))
}

/// What some ranks of a job need, the most first. They run alone, one after the other, on a device with enough memory for any
/// rank, so that their peaks can be compared.
fn each_alone(program: &Program, device: Device, world: World) -> anyhow::Result<Vec<Ranks>> {
    // Later ranks read what earlier ones told them.
    let first = program.of_rank(world, 0)?;
    let mut all = Vec::new();
    for rank in world.sample() {
        notice(&format!("rank {rank} of {}:", world.size));
        let run = first
            .of_rank(world, rank)?
            .run(device.roomy(), None)
            .and_then(ensure_enough)
            .with_context(|| format!("as rank {rank}"))?;
        all.push(run.known.of_rank());
    }
    Ok(grouped(all))
}

/// The program with the largest number with which it fits.
fn largest_that_fits(
    program: &Program,
    device: Device,
    parameter: &Parameter,
) -> anyhow::Result<(Program, Found, Option<Largest>)> {
    let mut best = None;
    let found = parameter.largest(|value| -> anyhow::Result<Tried> {
        let number = parameter.number(value);
        let program = program.with(&parameter.name, number);
        // Both ends have to fit. If the program fails with an error at the upper end, the lower end decides.
        let run = match program.at(Extent::Most).run(device, None) {
            Ok(run) if run.known.is_exact() || !run.fits() => run,
            _ => program.run(device, None)?,
        };
        let fits = run.fits();
        notice(&format!(
            "{} = {number}: {}",
            parameter.name,
            if fits { "fits" } else { "does not fit" }
        ));
        let promises = run
            .server
            .as_ref()
            .and_then(|server| server.promises(value, parameter));
        if fits {
            best = Some(run);
        }
        Ok(Tried { fits, promises })
    })?;
    // Without any that fits, the smallest shows what is missing.
    let program = program.with(
        &parameter.name,
        parameter.number(found.unwrap_or(parameter.first)),
    );
    let answer = match best {
        Some(run) if run.known.is_exact() => Found::exact(run, Verdict::Fits),
        _ => decide(&program, device)?,
    };
    Ok((program, answer, Some(parameter.found(found))))
}

/// Completes the answer of a run that fits. If something unknown decides what the program needs, it runs once more, at the upper
/// end.
fn with_range(program: &Program, device: Device, run: Run) -> anyhow::Result<Found> {
    if run.known.is_exact() || run.assumed.extent == Extent::Most {
        return Ok(Found::exact(run, Verdict::Fits));
    }
    notice("only a GPU knows how much some lines need; running it where they need most");
    let program = program.at(Extent::Most);
    let mut found = Found::exact(run, Verdict::Fits);
    match program.run(device, None) {
        Ok(other) if other.fits() => found.extend(&other),
        Ok(_) => {
            found.extend(&program.run(device.roomy(), None)?);
            found.verdict = Verdict::Depends;
        }
        Err(_) => {
            notice("it fails there, so only the least that it needs is known");
            found.most = None;
        }
    }
    Ok(found)
}

/// Runs the program, and if it fails, finds out with which settings it fits, if any.
fn decide(program: &Program, device: Device) -> anyhow::Result<Found> {
    let run = program.run(device, None)?;
    if run.fits() {
        return with_range(program, device, run);
    }
    if run.server.is_some() {
        return Ok(Found::exact(run, Verdict::DoesNotStart));
    }
    let whole = program.run(device.roomy(), None).and_then(ensure_enough)?;
    let libraries = whole.known.in_use().of_libraries();
    if libraries >= device.memory - device.others {
        let verdict = Verdict::without_room(device, libraries, whole.known.peak_reserved_bytes);
        return Ok(Found::exact(whole, verdict));
    }
    let advice = advice(&whole, device)?;
    let answer = &advice.answer;
    let (Some(conf), Some(command), 0) = (&answer.conf, &answer.command, answer.missing_bytes)
    else {
        return Ok(Found::exact(whole, Verdict::too_large(&advice)));
    };
    // PyTorch itself has the last word.
    let confirmed = program.run(device, Some(conf))?;
    if confirmed.fits() {
        let verdict = Verdict::FitsWith {
            conf: conf.clone(),
            command: command.clone(),
        };
        return Ok(Found::exact(confirmed, verdict));
    }
    Ok(Found::exact(whole, Verdict::too_large(&advice)))
}

/// A run on a device with enough memory for every program.
fn ensure_enough(run: Run) -> anyhow::Result<Run> {
    ensure!(
        run.fits(),
        "the program runs out of memory on a device of {} too:\n{}",
        amount(ROOMY),
        last_lines(&run.known.error)
    );
    Ok(run)
}

fn advice(run: &Run, device: Device) -> anyhow::Result<Advice> {
    let conditions = ConditionFlags {
        conf: None,
        capacity: Some(device.memory),
        limit: None,
        others: device
            .others
            .saturating_add(run.known.in_use().of_libraries()),
        addresses: None,
        release: None,
        recorded_device: None,
    };
    advise::of_snapshot(&run.snapshot, &conditions)
}
