//! Divides a program into its phases: loading, steps, evaluation, generation and others, with the names that the
//! program gives them.
//!
//! Something (`told.rs`) tells what each request belongs to, from the outside in: its call stack, what the program announces, or
//! else its steps. At the outermost level that distinguishes several, requests of one, one after another, are one *time* of a
//! phase. A phase that lasts for most of the program is divided further. What matters little belongs to the phase before it.

mod told;

use std::collections::BTreeMap;
use std::ops::Range;

use coalesce_workloads::formats::snapshot::Frame;
use schemars::JsonSchema;
use serde::Serialize;

use self::told::{Label, Told};
use crate::diagnose::Evidence;
use crate::diagnose::steps::StepSource;

/// A phase of a program.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Phase {
    /// What the program announces that it does, or else the function that it calls; without either, `step`.
    pub name: String,
    /// Where the program calls it; none if no stack tells.
    pub line: Option<ProgramLine>,
    /// Its requests, counted from 0, each time that it is under way.
    #[serde(skip)]
    pub times: Vec<Range<u64>>,
}

/// A line of a program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
pub struct ProgramLine {
    /// The path of the file.
    pub file: String,
    /// The line.
    pub line: u64,
    /// The function that it is in.
    pub function: String,
}

/// The most phases; of more, those that matter least belong to others.
const MOST: usize = 12;
/// A phase makes at least 1/50 of the requests, or one of its times leaves 1/50 of the peak of requested memory in use, or one
/// of its requests is as large.
const LEAST: u64 = 50;

/// Requests of one label without others between.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Run {
    label: Label,
    requests: Range<usize>,
}

/// The phases of a program, in the order in which they begin. They have all requests, if there are any.
#[must_use]
pub fn phases(evidence: &Evidence<'_>) -> Vec<Phase> {
    let all = 0..evidence.log.allocations.len();
    let announced = Told::announced(evidence);
    let told = Told::by_stacks(evidence);
    let runs = divided(evidence, &told, all.clone(), 0);
    if runs.len() > 1 {
        let mut phases = collected(evidence, &runs, &told);
        announced.name(&mut phases);
        return phases;
    }
    let runs = divided(evidence, &announced, all.clone(), 0);
    if runs.len() > 1 {
        return collected(evidence, &runs, &announced);
    }
    let told = Told::by_steps(evidence);
    collected(evidence, &divided(evidence, &told, all, 0), &told)
}

impl ProgramLine {
    /// The line of a frame.
    #[must_use]
    pub fn of(frame: &Frame) -> Self {
        Self {
            file: frame.filename.clone(),
            line: frame.line,
            function: frame.name.clone(),
        }
    }

    /// `train.py:12`
    #[must_use]
    pub fn place(&self) -> String {
        let file = self.file.rsplit(['/', '\\']).next();
        format!("{}:{}", file.unwrap_or(&self.file), self.line)
    }
}

/// `load (train.py:12)`
impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.line {
            Some(line) if line.place() == self.name => f.write_str(&self.name),
            Some(line) => write!(f, "{} ({})", self.name, line.place()),
            None => f.write_str(&self.name),
        }
    }
}

/// The runs of some requests at the outermost level, from `level` on, at which there are several.
fn divided(
    evidence: &Evidence<'_>,
    told: &Told<'_>,
    requests: Range<usize>,
    level: usize,
) -> Vec<Run> {
    let mut runs = Vec::new();
    for level in level..told.levels {
        let label = |request: usize| told.label(request, level);
        runs = significant(evidence, joined(requests.clone(), label));
        if runs.len() > 1 {
            let divided = runs.into_iter().flat_map(|run| {
                // A phase that comes again is no part of the program that could be divided.
                let within = if 2 * run.requests.len() > requests.len() {
                    divided(evidence, told, run.requests.clone(), level + 1)
                } else {
                    Vec::new()
                };
                if within.len() > 1 { within } else { vec![run] }
            });
            return divided.collect();
        }
    }
    runs
}

/// The runs of requests with one label. A request without a label has that of the one before.
fn joined(requests: Range<usize>, label: impl Fn(usize) -> Option<Label>) -> Vec<Run> {
    let first = requests.clone().find_map(&label).unwrap_or(0);
    let mut runs: Vec<Run> = Vec::new();
    for request in requests {
        let before = runs.last().map_or(first, |run| run.label);
        push(
            &mut runs,
            label(request).unwrap_or(before),
            request..request + 1,
        );
    }
    runs
}

/// Appends requests, to the last run if that has the same label.
fn push(runs: &mut Vec<Run>, label: Label, requests: Range<usize>) {
    match runs.last_mut().filter(|last| last.label == label) {
        Some(last) => last.requests.end = requests.end,
        None => runs.push(Run { label, requests }),
    }
}

