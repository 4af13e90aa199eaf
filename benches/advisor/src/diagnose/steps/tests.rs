//! Steps of programs as text: `cases/`.

use std::fmt::Write;

use coalesce_workloads::cases;

use super::super::testing::case;
use super::*;
use crate::diagnose::diagnose;

#[test]
fn steps_of_programs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/diagnose/steps/cases");
    cases::check(format!("{folder}/marks.txt"), found);
    cases::check(format!("{folder}/stacks.txt"), found);
    cases::check(format!("{folder}/announced.txt"), found);
    cases::check(format!("{folder}/gradients.txt"), found);
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
    for name in "step |Iteration_|batch#|EPOCH:|round=|request-|episode |update_".split('|') {
        assert!(names_steps(name), "{name}");
    }
    for name in "step|layer |micro_batch_|Micro-Step |steps of .".split('|') {
        assert!(!names_steps(name), "{name}");
    }
}

#[test]
fn names_of_optimizer_steps() {
    assert!(is_update("Optimizer.step#AdamW.step") && is_update("optimizer"));
    assert!(!is_update("Optimizer.zero_grad#AdamW.zero_grad") && !is_update("the optimizer"));
}
