//! Answers to texts: the last lines of a log, or the output of a tool.
//!
//! A text has a few figures and no history, so that less can be said than of a recording. [`explain`] says what the figures
//! prove, and nothing else.
//!
//! | file | purpose |
//! |---|---|
//! | `clean.rs` | lines without colours, prefixes and wraps |
//! | `amount.rs` | amounts, known up to their rounding |
//! | `wording.rs` | how messages word their figures |
//! | `message.rs` | messages about memory that ran out |
//! | `claims.rs`, `claims/` | what the figures of a message prove |
//! | `platform.rs` | which settings a build has |
//! | `state.rs` | tables of memory |
//! | `remarks.rs` | sentences of other programs |
//! | `recording.rs` | how to record the program |

mod amount;
mod claims;
mod clean;
mod message;
mod platform;
mod recording;
mod remarks;
mod state;
mod wording;

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::printable::printable;
use coalesce_bench::text::lines::paragraphs;
use coalesce_bench::text::{capitalised, count};
use schemars::JsonSchema;
use serde::Serialize;

pub use self::claims::Situation;
use self::claims::judge;
pub use self::message::Platform;
use self::message::{Message, messages};
use self::platform::Expandable;
pub(crate) use self::platform::ROCM_WARNING;
pub use self::state::ExplainedState;
use self::state::states;
pub use self::wording::Figure;

/// What a text proves.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Explanation {
    /// The version of this format: 1.
    pub format: u32,
    /// The failed requests that the text reports, without repetitions.
    pub failures: Vec<ExplainedFailure>,
    /// The tables of memory in it.
    pub states: Vec<ExplainedState>,
    /// What sentences of other programs in it mean.
    pub remarks: Vec<String>,
    /// The shell command that may help, if the figures indicate one.
    pub command: Option<String>,
    /// What must be known about that command, one sentence each.
    pub settings: Vec<String>,
    /// What the text cannot tell.
    pub unknown: Vec<String>,
    /// How to learn more.
    pub next: Vec<String>,
}

/// What a message about a failed request proves.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct ExplainedFailure {
    /// The file, if several are explained.
    pub file: Option<String>,
    /// The rank that the log names.
    pub rank: Option<u32>,
    /// The number of the device.
    pub device: Option<u32>,
    /// The platform.
    pub platform: Platform,
    /// The releases of PyTorch that word the message so.
    pub releases: String,
    /// Why the request failed.
    pub situation: Situation,
    /// The figures in bytes; the text rounds them.
    pub figures: BTreeMap<Figure, u64>,
    /// What they prove, the most important first.
    pub sentences: Vec<String>,
}

/// Longer texts are read from this many bytes before their end: the reason is at the end of a log.
const LONGEST: usize = 4 << 20;

/// More failures in a page would hide what follows them.
const MOST_FAILURES: usize = 8;

/// What is looked for, for texts in which none of it is.
pub const LOOKED_FOR: &str = "no memory figures found. What is looked for: an out-of-memory message of PyTorch (CUDA, ROCm, \
                              XPU, NPU or MPS), torch.cuda.memory_summary(), torch.cuda.memory_stats(), nvidia-smi, \
                              nvidia-smi -q -d MEMORY, rocm-smi --showmeminfo vram, and messages about memory of vLLM, \
                              Accelerate, NCCL and cuBLAS";

/// What the figures in a text prove; `None` if it has none. `file` names the text if it is one of several.
#[must_use]
pub fn explain(text: &str, file: Option<&str>) -> Option<Explanation> {
    let start = text.len().saturating_sub(LONGEST);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at))?;
    let text = text.get(start..)?;
    let lines = clean::lines(text);
    let judged: Vec<(Message, claims::Judgement)> = messages(&lines)
        .into_iter()
        .filter_map(|message| {
            let judgement = judge(&message)?;
            Some((message, judgement))
        })
        .collect();
    let states = states(&lines);
    let remarks = remarks::remarks(lines.iter().map(|line| line.text.as_str()));
    if judged.is_empty() && states.is_empty() && remarks.is_empty() {
        return None;
    }
    let helped = judged.iter().find(|(_, judgement)| judgement.may_help);
    let expandable = helped.map(|(message, _)| Expandable::of(message.platform, message.releases));
    let (command, settings) =
        expandable.map_or((None, Vec::new()), |found| (found.command, found.remarks));
    Some(Explanation {
        format: 1,
        unknown: unknown(&judged),
        next: vec![recording::how(text).to_owned()],
        failures: judged
            .into_iter()
            .map(|judged| failure(judged, file))
            .collect(),
        states,
        remarks,
        command,
        settings,
    })
}

