//! The activations of several forward passes are kept for one backward pass.
//!
//! **Criterion.** Within a step, at least [`FEWEST_PASSES`] phases of the same name follow each other, and a
//! backward pass follows them. Live memory grows in every pass, by at least half of the largest increase,
//! and the total increase is significant.
//!
//! **Reason.** A sum of losses keeps the activations of every pass alive. With a backward pass after each
//! forward pass, only the activations of one pass are live.

use std::ops::Range;

use coalesce_alloc::printable::printable;
use coalesce_bench::text::amount;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;

/// Two phases may be two parts of one model.
const FEWEST_PASSES: usize = 3;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let steps = evidence.steps.as_ref()?;
    // The first step may differ from the others.
    let worst = steps
        .events
        .iter()
        .skip(1)
        .filter_map(|step| passes(evidence, step))
        .max_by_key(|p| p.kept)?;
    if !evidence.is_significant(worst.kept) {
        return None;
    }
    let kept_by = evidence
        .born_in(worst.events.clone())
        .filter(|(_, a)| a.is_live_after(worst.events.end));
    let one_pass = worst.kept / worst.times;
    Some(Finding {
        headline: format!(
            "The activations of {} forward passes are live at once: {} instead of {} for one pass",
            worst.times,
            amount(worst.kept),
            amount(one_pass),
        ),
        evidence: vec![format!(
            "The phase '{}' runs {} times before '{}', and each run leaves {} to {} live",
            printable(worst.name),
            worst.times,
            printable(worst.next),
            amount(worst.least),
            amount(worst.most),
        )],
        remedy: "Call (loss / micro_batches).backward() after each micro-batch instead of summing the losses \
                 and calling backward() once"
            .to_owned(),
        bytes: worst.kept - one_pass,
        stacks: evidence.call_sites(kept_by.map(|(index, a)| (index, a.bytes))),
        ..Finding::default()
    })
}

/// Forward passes that follow each other.
struct Passes<'e> {
    /// The name of their phase.
    name: &'e str,
    /// The name of the phase after the last.
    next: &'e str,
    times: u64,
    /// From the first pass up to the next phase.
    events: Range<u64>,
    /// Bytes that all passes together leave live, and the least and the most that one pass leaves.
    kept: u64,
    least: u64,
    most: u64,
}

/// The forward passes of a step that are kept for one backward pass.
fn passes<'e>(evidence: &'e Evidence<'_>, step: &Range<u64>) -> Option<Passes<'e>> {
    let marks = &evidence.log.marks;
    let in_step = |event: u64| step.contains(&event);
    let first = marks.partition_point(|mark| mark.event <= step.start);
    let marks: Vec<_> = marks
        .get(first..)?
        .iter()
        .take_while(|mark| in_step(mark.event))
        .collect();
    let runs: Vec<_> = marks.chunk_by(|a, b| a.tag == b.tag).collect();
    let long = |pair: &&[&[_]]| {
        pair.first()
            .is_some_and(|run: &&[_]| run.len() >= FEWEST_PASSES)
    };
    let [run, next] = runs.windows(2).find(long)? else {
        return None;
    };
    let (begin, next) = (run.first()?, next.first()?);
    if !next.tag.to_ascii_lowercase().contains("backward") {
        return None;
    }
    let bounds: Vec<u64> = run
        .iter()
        .chain([next])
        .map(|mark| evidence.log.level(mark.event).requested)
        .collect();
    let rises: Vec<u64> = bounds
        .iter()
        .zip(bounds.iter().skip(1))
        .map(|(a, b)| b.checked_sub(*a))
        .collect::<Option<_>>()?;
    let (least, most) = (*rises.iter().min()?, *rises.iter().max()?);
    (least >= most / 2 && least > 0).then(|| Passes {
        name: &begin.tag,
        next: &next.tag,
        times: run.len() as u64,
        events: begin.event..next.event,
        kept: rises.iter().sum(),
        least,
        most,
    })
}
