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

use crate::diagnose::{Evidence, Finding};

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
        rule: "losses",
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
        conf: None,
        bytes: worst.kept - one_pass,
        stacks: evidence.call_sites(kept_by.map(|(index, a)| (index, a.bytes))),
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

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::Finding;
    use crate::diagnose::testing::{MIB, ROOMY, hold, lines};

    fn train(program: &mut Program<'_>, backward_after_each: bool) {
        for step in 0..3 {
            program.mark(&format!("step {step}"));
            let mut graphs = Vec::new();
            for _ in 0..4 {
                program.mark("forward");
                graphs.push(program.alloc(30 * MIB, "linear"));
                program.scratch(60 * MIB, "gelu");
                if backward_after_each {
                    program.mark("backward");
                    program.free_all(graphs.drain(..));
                }
            }
            program.mark("backward");
            program.free_all(graphs);
        }
    }

    /// Each pass keeps an amount of its own, in MiB.
    fn train_unevenly(program: &mut Program<'_>, kept: &[u64]) {
        for step in 0..3 {
            program.mark(&format!("step {step}"));
            let passes = kept.iter().map(|mib| {
                program.mark("forward");
                program.alloc(mib * MIB, "linear")
            });
            let graphs: Vec<_> = passes.collect();
            program.mark("backward");
            program.free_all(graphs);
        }
    }

    #[test]
    fn passes_are_alike_if_each_keeps_at_least_half_of_what_the_largest_keeps() {
        let find = |kept: &[u64]| ROOMY.find(rule, |program| train_unevenly(program, kept));
        let found = find(&[40, 80, 60]).unwrap();
        assert_eq!(
            found.bytes,
            120 * MIB,
            "of 180 MiB, all but an average pass"
        );
        let evidence = &found.evidence[0];
        assert!(
            evidence.ends_with("leaves 40.0 MiB to 80.0 MiB live"),
            "{evidence}"
        );
        assert!(
            evidence.contains("runs 3 times before 'backward'"),
            "{evidence}"
        );
        assert_eq!(find(&[38, 80, 60]), None);
        assert_eq!(find(&[80, 80]), None, "two parts of one model");
    }

    #[test]
    fn one_backward_pass_for_four_forward_passes() {
        let found = ROOMY.find(rule, |program| train(program, false)).unwrap();
        assert_eq!(found.bytes, 3 * 30 * MIB, "all but one pass");
        assert!(
            found.headline.contains("4 forward passes"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn a_backward_pass_after_each_forward_pass() {
        assert_eq!(ROOMY.find(rule, |program| train(program, true)), None);
    }

    /// Steps whose passes keep these MiB, with the mark after them.
    fn find(held: u64, next: &str, steps: &[&[u64]]) -> Option<Finding> {
        ROOMY.find(rule, |program| {
            hold(program, 1, held * MIB);
            for (step, passes) in steps.iter().enumerate() {
                program.mark(&format!("step {step}"));
                program.mark("load");
                let passes = passes.iter().map(|mib| {
                    program.mark("forward");
                    program.alloc(mib * MIB, "linear")
                });
                let graphs: Vec<_> = passes.collect();
                program.mark(next);
                program.free_all(graphs);
            }
        })
    }

    #[test]
    fn kept_passes_in_full() {
        // The first step does not count, although it keeps most.
        let steps: &[&[u64]] = &[&[90, 90, 90], &[7, 8, 6], &[30, 32, 40, 48], &[4, 4, 4]];
        assert_eq!(
            lines(find(1, "Loss.Backward", steps)),
            [
                "1. The activations of 4 forward passes are live at once: 150.0 MiB instead of 37.5 MiB for one \
                 pass [losses]",
                "- The phase 'forward' runs 4 times before 'Loss.Backward', and each run leaves 30.0 MiB to 48.0 \
                 MiB live",
                "4 × linear: 150.0 MiB",
                "> Call (loss / micro_batches).backward() after each micro-batch instead of summing the losses \
                 and calling backward() once",
                "117964800 bytes",
            ]
        );
        assert_eq!(find(1, "optimizer", steps), None);
    }

    /// Of 300 MiB, 3 are worth a finding.
    #[test]
    fn passes_that_keep_little() {
        let one: &[u64] = &[1, 1, 1];
        assert_eq!(find(296, "backward", &[one; 4]).unwrap().bytes, 2 * MIB);
        assert_eq!(find(298, "backward", &[one; 4]), None);
    }

    #[test]
    fn memory_falls_in_a_pass() {
        let found = ROOMY.find(rule, |program| {
            for step in 0..4 {
                program.mark(&format!("step {step}"));
                let early = program.alloc(40 * MIB, "batch");
                program.mark("forward");
                let first = program.alloc(20 * MIB, "linear");
                program.mark("forward");
                program.free(early);
                program.mark("forward");
                let second = program.alloc(20 * MIB, "linear");
                program.mark("backward");
                program.free_all([first, second]);
            }
        });
        assert_eq!(found, None);
    }
}
