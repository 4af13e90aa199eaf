//! Several forward passes that are all kept for one way back.
//!
//! **Criterion.** Within a step the program goes [`FEWEST_PASSES`] times or more through phases of the
//! same name before another begins, and the next is the way back. From pass to pass more is live, by at
//! least half as much as at most; and all of it together is worth a word.
//!
//! **Why so.** Losses that are added up as tensors hold the activations of each pass. With a way back
//! after each pass only those of one are live.

use std::ops::Range;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::size;

/// Two may be two parts of one model.
const FEWEST_PASSES: usize = 3;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let steps = evidence.steps.as_ref()?;
    let all = |events: &Range<u64>| passes(evidence, events);
    // The first step may be unlike the others.
    let worst = steps
        .events
        .iter()
        .skip(1)
        .filter_map(all)
        .max_by_key(|p| p.kept)?;
    if !evidence.is_worth_a_word(worst.kept) {
        return None;
    }
    let kept_by = evidence
        .born_in(worst.events.clone())
        .filter(|(_, a)| a.is_live_after(worst.events.end));
    let numbers: Vec<usize> = kept_by.map(|(index, _)| index).collect();
    let each = worst.kept / worst.times;
    Some(Finding {
        rule: "losses",
        headline: format!(
            "The activations of {} forward passes are live at once: {}, where those of one take {}",
            worst.times,
            size(worst.kept),
            size(each),
        ),
        evidence: vec![format!(
            "the phase '{}' comes {} times before '{}', and each leaves {} to {} live",
            worst.name,
            worst.times,
            worst.next,
            size(worst.least),
            size(worst.most),
        )],
        remedy: "call (loss / micro_batches).backward() after each micro-batch, in place of adding up losses and \
                 going back once"
            .to_owned(),
        bytes: worst.kept - each,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

/// Passes in a row.
struct Passes<'e> {
    /// What their phase is called.
    name: &'e str,
    /// The phase after the last.
    next: &'e str,
    times: u64,
    /// From the first to just before the next phase.
    events: Range<u64>,
    /// Bytes that all of them leave live, and the least and the most that one does.
    kept: u64,
    least: u64,
    most: u64,
}

/// The passes of a step that are kept for the way back.
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
    let bounds = run
        .iter()
        .chain([next])
        .map(|mark| evidence.log.level(mark.event).requested);
    let bounds: Vec<u64> = bounds.collect();
    let rises = bounds
        .iter()
        .zip(bounds.iter().skip(1))
        .map(|(a, b)| b.checked_sub(*a));
    let rises: Vec<u64> = rises.collect::<Option<_>>()?;
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

    use super::super::super::testing::{MIB, ROOMY};
    use super::rule;

    fn train(program: &mut Program<'_>, go_back_at_once: bool) {
        for step in 0..3 {
            program.mark(&format!("step {step}"));
            let mut graphs = Vec::new();
            for _ in 0..4 {
                program.mark("forward");
                graphs.push(program.alloc(30 * MIB, "linear"));
                program.scratch(60 * MIB, "gelu");
                if go_back_at_once {
                    program.mark("backward");
                    program.free_all(graphs.drain(..));
                }
            }
            program.mark("backward");
            program.free_all(graphs);
        }
    }

    #[test]
    fn one_way_back_for_four_passes() {
        let found = ROOMY.find(rule, |program| train(program, false)).unwrap();
        assert_eq!(found.bytes, 3 * 30 * MIB, "but those of one pass");
        assert!(
            found.headline.contains("4 forward passes"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn a_way_back_after_each() {
        assert_eq!(ROOMY.find(rule, |program| train(program, true)), None);
    }
}
