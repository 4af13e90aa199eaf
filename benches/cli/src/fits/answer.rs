//! The answer, as JSON and as text.

use std::fmt::Write;

use coalesce_advisor::Advice;
use coalesce_bench::text::amount;
use schemars::JsonSchema;
use serde::Serialize;

use super::gpus::GPUS;
use super::program::{Device, Ended, Place, Program, Run};
use super::vary::Largest;

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
    /// The peak of reserved memory, in bytes: on the GPU if the program fits, else on one with more memory.
    pub peak_reserved_bytes: u64,
    /// Steps of the optimizer that ran.
    pub steps: u32,
    /// Why the run ended.
    pub ended: Ended,
    /// Lines that read computed values, which were 0, and how often. If they decide what the program requests, the answer
    /// can be wrong.
    pub values: Vec<Place>,
    /// Lines that made tensors whose shape depends on computed values, and how often. The program may need more there.
    pub shapes: Vec<Place>,
    /// GPUs that have enough memory for the peak, the smallest first.
    pub gpus: Vec<&'static str>,
    /// The largest number with which the program fits; none without `--vary`.
    pub largest: Option<Largest>,
}

/// Whether a program fits.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// As it is.
    Fits,
    /// Under other settings, under which it was run.
    FitsWith {
        /// `PYTORCH_CUDA_ALLOC_CONF`.
        conf: String,
    },
    /// Under no settings that were tried.
    TooLarge {
        /// Bytes that are missing under the best settings.
        missing_bytes: u64,
        /// What `coalesce advise` says about it.
        sentences: Vec<String>,
    },
}

impl Verdict {
    pub fn too_large(advice: &Advice) -> Self {
        Self::TooLarge {
            missing_bytes: advice.answer.missing_bytes,
            sentences: advice.answer.sentences.clone(),
        }
    }
}

impl FitsReport {
    /// The report of a run, or of the last of several.
    pub fn of(program: &Program, device: Device, run: &Run, verdict: Verdict) -> Self {
        let known = &run.known;
        let enough = |bytes: u64| bytes >= known.peak_reserved_bytes.saturating_add(device.others);
        let gpus = GPUS.iter().filter(|gpu| enough(gpu.bytes()));
        Self {
            format: 1,
            command: program.command.clone(),
            torch: known.torch.clone(),
            memory_bytes: device.memory,
            others_bytes: device.others,
            verdict,
            peak_requested_bytes: known.peak_requested_bytes,
            peak_reserved_bytes: known.peak_reserved_bytes,
            steps: known.steps,
            ended: known.ended,
            values: known.values.clone(),
            shapes: known.shapes.clone(),
            gpus: gpus.map(|gpu| gpu.name).collect(),
            largest: None,
        }
    }

    /// Whether the program fits as it is.
    pub fn fits(&self) -> bool {
        self.verdict == Verdict::Fits
    }
}

/// The answer as text.
pub fn page(report: &FitsReport) -> String {
    let mut page = String::new();
    let mut line = |text: String| {
        let _ = writeln!(page, "{text}");
    };
    let available = report.memory_bytes - report.others_bytes;
    let spare = available.saturating_sub(report.peak_reserved_bytes);
    match &report.verdict {
        Verdict::Fits => line(format!(
            "It fits: it reserves {} at its peak, {} less than the {} available.",
            amount(report.peak_reserved_bytes),
            amount(spare),
            amount(available)
        )),
        Verdict::FitsWith { conf } => line(format!(
            "It runs out of memory under its settings. It fits with the settings below: it reserves {} of the {} \
             available.\n\n  export PYTORCH_CUDA_ALLOC_CONF={conf}",
            amount(report.peak_reserved_bytes),
            amount(available)
        )),
        Verdict::TooLarge { sentences, .. } => {
            line("It does not fit.".to_owned());
            sentences.iter().for_each(|sentence| line(sentence.clone()));
        }
    }
    if let Some(largest) = &report.largest {
        line(match largest.value {
            Some(value) if value == largest.last => format!(
                "Every {} from {} to {} fits.",
                largest.name, largest.first, largest.last
            ),
            Some(value) => format!("{value} is the largest {} that fits.", largest.name),
            None => format!("Not even {} = {} fits.", largest.name, largest.first),
        });
    }
    line(String::new());
    line(format!(
        "peak requested  {:>12}  size of all live requests",
        amount(report.peak_requested_bytes)
    ));
    line(format!(
        "peak reserved   {:>12}  memory taken from the device",
        amount(report.peak_reserved_bytes)
    ));
    line(format!(
        "steps           {:>12}  {}",
        report.steps,
        why(report.ended)
    ));
    line(format!(
        "enough memory   {}",
        match report.gpus.is_empty() {
            true => "none of the GPUs known here".to_owned(),
            false => report.gpus.join(", "),
        }
    ));
    unknown(report, &mut line);
    page
}

/// Why a run ended.
fn why(ended: Ended) -> &'static str {
    match ended {
        Ended::Repeats => "the last three made equal requests, so the program was ended there",
        Ended::Steps => "the program was ended there (--steps)",
        _ => "the program ended by itself",
    }
}

/// What the answer depends on.
fn unknown(report: &FitsReport, line: &mut impl FnMut(String)) {
    let mut list = |text: &str, places: &[Place]| {
        if places.is_empty() {
            return;
        }
        line(format!("\n{text}"));
        for Place { line: place, times } in places {
            let times = if *times == 1 {
                "once".to_owned()
            } else {
                format!("{times} times")
            };
            line(format!("  {place}, {times}"));
        }
    };
    list(
        "Unknown: nothing is computed, so these lines made tensors of unknown size, and the program may need more:",
        &report.shapes,
    );
    list(
        "These lines read values from the GPU, which were 0. If they decide what is requested next, the answer can be wrong:",
        &report.values,
    );
}
