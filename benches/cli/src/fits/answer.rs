//! The answer, as JSON and as text.

use std::fmt::Write;

use coalesce_advisor::Advice;
use coalesce_advisor::report::text::paragraphs;
use coalesce_alloc::printable::printable;
use coalesce_bench::text::{amount, count};
use schemars::JsonSchema;
use serde::Serialize;

use super::assumed::{Extent, Reads};
use super::gpus::GPUS;
use super::libraries::{self, InUse};
use super::more;
use super::pinned::{self, Pinned};
use super::program::{Device, Program};
use super::run::{Ended, Place, Run};
use super::server::{self, Server};
use super::vary::Largest;
use super::world::Ranks;

/// Whether a program fits into a GPU.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FitsReport {
    /// The version of this format: 1.
    pub format: u32,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The release of PyTorch.
    pub torch: String,
    /// Bytes of memory of the GPU.
    pub memory_bytes: u64,
    /// Bytes of it that are not for the program.
    pub others_bytes: u64,
    /// Whether it fits.
    pub verdict: Verdict,
    /// The peak of requested memory, in bytes.
    pub peak_requested_bytes: u64,
    /// The peak of reserved memory, in bytes: on the GPU if the program fits, else on one with more memory. If something
    /// unknown decides, the least: masks of unknown values select no element, and workspaces are the smallest.
    pub peak_reserved_bytes: u64,
    /// The most, which is the same if nothing unknown decides: such masks select all elements, and workspaces are the largest.
    /// None if the program then fails with an error of its own.
    pub most_reserved_bytes: Option<u64>,
    /// Requests that failed. If the program fits, it went on without them.
    pub failed_requests: u64,
    /// Steps of the optimizer that ran.
    pub steps: u32,
    /// Number of epochs that ended early because their steps kept making the same requests. Of their remaining batches,
    /// those that are larger than all before were run, and so was the code after each epoch.
    pub short_epochs: u32,
    /// Why the run ended.
    pub ended: Ended,
    /// What the program read where a value was unknown.
    pub reads: Reads,
    /// Which end of what is unknown the run shows: the most, if the program fails at the least.
    pub extent: Extent,
    /// Lines that read unknown values, and how often. If they decide what the program requests, the answer can be wrong.
    pub values: Vec<Place>,
    /// Lines that made tensors whose shape depends on unknown values, and how often.
    pub shapes: Vec<Place>,
    /// Lines that chose experts by unknown values, and how often. Each expert was chosen equally often.
    pub routes: Vec<Place>,
    /// Lines that ran convolutions or Fourier transforms, and how often.
    pub workspaces: Vec<Place>,
    /// What is in use on the device at its peak, with what CUDA's libraries hold.
    pub in_use: InUse,
    /// Pinned host memory, if there is at least 256 MiB, or 64 MiB of rounding.
    pub pinned: Option<Pinned>,
    /// GPUs that have enough memory for the peak, the smallest first. Empty for a server, which takes a part of any memory.
    pub gpus: Vec<&'static str>,
    /// The largest number with which the program fits; none without `--vary`.
    pub largest: Option<Largest>,
    /// What the server needs that the program starts; none if it starts none.
    pub server: Option<Server>,
    /// The ranks that were run and what they need, the most first; the answer is about the first of them. Empty without `--world`.
    pub ranks: Vec<Ranks>,
}

/// What was found out.
#[derive(Debug)]
pub struct Found {
    /// The run that the answer is about.
    pub run: Run,
    pub verdict: Verdict,
    /// The least that it reserves at its peak, in bytes.
    pub least: u64,
    /// The most, in bytes; none if the program fails where it would need most.
    pub most: Option<u64>,
}

impl Found {
    /// Where nothing unknown decides.
    pub fn exact(run: Run, verdict: Verdict) -> Self {
        let least = run.known.peak_reserved_bytes;
        Self {
            run,
            verdict,
            least,
            most: Some(least),
        }
    }

    /// Includes what a run at the other end reserved. That can be less, as larger blocks can leave fewer gaps.
    pub fn extend(&mut self, other: &Run) {
        let bytes = other.known.peak_reserved_bytes;
        self.least = self.least.min(bytes);
        self.most = self.most.max(Some(bytes));
    }
}

/// Whether a program fits.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// As it is.
    Fits,
    /// At the lower end of what is unknown, but not at the upper.
    Depends,
    /// Under other settings, under which it was run.
    FitsWith {
        /// `PYTORCH_CUDA_ALLOC_CONF`.
        conf: String,
        /// The shell command that applies them.
        command: String,
    },
    /// It is a server that does not start: `server` says why.
    DoesNotStart,
    /// Under no settings that were tried.
    TooLarge {
        /// Bytes that are missing under the best settings.
        missing_bytes: u64,
        /// What `coalesce advise` says about it.
        sentences: Vec<String>,
    },
}

