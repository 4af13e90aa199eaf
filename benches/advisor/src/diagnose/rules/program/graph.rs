//! Inference with gradients enabled keeps activations for a backward pass that never runs.
//!
//! **Criterion.** At least [`FEWEST_PHASES`] phases of the same name follow each other, or as many steps
//! without phases and optimizer steps, and no backward pass follows them. At least [`KEPT_PERCENT`] % of
//! the bytes they request are still live when the second next phase begins, and that is significant.
//!
//! **Reason.** Under `torch.no_grad()`, the output of an operator is freed once the next operator has used
//! it, and only a token's entry in a cache is kept. With gradients enabled, autograd keeps what each
//! operator would need in the backward pass. A cache that is copied for each token keeps only the newest
//! copy.

use std::ops::Range;

use coalesce_bench::text::{amount, percent_of};

use crate::diagnose::log::Mark;
use crate::diagnose::steps::StepSource;
use crate::diagnose::{Evidence, Finding};

/// Fewer may be the layers or parts of a model.
const FEWEST_PHASES: usize = 8;
/// Without gradients almost nothing is kept.
const KEPT_PERCENT: u64 = 50;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let runs = runs(evidence);
    let worst = runs.iter().filter_map(|run| kept_in(evidence, run));
    let (kept, requested, run) = worst.max_by_key(|&(kept, _, _)| kept)?;
    if !evidence.is_significant(kept) {
        return None;
    }
    let (first, last) = (run.phases.first()?, run.phases.last()?);
    let all = evidence.born_in(first.start..last.start);
    let live = all.filter(|(_, a)| a.is_live_after(last.start));
    Some(Finding {
        rule: "graph",
        headline: format!(
            "{} is kept for a backward pass that never runs: inference with gradients enabled",
            amount(kept)
        ),
        evidence: vec![format!(
            "{} runs {} times in a row; {} of the {} that it requests is still live two runs later",
            run.name,
            run.phases.len(),
            percent_of(kept, requested),
            amount(requested),
        )],
        remedy: "Wrap the loop in `with torch.inference_mode():` or `with torch.no_grad():`"
            .to_owned(),
        conf: None,
        bytes: kept,
        stacks: evidence.call_sites(live.map(|(index, a)| (index, a.bytes))),
    })
}

/// Phases that follow each other.
struct PhaseRun {
    name: String,
    /// The events of each.
    phases: Vec<Range<u64>>,
}

/// All runs of equal phases, and the steps if no phases are known.
fn runs(evidence: &Evidence<'_>) -> Vec<PhaseRun> {
    let log = &evidence.log;
    let mut runs = Vec::new();
    let mut after = 0;
    for run in log.marks.chunk_by(|a, b| a.tag == b.tag) {
        after += run.len();
        let next = log.marks.get(after);
        if run.len() >= FEWEST_PHASES && !next.is_some_and(is_backward) {
            let end = next.map_or(log.end(), |mark| mark.event);
            let starts = run.iter().map(|mark| mark.event);
            let ends = starts.clone().skip(1).chain([end]);
            runs.extend(run.first().map(|mark| PhaseRun {
                name: format!("The phase '{}'", mark.tag),
                phases: starts.zip(ends).map(|(start, end)| start..end).collect(),
            }));
        }
    }
    let trains = !evidence.updates.is_empty() || log.marks.iter().any(is_backward);
    let steps = evidence.steps.as_ref().filter(|steps| {
        steps.source == StepSource::Periodic && !trains && steps.events.len() >= FEWEST_PHASES
    });
    runs.extend(steps.map(|steps| PhaseRun {
        name: "The repeated step".to_owned(),
        phases: steps.events.clone(),
    }));
    runs
}

fn is_backward(mark: &Mark) -> bool {
    mark.tag.to_ascii_lowercase().contains("backward")
}

/// For all phases of a run but the last two: bytes still live when the second next phase begins, and bytes
/// requested. `None` if too little is kept.
fn kept_in<'r>(evidence: &Evidence<'_>, run: &'r PhaseRun) -> Option<(u64, u64, &'r PhaseRun)> {
    let (mut kept, mut requested) = (0_u64, 0_u64);
    for (phase, second_next) in run.phases.iter().zip(run.phases.iter().skip(2)) {
        for a in evidence.log.born_in(phase) {
            requested = requested.saturating_add(a.bytes);
            if a.is_live_after(second_next.start) {
                kept = kept.saturating_add(a.bytes);
            }
        }
    }
    let is_kept = requested > 0 && kept >= requested / 100 * KEPT_PERCENT;
    is_kept.then_some((kept, requested, run))
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY};

    #[test]
    fn the_activations_of_each_token_stay() {
        let found = ROOMY.find(rule, |program| {
            for _ in 0..12 {
                program.mark("decode");
                program.scratch(MIB, "softmax");
                let activation = program.alloc(3 * MIB, "linear");
                program.hold(activation);
            }
        });
        let found = found.unwrap();
        assert_eq!(found.bytes, 10 * 3 * MIB);
        assert!(found.remedy.contains("inference_mode"), "{}", found.remedy);
    }

    #[test]
    fn tokens_without_marks() {
        let found = ROOMY.find(rule, |program| {
            for token in 0..20 {
                for layer in 0..6 {
                    let activation = program.alloc((3 + layer) * MIB, "linear");
                    program.hold(activation);
                    program.scratch((20 + token) * MIB, "cat");
                }
            }
        });
        assert!(
            found.is_none(),
            "no steps can be recognised: sizes change and every tag is frequent"
        );
        let found = ROOMY.find(rule, |program| {
            for token in 0..20 {
                program.scratch(8 * token, "embedding");
                for layer in 0..6 {
                    let activation = program.alloc((3 + layer) * MIB, "linear");
                    program.hold(activation);
                    program.scratch((1 + token) * MIB / 8, "cat");
                }
            }
        });
        assert!(found.unwrap().bytes > 500 * MIB);
    }

    #[test]
    fn a_growing_cache() {
        let found = ROOMY.find(rule, |program| {
            let mut cache = program.alloc(MIB, "cat");
            for token in 0..12 {
                program.mark("decode");
                program.scratch(3 * MIB, "linear");
                cache = program.replace(cache, (2 + token) * MIB, "cat");
            }
            program.hold(cache);
        });
        assert_eq!(found, None);
    }
}