/// The runs with labels that matter. The others belong to the run before them; at the start, to the one after.
fn significant(evidence: &Evidence<'_>, runs: Vec<Run>) -> Vec<Run> {
    let mut weights: BTreeMap<Label, Weight> = BTreeMap::new();
    for run in &runs {
        weights.entry(run.label).or_default().add(evidence, run);
    }
    let count: u64 = weights.values().map(|weight| weight.requests).sum();
    let bytes = evidence.measures.peak_requested_bytes;
    let share = |weight: &Weight| {
        let part = |part: u64, all: u64| u128::from(part) * 1_000_000 / u128::from(all.max(1));
        part(weight.requests, count).max(part(weight.bytes, bytes))
    };
    let weights = weights
        .into_iter()
        .filter(|(_, weight)| weight.is_of_phase());
    let mut heaviest: Vec<(u128, Label)> = weights
        .map(|(label, weight)| (share(&weight), label))
        .filter(|(share, _)| *share >= 1_000_000 / u128::from(LEAST))
        .collect();
    heaviest.sort_unstable_by(|a, b| b.cmp(a));
    heaviest.truncate(MOST);
    let matters = |label: Label| heaviest.iter().any(|&(_, one)| one == label);
    let first = runs.iter().find(|run| matters(run.label));
    let first = first.map_or(0, |run| run.label);
    let mut kept: Vec<Run> = Vec::new();
    for run in runs {
        let before = kept.last().map_or(first, |last| last.label);
        let label = if matters(run.label) {
            run.label
        } else {
            before
        };
        push(&mut kept, label, run.requests);
    }
    kept
}

/// How much a label matters.
#[derive(Clone, Copy, Default)]
struct Weight {
    times: u64,
    requests: u64,
    /// The most bytes that one time leaves, or requests at once.
    bytes: u64,
}

impl Weight {
    fn add(&mut self, evidence: &Evidence<'_>, run: &Run) {
        let requests = evidence.log.allocations.get(run.requests.clone());
        let requests = requests.unwrap_or_default();
        let last = requests.last().map_or(0, |last| last.born);
        let left = requests.iter().filter(|one| one.is_live_after(last));
        let largest = requests.iter().map(|one| one.bytes).max();
        self.times += 1;
        self.requests += requests.len() as u64;
        let left: u64 = left.map(|one| one.bytes).sum();
        self.bytes = self.bytes.max(left).max(largest.unwrap_or(0));
    }

    /// Whether it is no mere line within a loop that requests something.
    fn is_of_phase(self) -> bool {
        const FEW: u64 = 64;
        const LONG: u64 = 8;
        self.times <= FEW || self.requests >= LONG * self.times
    }
}

/// The phases of runs. One that has all steps of the program is under way once in each step.
fn collected(evidence: &Evidence<'_>, runs: &[Run], told: &Told<'_>) -> Vec<Phase> {
    let mut phases: Vec<(Label, Phase)> = Vec::new();
    for run in runs {
        let times = run.requests.start as u64..run.requests.end as u64;
        match phases.iter_mut().find(|(label, _)| *label == run.label) {
            Some((_, phase)) => phase.times.push(times),
            None => {
                let (name, line) = told.describe(run.label);
                let times = vec![times];
                phases.push((run.label, Phase { name, line, times }));
            }
        }
    }
    let phases = phases.into_iter().map(|(_, phase)| phase);
    phases.map(|phase| by_step(evidence, phase)).collect()
}

/// The phase, divided where steps begin if each step is one time that it is under way.
fn by_step(evidence: &Evidence<'_>, mut phase: Phase) -> Phase {
    let Some(steps) = &evidence.steps else {
        return phase;
    };
    let is_loop = match (&steps.source, &phase.line) {
        (StepSource::Loop { place, .. }, Some(line)) => *place == line.place(),
        (_, line) => line.is_none(),
    };
    if let [once] = phase.times.as_slice()
        && is_loop
    {
        let begins = steps
            .events
            .iter()
            .map(|step| evidence.log.index_from(step.start) as u64);
        let mut bounds: Vec<u64> = begins.filter(|begin| once.contains(begin)).collect();
        bounds.insert(0, once.start);
        bounds.push(once.end);
        bounds.dedup();
        phase.times = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
    }
    phase
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;
    use crate::diagnose::testing::case;

    #[test]
    fn phases_of_programs() {
        cases::check("src/phases/cases.txt", |program| {
            case::gather(program, |evidence| {
                let lines = phases(evidence).into_iter().map(|phase| {
                    let times = phase.times.iter();
                    let times: Vec<String> =
                        times.map(|t| format!("{}-{}", t.start, t.end)).collect();
                    format!("{phase}: {}", times.join(" "))
                });
                lines.collect::<Vec<_>>().join("\n")
            })
        });
    }
}