impl Verdict {
    /// CUDA and its libraries, which hold so many bytes, and other processes leave nothing of the memory.
    pub fn without_room(device: Device, libraries: u64, reserved: u64) -> Self {
        let needed = device.others.saturating_add(libraries);
        let sentence = format!(
            "CUDA and its libraries alone take {}, and {} are available.",
            amount(libraries),
            amount(device.memory - device.others)
        );
        Self::TooLarge {
            missing_bytes: needed.saturating_add(reserved) - device.memory,
            sentences: vec![sentence],
        }
    }

    pub fn too_large(advice: &Advice) -> Self {
        Self::TooLarge {
            missing_bytes: advice.answer.missing_bytes,
            sentences: advice.answer.sentences.clone(),
        }
    }
}

impl FitsReport {
    /// The report of a run, or of the last of several.
    pub fn of(program: &Program, device: Device, found: &Found) -> Self {
        let known = &found.run.known;
        let most = found.most.unwrap_or(found.least);
        let in_use = known.in_use();
        let others = device.others.saturating_add(in_use.of_libraries());
        let enough = |bytes: u64| bytes >= most.saturating_add(others);
        // A server takes a part of whatever memory there is.
        let is_server = found.run.server.is_some();
        let gpus = GPUS.iter().filter(|gpu| !is_server && enough(gpu.bytes()));
        Self {
            format: 1,
            command: program.command.clone(),
            torch: known.torch.clone(),
            memory_bytes: device.memory,
            others_bytes: device.others,
            verdict: found.verdict.clone(),
            peak_requested_bytes: known.peak_requested_bytes,
            peak_reserved_bytes: found.least,
            most_reserved_bytes: found.most,
            failed_requests: known.ooms,
            steps: known.steps,
            short_epochs: known.short_epochs,
            ended: known.ended,
            reads: found.run.assumed.reads,
            extent: found.run.assumed.extent,
            values: known.values.clone(),
            shapes: known.shapes.clone(),
            routes: known.routes.clone(),
            workspaces: known.workspaces.clone(),
            in_use,
            pinned: None,
            gpus: gpus.map(|gpu| gpu.name).collect(),
            largest: None,
            server: found.run.server.clone(),
            ranks: found.run.ranks.clone(),
        }
    }

    /// The most that it is known to reserve, in bytes.
    pub fn largest_reserved_bytes(&self) -> u64 {
        self.most_reserved_bytes.unwrap_or(self.peak_reserved_bytes)
    }

    /// Whether the program fits as it is.
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }
}

/// The answer as text.
pub fn page(report: &FitsReport) -> String {
    if let Some(server) = &report.server {
        let found = paragraphs(report.largest.as_ref().map(Largest::sentence));
        let page = server::page(server, report.memory_bytes, report.others_bytes);
        return found + &page + &more::lines(server);
    }
    let mut page = paragraphs(answer(report));
    if let Verdict::FitsWith { command, .. } = &report.verdict {
        let _ = writeln!(page, "\n  {}", printable(command));
    }
    let gpus = match report.gpus.as_slice() {
        [] => "none of those known here".to_owned(),
        [first, second, third, _, ..] => format!("{first}, {second}, {third} and larger ones"),
        gpus => gpus.join(", "),
    };
    let [requested, reserved] =
        [report.peak_requested_bytes, report.peak_reserved_bytes].map(amount);
    let most = report
        .most_reserved_bytes
        .filter(|&most| most > report.peak_reserved_bytes)
        .map_or_else(String::new, |most| format!("; at most {}", amount(most)));
    let ended = match report.ended {
        Ended::Repeats => "the last three made equal requests, so the program was ended there",
        Ended::Checkpoint => "then the program would have written a checkpoint, and was ended",
        Ended::Steps => {
            "the last ones reserved nothing new, so the program was ended there (--steps)"
        }
        _ => "the program ended by itself",
    };
    let libraries = libraries::rows(&report.in_use);
    let pinned = pinned::row(report.pinned.as_ref());
    let _ = write!(
        page,
        "\n\
         peak requested  {requested:>12}  size of all live requests\n\
         peak reserved   {reserved:>12}  memory taken from the device{most}\n\
         {libraries}\
         {pinned}\
         optimizer steps {:>12}  {ended}\n\
         large enough    {gpus}\n",
        report.steps
    );
    [
        page,
        ranks(&report.ranks),
        pinned::section(report.pinned.as_ref(), &report.torch),
        without_steps(report),
        not_run(report),
        unknown(report),
    ]
    .concat()
}

