//! Inference that remembers everything for a way back that never comes.
//!
//! **Criterion.** The program goes through [`FEWEST_PHASES`] or more phases of the same name in a row,
//! or as many steps without phases and updates, and does not go back after them. Of all bytes that they
//! ask for, at least [`KEPT_PERCENT`] % are still live when the phase after the next begins, and that is
//! worth a word.
//!
//! **Why so.** Under `torch.no_grad()` what an operator makes goes once the next has used it, and what
//! is kept of a token is its line in a cache. With gradients on, autograd keeps what each operator would
//! need on the way back. A cache that is copied at each token keeps the newest copy only.

use std::ops::Range;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::log::Mark;
use super::super::steps::Found;
use super::super::words::{percent, size};

/// Fewer may be the layers or the parts of a model.
const FEWEST_PHASES: usize = 8;
/// Without gradients next to nothing is.
const KEPT_PERCENT: u64 = 50;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let runs = runs(evidence);
    let worst = runs.iter().filter_map(|run| kept_in(evidence, run));
    let (kept, asked, run) = worst.max_by_key(|&(kept, _, _)| kept)?;
    if !evidence.is_worth_a_word(kept) {
        return None;
    }
    let (first, last) = (run.phases.first()?, run.phases.last()?);
    let all = evidence.born_in(first.start..last.start);
    let live = all.filter(|(_, a)| a.is_live_after(last.start));
    let numbers: Vec<usize> = live.map(|(index, _)| index).collect();
    Some(Finding {
        rule: "graph",
        headline: format!(
            "{} is kept for a way back that never comes: inference with gradients on",
            size(kept)
        ),
        evidence: vec![format!(
            "{} comes {} times in a row; {} of the {} asked for in it are still live two times later",
            run.name,
            run.phases.len(),
            percent(kept, asked),
            size(asked),
        )],
        remedy: "with torch.inference_mode(): (or torch.no_grad()) around the loop".to_owned(),
        bytes: kept,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

/// Phases that come in a row.
struct Run {
    name: String,
    /// The events of each.
    phases: Vec<Range<u64>>,
}

/// The phases, or else the steps, that come in a row.
fn runs(evidence: &Evidence<'_>) -> Vec<Run> {
    let log = &evidence.log;
    let mut runs = Vec::new();
    let mut after = 0;
    for run in log.marks.chunk_by(|a, b| a.tag == b.tag) {
        after += run.len();
        let next = log.marks.get(after);
        if run.len() >= FEWEST_PHASES && !next.is_some_and(goes_back) {
            let end = next.map_or(log.end(), |mark| mark.event);
            let starts = run.iter().map(|mark| mark.event);
            let ends = starts.clone().skip(1).chain([end]);
            runs.extend(run.first().map(|mark| Run {
                name: format!("'{}'", mark.tag),
                phases: starts.zip(ends).map(|(start, end)| start..end).collect(),
            }));
        }
    }
    let trains = !evidence.updates.is_empty() || log.marks.iter().any(goes_back);
    let steps = evidence.steps.as_ref().filter(|steps| {
        steps.found == Found::Periodic && !trains && steps.events.len() >= FEWEST_PHASES
    });
    runs.extend(steps.map(|steps| Run {
        name: "what repeats".to_owned(),
        phases: steps.events.clone(),
    }));
    runs
}

fn goes_back(mark: &Mark) -> bool {
    mark.tag.to_ascii_lowercase().contains("backward")
}

/// Of the phases of a run but the last two: bytes still live when the second after begins, and bytes
/// asked for; nothing if too little is kept.
fn kept_in<'r>(evidence: &Evidence<'_>, run: &'r Run) -> Option<(u64, u64, &'r Run)> {
    let (mut kept, mut asked) = (0_u64, 0_u64);
    for (phase, second_after) in run.phases.iter().zip(run.phases.iter().skip(2)) {
        for a in evidence.log.born_in(phase) {
            asked = asked.saturating_add(a.bytes);
            if a.is_live_after(second_after.start) {
                kept = kept.saturating_add(a.bytes);
            }
        }
    }
    (asked > 0 && kept >= asked / 100 * KEPT_PERCENT).then_some((kept, asked, run))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, ROOMY};
    use super::rule;

    #[test]
    fn what_each_token_made_stays() {
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
            "nobody knows the steps: sizes change, and all tags were the same"
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
    fn a_cache_that_grows() {
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
