//! A short peak, far above the memory that is live most of the time.
//!
//! **Criterion.** The peak of requested memory exceeds the level at every phase boundary by at least
//! [`ABOVE_PERCENT`] % of the peak; without phases, the level in all but [`RARE_PERCENT`] % of the events.
//! Memory returns to that level later, and is above the middle between the two for at most [`BRIEF_PERCENT`] %
//! of the events, or [`FEW_EVENTS`] events.
//!
//! **Reason.** `memory_allocated()` between phases shows the tensors that a program knows about. The peak
//! comes from tensors that live briefly within a phase: the gradient of the logits, a copy in another
//! precision, temporary tensors of the optimizer. The peak determines how much memory is needed.

use coalesce_alloc::printable::printable;
use coalesce_bench::text::{amount, percent_of};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;
use crate::diagnose::log::{Allocation, Level, Mark};

/// Short-lived tensors usually add up to this share.
const ABOVE_PERCENT: u64 = 15;
/// A level that is exceeded this rarely is the usual level.
const RARE_PERCENT: usize = 1;
/// A longer time above the usual level is not a short peak.
const BRIEF_PERCENT: usize = 5;
/// A request with its free and what comes with them: a short peak in the shortest program.
const FEW_EVENTS: usize = 4;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let (event, peak) = log.peak(&(0..log.end()), |level| level.requested)?;
    let boundaries = boundaries(evidence);
    let usual = match boundaries.iter().max() {
        Some(&most) => most,
        None => most_of_the_time(evidence)?,
    };
    let above = peak.checked_sub(usual)?;
    if above < peak / 100 * ABOVE_PERCENT || !evidence.is_significant(above) {
        return None;
    }
    // A recording that ends at the peak does not show how long it lasts.
    let mut after = log.levels_in(&(event..log.end())).iter();
    if after.all(|level| level.requested > usual) {
        return None;
    }
    let is_high = |level: &&Level| level.requested > usual + above / 2;
    let high = log.levels.iter().filter(is_high).count();
    if high > FEW_EVENTS.max(log.levels.len() * BRIEF_PERCENT / 100) {
        return None;
    }
    let (born_from, freed_by, description) = if boundaries.is_empty() {
        (
            0,
            end_of_peak(evidence, event, usual),
            "in 99 % of all events",
        )
    } else {
        let (start, end) = phase_around(evidence, event);
        (start, end, "at the phase boundaries")
    };
    let is_transient = |a: &Allocation| a.is_live_after(event) && a.freed < freed_by;
    let born = evidence.born_in(born_from..event + 1);
    let transient = born.filter(|(_, a)| is_transient(a));
    let phase = log.phase(event).map_or("", |mark| &mark.tag);
    let step = evidence
        .steps
        .as_ref()
        .and_then(|steps| steps.events.iter().position(|step| step.contains(&event)));
    let shown = printable(phase);
    let place = match (phase, step) {
        ("", _) => String::new(),
        (phase, Some(step)) if !phase.starts_with("step") => {
            format!(", in '{shown}' of step {step}")
        }
        _ => format!(", in '{shown}'"),
    };
    Some(Finding {
        headline: format!(
            "{} of the peak of requested memory, {}, is live only briefly{place}",
            amount(above),
            amount(peak)
        ),
        evidence: vec![format!(
            "At most {} is live {description}, {} less than at that peak",
            amount(usual),
            percent_of(above, peak),
        )],
        remedy: remedy(phase).to_owned(),
        bytes: above,
        stacks: evidence.call_sites(transient.map(|(index, a)| (index, a.bytes))),
        ..Finding::default()
    })
}

/// The events of the last mark before the peak and of the first mark after it.
fn phase_around(evidence: &Evidence<'_>, peak: u64) -> (u64, u64) {
    let log = &evidence.log;
    let before = log.phase(peak).map_or(0, |mark| mark.event);
    let after = log.marks.iter().find(|mark| mark.event > peak);
    (before, after.map_or(log.end(), |mark| mark.event))
}

/// The event after which memory is at the usual level again.
fn end_of_peak(evidence: &Evidence<'_>, peak: u64, usual: u64) -> u64 {
    let log = &evidence.log;
    let later = log.levels_in(&(peak..log.end())).iter();
    let high = later.take_while(|level| level.requested > usual).count() as u64;
    peak + high + 1
}

/// Requested memory at each phase boundary; empty if only steps are marked.
fn boundaries(evidence: &Evidence<'_>) -> Vec<u64> {
    let steps = evidence.steps.as_ref();
    let begins_step =
        |event: u64| steps.is_some_and(|steps| steps.events.iter().any(|step| step.start == event));
    let marks = &evidence.log.marks;
    let is_other = |tag: &str| tag == "init" || tag == "end" || tag.starts_with("step ");
    let is_phase = |mark: &Mark| !begins_step(mark.event) && !is_other(&mark.tag);
    if !marks.iter().any(is_phase) {
        return Vec::new();
    }
    let level = |mark: &Mark| evidence.log.level(mark.event).requested;
    marks.iter().map(level).collect()
}

/// The level that is exceeded only briefly.
fn most_of_the_time(evidence: &Evidence<'_>) -> Option<u64> {
    let mut levels: Vec<u64> = evidence
        .log
        .levels
        .iter()
        .map(|level| level.requested)
        .collect();
    levels.sort_unstable();
    let rare = levels.len() * RARE_PERCENT / 100;
    levels.get(levels.len().checked_sub(rare + 1)?).copied()
}

fn remedy(phase: &str) -> &'static str {
    let phase = phase.to_ascii_lowercase();
    if phase.contains("optimizer") {
        "Use an optimizer that needs no temporary tensors for all parameters at once: AdamW(..., fused=True), or \
         foreach=False"
    } else if phase.contains("backward") || phase.contains("forward") {
        "Make temporary tensors smaller, or keep fewer at a time: `del logits` before backward(), a loss \
         computed in chunks of the sequence, or torch.utils.checkpoint around the largest part"
    } else {
        "Make temporary tensors smaller, keep fewer at a time, or compute them in place"
    }
}
