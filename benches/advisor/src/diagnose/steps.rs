//! Recognises the steps of a program: its outermost repetition.
//!
//! Layers repeat as well, and each leaves activations, as if the program leaked memory. A repetition is
//! therefore a step only with a proof. The first of these that finds at least [`FEWEST`] steps is used:
//!
//! - [`Marked`](StepSource::Marked): the program numbers them: `step 3`, `ProfilerStep#3`.
//! - [`Updates`](StepSource::Updates): marks or call stacks show optimizer steps; a step lasts from one to the
//!   next.
//! - [`Loop`](StepSource::Loop): call stacks return to a line outside of any module ([`stacks`]), and each time
//!   a backward pass runs or a module is called that repeats layers.
//! - [`Gradients`](StepSource::Gradients): requests repeat ([`repeats`]), and each time a gradient is allocated
//!   for every parameter, and freed (`gradients`).
//!
//! If none of them succeeds, the rules that need steps report nothing. The last step may be incomplete.

mod gradients;
pub mod repeats;
pub mod stacks;

use std::collections::BTreeMap;
use std::ops::Range;

use self::stacks::RequestStacks;
use super::log::{Log, Mark};
use super::recorded::RecordedRequests;
use coalesce_alloc::printable::printable;

/// The fewest repetitions that count as steps.
pub const FEWEST: usize = 3;

/// How steps were recognised.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepSource {
    /// Numbered marks.
    Marked,
    /// Optimizer steps.
    Updates,
    /// A line of the program that is reached again and again: `train.py:12`.
    Loop {
        /// The line.
        place: String,
        /// Whether each step has a backward pass or an optimizer step.
        trains: bool,
    },
    /// Gradients of all parameters.
    Gradients,
}

/// The steps of a program, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steps {
    /// How they were recognised.
    pub source: StepSource,
    /// The events of each; each begins where the one before ends. The last may be incomplete.
    pub events: Vec<Range<u64>>,
}

impl Steps {
    /// Recognises the steps in a log with the call stacks of its requests and with what it
    /// [repeats](repeats::find).
    #[must_use]
    pub fn find(log: &Log, stacks: &RequestStacks, repeats: &[Range<u64>]) -> Option<Self> {
        let starting = |source, begins| Self::starting(source, begins, log);
        let marked = || Some(starting(StepSource::Marked, numbered(log)?));
        let updates = || Some(starting(StepSource::Updates, updates(log)?));
        let update_frames = || {
            let begins = stacks.updates(log);
            (begins.len() >= FEWEST).then(|| starting(StepSource::Updates, begins))
        };
        let in_loop = || {
            let (source, begins) = stacks.steps(log)?;
            Some(starting(source, begins))
        };
        let with_gradients = || {
            let may_be_gradient = |request| stacks.may_be_backward(request);
            gradients::are_allocated_in_each(log, repeats, may_be_gradient).then(|| Self {
                source: StepSource::Gradients,
                events: repeats.to_vec(),
            })
        };
        marked()
            .or_else(updates)
            .or_else(update_frames)
            .or_else(in_loop)
            .or_else(with_gradients)
    }

    /// Whether the program or PyTorch names the steps. Otherwise they are inferred.
    #[must_use]
    pub const fn is_announced(&self) -> bool {
        matches!(self.source, StepSource::Marked | StepSource::Updates)
    }

    /// Whether each step is known to train: it has a backward pass or an optimizer step.
    #[must_use]
    pub const fn trains(&self) -> bool {
        match self.source {
            StepSource::Marked => false,
            StepSource::Loop { trains, .. } => trains,
            StepSource::Updates | StepSource::Gradients => true,
        }
    }

    /// Their number and how they were recognised, in a line of text.
    #[must_use]
    pub fn line(steps: Option<&Self>) -> String {
        let recognised = |steps: &Self| {
            let number = steps.events.len();
            format!("steps: {number}, recognised by {}\n", steps.recognised_by())
        };
        steps.map_or_else(|| "steps: none recognised\n".to_owned(), recognised)
    }

    /// How they were recognised, as the end of a sentence.
    #[must_use]
    pub fn recognised_by(&self) -> String {
        match &self.source {
            StepSource::Marked => "numbered marks".to_owned(),
            StepSource::Updates => "optimizer steps".to_owned(),
            StepSource::Loop { place, .. } => format!("the loop at {}", printable(place)),
            StepSource::Gradients => "gradients of all parameters".to_owned(),
        }
    }

