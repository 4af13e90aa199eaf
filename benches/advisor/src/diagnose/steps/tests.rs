//! Steps of programs as text: `cases/`.

use std::fmt::Write;

use coalesce_alloc::history::Action::Alloc;
use coalesce_workloads::cases;
use coalesce_workloads::formats::snapshot::Annotation;

use super::super::testing::{MIB, ROOMY, Scene, case, hold, recording};
use super::*;
use crate::diagnose::diagnose;

#[test]
fn steps_of_programs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/diagnose/steps/cases");
    cases::check(format!("{folder}/marks.txt"), found);
    cases::check(format!("{folder}/stacks.txt"), found);
}

/// What is known about the steps of a program, and its mistakes that depend on them.
fn found(case: &str) -> String {
    let ranges = |events: &[Range<u64>]| -> String {
        let events = events
            .iter()
            .map(|step| format!(" {}-{}", step.start, step.end));
        events.collect()
    };
    case::gather(case, |evidence| {
        let mut text = Steps::line(evidence.steps.as_ref());
        if let Some(steps) = &evidence.steps {
            let (announced, trains, end) = (steps.is_announced(), steps.trains(), steps.end());
            let _ = writeln!(text, "announced {announced}, trains {trains}, end {end}");
            let (all, warm) = (ranges(&steps.events), ranges(steps.warm()));
            let _ = writeln!(text, "events{all}; warm{warm}: {:?}", steps.warm_events());
        }
        let (repeats, updates) = (ranges(&evidence.repeats), &evidence.updates);
        let _ = writeln!(text, "repeats{repeats}; updates {updates:?}");
        let mut rules: Vec<_> = diagnose(evidence).iter().map(|found| found.rule).collect();
        rules.retain(|rule| ["growth", "graph", "gradients", "losses"].contains(rule));
        text + &format!("mistakes {rules:?}")
    })
}

#[test]
fn names_that_count_steps() {
    for name in [
        "step ",
        "Iteration_",
        "batch#",
        "EPOCH:",
        "round=",
        "request-",
        "episode ",
        "update_",
    ] {
        assert!(names_steps(name), "{name}");
    }
    for name in [
        "step",
        "layer ",
        "micro_batch_",
        "Micro-Step ",
        "steps of .",
    ] {
        assert!(!names_steps(name), "{name}");
    }
}

#[test]
fn names_of_optimizer_steps() {
    assert!(is_update("Optimizer.step#AdamW.step") && is_update("optimizer"));
    assert!(!is_update("Optimizer.zero_grad#AdamW.zero_grad") && !is_update("the optimizer"));
}

/// Marks come first, then annotations, and then the call stacks of `cases/stacks.txt`.
#[test]
fn updates_of_marks_and_annotations() {
    let announce = |name: &str, is_start, time_us| Annotation {
        name: name.to_owned(),
        is_start,
        time_us,
    };
    let mut annotated = recording(&[(Alloc, 0, MIB); 4]);
    for (entry, time_us) in annotated.entries.iter_mut().zip([10, 20, 30, 40]) {
        entry.time_us = time_us;
    }
    annotated.annotations = vec![
        announce("forward", true, 15),
        announce("Optimizer.step#SGD.step", true, 20),
        announce("Optimizer.step#SGD.step", false, 30),
        announce("optimizer", true, 40),
    ];
    let updates = |mark: Option<&'static str>| {
        Scene::recorded(&annotated).gather(
            move |program| {
                (0..4).for_each(|_| program.scratch(MIB, "mm"));
                mark.into_iter().for_each(|mark| program.mark(mark));
            },
            |evidence| evidence.updates.clone(),
        )
    };
    // Behind the requests before them, whose frees are not recorded.
    assert_eq!(updates(None), [1, 5]);
    assert_eq!(updates(Some("optimizer")), [8]);
}

/// Three repetitions that allocate tensors of these sizes, in MiB, and free them `late` repetitions later. `lasting`
/// tensors live throughout.
fn allocate_gradients(
    lasting: &[u64],
    copies: usize,
    gradients: &[u64],
    late: usize,
    may_be_gradient: bool,
    repetitions: usize,
) -> bool {
    let number = gradients.len();
    let first = lasting.len() * copies;
    ROOMY.gather(
        |program| {
            for half_mib in lasting {
                hold(program, copies as u64, half_mib * MIB / 2);
            }
            let mut live = Vec::new();
            for _ in 0..5 {
                let new = gradients
                    .iter()
                    .map(|half_mib| program.alloc(half_mib * MIB / 2, "mm"));
                live.push(new.collect::<Vec<_>>());
                if live.len() > late {
                    program.free_all(live.remove(0));
                }
            }
            live.into_iter()
                .for_each(|tensors| program.free_all(tensors));
        },
        |evidence| {
            // The first repetitions free nothing.
            let starts: Vec<u64> = (0..=5)
                .map(|n: usize| (first + n * number + n.saturating_sub(late) * number) as u64)
                .collect();
            let repeats = between(&starts[..=repetitions]);
            gradients::are_allocated_in_each(&evidence.log, &repeats, |_| may_be_gradient)
        },
    )
}

#[test]
fn a_gradient_of_each_parameter() {
    let all = [10, 20, 30];
    let find = |copies, gradients: &[u64]| allocate_gradients(&all, copies, gradients, 0, true, 3);
    // A parameter with its gradient and two tensors of optimizer state; five are two parameters.
    assert!(find(1, &all) && find(4, &all));
    assert!(!find(5, &all));
    assert!(find(5, &[10, 10, 20, 20, 30, 30]));
    assert!(!find(1, &[10, 10, 20, 20]), "one parameter has no gradient");
    assert!(
        !allocate_gradients(&[], 1, &all, 0, true, 3),
        "no parameters"
    );
    assert!(
        !allocate_gradients(&all, 1, &all, 0, true, 2),
        "too few repetitions"
    );
    assert!(
        !allocate_gradients(&all, 1, &all, 0, false, 3),
        "in the forward pass"
    );
    assert!(
        allocate_gradients(&all, 1, &all, 1, true, 3),
        "freed in the next step"
    );
    assert!(
        !allocate_gradients(&all, 1, &all, 2, true, 3),
        "freed later"
    );
}

#[test]
fn ninety_percent_of_the_parameters_have_gradients() {
    let find =
        |with: u64, without: u64| allocate_gradients(&[with, without], 1, &[with], 0, true, 3);
    assert!(find(180, 20));
    assert!(!find(179, 21));
}
