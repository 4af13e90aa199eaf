//! A short peak, far above what is live when a program looks.
//!
//! **Criterion.** What is asked for at the peak is by [`ABOVE_PERCENT`] % of it more than at any border between two
//! phases; where the program tells of no phases, than in all but [`BRIEF_PERCENT`] % of the events. And it is above
//! the middle between the two for at most [`BRIEF_PERCENT`] % of the events, or [`FEW_EVENTS`] of them.
//!
//! **Why so.** `memory_allocated()` between the phases shows what tensors the program knows of; the peak is
//! made by those that live for a moment between: the gradient of the logits, a copy in another
//! precision, scratch of the optimizer. What counts is the peak.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::log::{Level, Mark};
use super::super::words::{percent, size};

/// What lives for a moment is seldom less.
const ABOVE_PERCENT: u64 = 15;
/// A longer time is no moment.
const BRIEF_PERCENT: usize = 5;
/// A request, the free of it, and what comes with them: a moment in the shortest of programs.
const FEW_EVENTS: usize = 4;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let log = &evidence.log;
    let (event, peak) = log.peak(&(0..log.end()), |level| level.requested)?;
    let borders = borders(evidence);
    let usual = match borders.iter().max() {
        Some(&most) => most,
        None => most_of_the_time(evidence)?,
    };
    let above = peak.checked_sub(usual)?;
    if above < peak / 100 * ABOVE_PERCENT || !evidence.is_worth_a_word(above) {
        return None;
    }
    let is_high = |level: &&Level| level.requested > usual + above / 2;
    let high = log.levels.iter().filter(is_high).count();
    if high > FEW_EVENTS.max(log.levels.len() * BRIEF_PERCENT / 100) {
        return None;
    }
    // What the program sees neither before nor after.
    let before = log.phase(event).map_or(0, |mark| mark.event);
    let after = log
        .marks
        .iter()
        .map(|mark| mark.event)
        .find(|&mark| mark > event);
    let after = after.unwrap_or_else(|| log.end());
    let live = evidence
        .born_in(0..event + 1)
        .filter(|(_, a)| a.is_live_after(event));
    let passing = live.filter(|(_, a)| a.born > before && a.freed < after);
    let numbers: Vec<usize> = passing.map(|(index, _)| index).collect();
    let phase = log.phase(event).map_or("", |mark| &mark.tag);
    let step = evidence
        .steps
        .as_ref()
        .and_then(|steps| steps.events.iter().position(|step| step.contains(&event)));
    let place = match (phase, step) {
        ("", _) => String::new(),
        (phase, Some(step)) if !phase.starts_with("step") => {
            format!(", in '{phase}' of step {step}")
        }
        (phase, _) => format!(", in '{phase}'"),
    };
    Some(Finding {
        rule: "transient",
        headline: format!(
            "{} of the peak of {} is live for a moment only{place}",
            size(above),
            size(peak)
        ),
        evidence: vec![format!(
            "{} is live {}, {} less",
            size(usual),
            match borders.is_empty() {
                true => "at most for nearly all of the time",
                false => "at most between two phases",
            },
            percent(above, peak),
        )],
        remedy: remedy(phase).to_owned(),
        bytes: above,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

/// What is live between phases; nothing if the program tells of steps at most.
fn borders(evidence: &Evidence<'_>) -> Vec<u64> {
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

/// The level that is exceeded only for a moment.
fn most_of_the_time(evidence: &Evidence<'_>) -> Option<u64> {
    let mut levels: Vec<u64> = evidence
        .log
        .levels
        .iter()
        .map(|level| level.requested)
        .collect();
    levels.sort_unstable();
    let brief = levels.len() * BRIEF_PERCENT / 100;
    levels.get(levels.len().checked_sub(brief + 1)?).copied()
}

fn remedy(phase: &str) -> &'static str {
    let phase = phase.to_ascii_lowercase();
    if phase.contains("optimizer") {
        "an optimizer without scratch for all parameters at once: AdamW(..., fused=True), or foreach=False"
    } else if phase.contains("backward") || phase.contains("forward") {
        "make the tensors below smaller or fewer at a time: `del logits` before backward(), a loss in chunks of the \
         sequence, torch.utils.checkpoint around what is largest"
    } else {
        "make the tensors below smaller or fewer at a time, or in place"
    }
}