/// Whether it fits, one sentence or more a paragraph.
fn answer(report: &FitsReport) -> Vec<String> {
    let others = report
        .others_bytes
        .saturating_add(report.in_use.of_libraries());
    let available = report.memory_bytes.saturating_sub(others);
    let least = report.peak_reserved_bytes;
    let most = report.largest_reserved_bytes();
    let [reserved, at_most, spare, available] =
        [least, most, available.saturating_sub(most), available].map(amount);
    let mut answer = match &report.verdict {
        Verdict::Fits if report.most_reserved_bytes.is_none() => vec![format!(
            "The program fits if it needs little where only a GPU knows how much: it reserves at least {reserved} of the \
             {available} available at its peak."
        )],
        Verdict::Fits if least < most => vec![format!(
            "The program fits: it reserves between {reserved} and {at_most} at its peak, and at least {spare} of the \
             {available} available remain free."
        )],
        Verdict::Fits => vec![format!(
            "The program fits: it reserves {reserved} at its peak, and {spare} of the {available} available remain free."
        )],
        Verdict::Depends => vec![format!(
            "Only a GPU knows whether the program fits: it reserves between {reserved} and {at_most} at its peak, and \
             {available} are available."
        )],
        Verdict::FitsWith { .. } => vec![format!(
            "Under its settings, the program runs out of memory. It fits with the settings below: it reserves \
             {reserved} of the {available} available."
        )],
        // The page of a server says it.
        Verdict::DoesNotStart => Vec::new(),
        Verdict::TooLarge { sentences, .. } => {
            let mut all = vec!["The program does not fit.".to_owned()];
            all.extend(sentences.iter().cloned());
            all
        }
    };
    if report.verdict == Verdict::Fits && report.failed_requests > 0 {
        let failed = count(report.failed_requests, "request");
        answer.push(format!(
            "It went on after {failed} failed for lack of memory."
        ));
    }
    answer.extend(report.largest.as_ref().map(Largest::sentence));
    answer
}

/// What the ranks of a job need.
fn ranks(all: &[Ranks]) -> String {
    let remark = match all {
        [] => return String::new(),
        [same] => format!(
            "All ranks that were run need the same. The answer is about rank {}:",
            same.ranks[0]
        ),
        [most, ..] => format!(
            "Rank {} needs the most of the ranks that were run. The answer is about it:",
            most.ranks[0]
        ),
    };
    let mut text = format!("\n{}", paragraphs([remark]));
    for ranks in all {
        let [requested, reserved, device] = [
            ranks.peak_requested_bytes,
            ranks.peak_reserved_bytes,
            ranks.peak_device_bytes,
        ]
        .map(amount);
        let names: Vec<String> = ranks.ranks.iter().map(u32::to_string).collect();
        let _ = writeln!(
            text,
            "  requested {requested:>12}  reserved {reserved:>12}  on the device {device:>12}  rank {}",
            names.join(", ")
        );
    }
    text
}

/// Without a step, the answer is not one of a training.
fn without_steps(report: &FitsReport) -> String {
    if report.steps > 0 {
        return String::new();
    }
    let remark =
        "The program made no optimizer step. If it should train, check that it received a batch.";
    format!("\n{}", paragraphs([remark.to_owned()]))
}

/// What the program would have done, had it not been ended early.
fn not_run(report: &FitsReport) -> String {
    let is_early = matches!(
        report.ended,
        Ended::Repeats | Ended::Checkpoint | Ended::Steps
    );
    let epochs = count(u64::from(report.short_epochs), "epoch");
    let short = format!(
        "{epochs} ended early because the steps made equal requests. Of the batches that remained, those that are larger than \
         all before were run, and the code after that"
    );
    let remark = match (report.short_epochs, is_early) {
        (0, false) => return String::new(),
        (0, true) => "What the program does after these steps, such as an evaluation, was not run."
            .to_owned(),
        (_, false) => format!("{short}."),
        (_, true) => format!("{short}. What comes after the end of this run was not."),
    };
    format!("\n{}", paragraphs([remark + " --whole runs all of it."]))
}

/// What the answer depends on and is not known.
fn unknown(report: &FitsReport) -> String {
    let read = format!(
        "These lines read values that only a GPU computes, and got {}. If the values decide what the program requests, it \
         may need more or less:",
        report.reads.name()
    );
    let sections = [
        (
            &report.shapes,
            match (report.extent, report.most_reserved_bytes) {
                (Extent::Most, _) => {
                    "These lines select elements by values that only a GPU computes. The program fails if they select none, \
                     so they select all, and it may need less than this:"
                }
                (Extent::Least, Some(_)) => {
                    "These lines select elements by values that only a GPU computes. At least they select none, and at most \
                     all:"
                }
                (Extent::Least, None) => {
                    "These lines select elements by values that only a GPU computes. The program fails if they select all, \
                     so it may need more than this:"
                }
            },
        ),
        (
            &report.routes,
            "These lines choose experts by values that only a GPU computes. Each expert is chosen equally often here. If the \
             choice is uneven, some ranks need more:",
        ),
        (&report.values, read.as_str()),
        (
            &report.workspaces,
            "cuDNN and cuFFT take workspaces for these convolutions and Fourier transforms. The range is that of an H100 \
             with the same kinds of them:",
        ),
    ];
    let mut text = String::new();
    for (places, remark) in sections {
        if places.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{}", paragraphs([remark.to_owned()]));
        for Place { line, times } in places {
            let times = match times {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            let _ = writeln!(text, "  {}, {times}", printable(line));
        }
    }
    text
}
