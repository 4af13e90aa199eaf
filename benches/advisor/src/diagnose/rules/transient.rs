//! A short peak, far above what is live when a program looks.
//!
//! **Criterion.** What is asked for at the peak is by [`ABOVE_PERCENT`] % of it more than at any border
//! between two phases; where the program tells of no phases, than in all but [`RARE_PERCENT`] % of the
//! events. And it is above the middle between the two for at most [`BRIEF_PERCENT`] % of the events, or
//! [`FEW_EVENTS`] of them.
//!
//! **Why so.** `memory_allocated()` between the phases shows what tensors the program knows of; the peak
//! is made by those that live for a moment between: the gradient of the logits, a copy in another
//! precision, scratch of the optimizer. What counts is the peak.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::log::{Level, Mark};
use super::super::words::{percent, size};

/// What lives for a moment is seldom less.
const ABOVE_PERCENT: u64 = 15;
/// What is exceeded as seldom is usual.
const RARE_PERCENT: usize = 1;
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
    let numbers = match borders.is_empty() {
        true => gone_with_the_peak(evidence, event, usual),
        false => within_the_phase(evidence, event),
    };
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

/// What lives at the peak and the program sees neither before its phase nor after.
fn within_the_phase(evidence: &Evidence<'_>, peak: u64) -> Vec<usize> {
    let log = &evidence.log;
    let before = log.phase(peak).map_or(0, |mark| mark.event);
    let mut later = log.marks.iter().filter(|mark| mark.event > peak);
    let after = later.next().map_or(log.end(), |mark| mark.event);
    let born = evidence.born_in(before..peak + 1);
    let passing = born.filter(|(_, a)| a.is_live_after(peak) && a.freed < after);
    passing.map(|(index, _)| index).collect()
}

/// What lives at the peak and no longer once as little is live as usual.
fn gone_with_the_peak(evidence: &Evidence<'_>, peak: u64, usual: u64) -> Vec<usize> {
    let log = &evidence.log;
    let later = log.levels_in(&(peak..log.end())).iter();
    let high = later.take_while(|level| level.requested > usual).count() as u64;
    let born = evidence.born_in(0..peak + 1);
    let passing = born.filter(|(_, a)| a.is_live_after(peak) && a.freed <= peak + high);
    passing.map(|(index, _)| index).collect()
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
    let rare = levels.len() * RARE_PERCENT / 100;
    levels.get(levels.len().checked_sub(rare + 1)?).copied()
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

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, ROOMY, hold, several};
    use super::rule;

    #[test]
    fn a_tensor_between_two_phases() {
        let found = ROOMY.find(rule, |program| {
            hold(program, 8, 10 * MIB);
            program.mark("forward");
            hold(program, 8, 10 * MIB);
            program.mark("backward");
            let of_logits = program.alloc(60 * MIB, "log_softmax_backward");
            program.free(of_logits);
            program.mark("optimizer");
        });
        let found = found.unwrap();
        assert_eq!(found.bytes, 60 * MIB);
        assert_eq!(found.stacks[0].tag, "log_softmax_backward");
        assert!(
            found.headline.contains("in 'backward'"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn activations_that_build_up() {
        let found = ROOMY.find(rule, |program| {
            program.mark("forward");
            let activations = several(program, 40, 10 * MIB);
            program.mark("backward");
            program.free_all(activations);
            program.mark("optimizer");
        });
        assert_eq!(found, None, "all are live at the border");
        let found = ROOMY.find(rule, |program| {
            program.mark("a");
            let blocks = several(program, 40, 10 * MIB);
            program.free_all(blocks);
            program.mark("b");
        });
        assert_eq!(found, None, "a long time at the top");
    }
}