fn failure(
    (message, judgement): (Message, claims::Judgement),
    file: Option<&str>,
) -> ExplainedFailure {
    let figures = message.figures.iter();
    ExplainedFailure {
        file: file.map(|file| printable(file).to_string()),
        rank: message.rank,
        device: message.device,
        platform: message.platform,
        releases: message.releases.range(),
        situation: judgement.situation,
        figures: figures
            .map(|(&figure, amount)| (figure, amount.stated))
            .collect(),
        sentences: judgement.sentences,
    }
}

fn unknown(judged: &[(Message, claims::Judgement)]) -> Vec<String> {
    let mut unknown = Vec::new();
    if judged.iter().any(|(_, judgement)| judgement.may_help) {
        unknown.push(
            "whether the free pieces can be joined, and which setting does it at what cost"
                .to_owned(),
        );
    }
    if judged.iter().any(|(message, _)| message.live().is_some()) {
        unknown.push("which tensors and which lines of the program hold the memory".to_owned());
    }
    unknown
}

impl Explanation {
    /// Adds what another text says.
    pub fn add(&mut self, other: Self) {
        self.failures.extend(other.failures);
        self.states.extend(other.states);
        let lists = [
            (&mut self.remarks, other.remarks),
            (&mut self.settings, other.settings),
            (&mut self.unknown, other.unknown),
        ];
        for (all, more) in lists {
            for sentence in more {
                if !all.contains(&sentence) {
                    all.push(sentence);
                }
            }
        }
        self.command = self.command.take().or(other.command);
    }

    /// The answer as text.
    #[must_use]
    pub fn page(&self) -> String {
        let mut parts = Vec::new();
        for failure in self.failures.iter().take(MOST_FAILURES) {
            let mut sentences = failure.sentences.clone();
            if self.failures.len() > 1
                && let Some(first) = sentences.first_mut()
            {
                *first = format!("{}: {first}", failure.name());
            }
            parts.push(paragraphs(sentences));
        }
        let more = self.failures.len().saturating_sub(MOST_FAILURES);
        if more > 0 {
            parts.push(paragraphs([format!(
                "{} in the text; --json has all.",
                count(more as u64, "more failed request")
            )]));
        }
        if self.failures.len() > 1 {
            parts.push(paragraphs([self.together()]));
        }
        for state in &self.states {
            let text = state.sentences.join(" ");
            parts.push(paragraphs([format!("{}: {text}", state.title)]));
        }
        let remarks = self.remarks.iter();
        parts.extend(remarks.map(|remark| paragraphs([remark.clone()])));
        if let Some(command) = &self.command {
            parts.push(format!("  {command}\n"));
        }
        if !self.settings.is_empty() {
            parts.push(paragraphs(self.settings.iter().cloned()));
        }
        if !self.unknown.is_empty() {
            let unknown = self.unknown.join("; ");
            parts.push(paragraphs([format!(
                "The text does not tell {unknown}. A recording does."
            )]));
        }
        let next = self.next.iter();
        parts.extend(next.map(|next| paragraphs([format!("To record it: {next}")])));
        parts.join("\n")
    }

    /// The failures of several ranks as one job.
    fn together(&self) -> String {
        let failures = self.failures.iter();
        let situations: BTreeSet<Situation> = failures.map(|failure| failure.situation).collect();
        let number = count(self.failures.len() as u64, "failed request");
        let reasons = match situations.len() {
            1 => {
                "all for this reason. The ranks run with the same settings, so one change serves all."
            }
            _ => "for different reasons. What helps one rank need not help another.",
        };
        format!("Together: {number}, {reasons}")
    }
}

impl ExplainedFailure {
    /// Whose failure it is: `Rank 1`, `rank1.log, device 0`.
    fn name(&self) -> String {
        let of_process = match (self.rank, self.device) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, Some(device)) => format!("device {device}"),
            (None, None) => "a process".to_owned(),
        };
        match &self.file {
            Some(file) => format!("{file}, {of_process}"),
            None => capitalised(&of_process),
        }
    }
}

#[cfg(test)]
mod tests;