    /// All steps after the second. The first two allocate what a program keeps: gradients and optimizer
    /// state.
    #[must_use]
    pub fn warm(&self) -> &[Range<u64>] {
        self.events.get(2..).unwrap_or_default()
    }

    /// The events of the warm steps together.
    #[must_use]
    pub fn warm_events(&self) -> Option<Range<u64>> {
        let warm = self.warm();
        Some(warm.first()?.start..warm.last()?.end)
    }

    /// The event at which the last step ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.events.last().map_or(0, |last| last.end)
    }

    /// Steps that begin at these events. The last ends with the program or at its mark `end`. One without requests does not
    /// count: it lies before what is recorded, since marks outlive the entries of a full history, or is what follows the last.
    fn starting(source: StepSource, begins: Vec<u64>, log: &Log) -> Self {
        let last = begins.last().copied().unwrap_or(0);
        let is_end = |mark: &&Mark| mark.tag == "end" && mark.event > last;
        let end = log.marks.iter().find(is_end).map(|mark| mark.event);
        let mut bounds = begins;
        bounds.push(end.unwrap_or_else(|| log.end()));
        let mut events = between(&bounds);
        events.retain(|step| !log.born_in(step).is_empty());
        Self { source, events }
    }
}

/// The ranges between these events.
fn between(bounds: &[u64]) -> Vec<Range<u64>> {
    let pairs = bounds.iter().zip(bounds.iter().skip(1));
    pairs.map(|(&start, &end)| start..end).collect()
}

/// The events of marks of one name whose numbers increase. If there are several such names, of the one with the most marks.
fn numbered(log: &Log) -> Option<Vec<u64>> {
    let mut by_name: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for Mark { event, tag } in &log.marks {
        let name = tag.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = tag.get(name.len()..).and_then(|n| n.parse().ok());
        if let (Some(number), true) = (number, names_steps(name)) {
            by_name.entry(name).or_default().push((number, *event));
        }
    }
    let increase = |marks: &[(u64, u64)]| marks.is_sorted_by(|(a, _), (b, _)| a < b);
    let candidates = by_name.into_values();
    let steps = candidates.filter(|marks| marks.len() >= FEWEST && increase(marks));
    let most = steps.max_by_key(Vec::len)?;
    Some(most.into_iter().map(|(_, event)| event).collect())
}

/// Whether numbers behind this name count steps. The layers of a model are numbered as well.
fn names_steps(name: &str) -> bool {
    const WORDS: [&str; 8] = [
        "step", "iter", "batch", "epoch", "round", "request", "episode", "update",
    ];
    let lower = name.to_ascii_lowercase();
    name.ends_with([' ', '#', '_', ':', '=', '-'])
        && !lower.contains("micro")
        && WORDS.iter().any(|word| lower.contains(word))
}

/// The events at which optimizer steps begin: the optimizer's marks, or else the recording's annotations, or
/// else its call stacks.
#[must_use]
pub(super) fn all_updates(
    log: &Log,
    recorded: Option<&RecordedRequests<'_>>,
    stacks: &RequestStacks,
) -> Vec<u64> {
    let marks = log.marks.iter().filter(|mark| is_update(&mark.tag));
    let marked: Vec<u64> = marks.map(|mark| mark.event).collect();
    let Some(recorded) = recorded.filter(|_| marked.is_empty()) else {
        return marked;
    };
    let annotations = recorded.recording.annotations.iter();
    let begins = annotations.filter(|a| a.is_start && is_update(&a.name));
    let annotated: Vec<u64> = begins
        .map(|annotation| recorded.event_at(log, annotation.time_us))
        .collect();
    if annotated.is_empty() {
        stacks.updates(log)
    } else {
        annotated
    }
}

/// The events at which optimizer steps begin; of several optimizers, those of the first.
fn updates(log: &Log) -> Option<Vec<u64>> {
    let first = log.marks.iter().find(|mark| is_update(&mark.tag))?;
    let same = log.marks.iter().filter(|mark| mark.tag == first.tag);
    let begins: Vec<u64> = same.map(|mark| mark.event).collect();
    (begins.len() >= FEWEST).then_some(begins)
}

/// Whether a phase is an optimizer step: `optimizer`, `Optimizer.step#AdamW.step`.
#[must_use]
pub fn is_update(tag: &str) -> bool {
    let tag = tag.to_ascii_lowercase();
    tag.starts_with("optimizer") && !tag.contains("zero_grad")
}

#[cfg(test)]
mod tests;
