use coalesce_alloc::history::Action::Alloc;
use coalesce_workloads::families::program::Program;
use coalesce_workloads::formats::snapshot::Annotation;

use super::super::Evidence;
use super::super::testing::{MIB, ROOMY, Scene, Traced, burst, hold, recording};
use super::*;

fn steps(program: impl Fn(&mut Program<'_>) + Send + Sync) -> Option<Steps> {
    ROOMY.gather(program, |evidence: &Evidence<'_>| evidence.steps.clone())
}

#[test]
fn numbered_marks_take_precedence() {
    let found = steps(|program| {
        hold(program, 1, MIB);
        for step in 5..9 {
            program.mark(&format!("ProfilerStep#{step}"));
            burst(program, 1, MIB);
            program.mark("optimizer");
        }
    });
    let found = found.unwrap();
    assert_eq!(found.source, StepSource::Marked);
    assert_eq!(
        found.events,
        [1..5, 5..9, 9..13, 13..17],
        "the mark `end` belongs to no step"
    );
    assert_eq!(found.warm().len(), 2);
}

#[test]
fn optimizer_steps_are_used_without_numbered_marks() {
    let found = steps(|program| {
        for _ in 0..4 {
            burst(program, 1, MIB);
            program.mark("Optimizer.step#AdamW.step");
        }
    });
    let found = found.unwrap();
    assert_eq!(found.source, StepSource::Updates);
    assert_eq!(
        found.events,
        [2..5, 5..8, 8..11],
        "nothing is requested after the last"
    );
}

/// They may be layers, which is why they are no steps.
#[test]
fn repetitions_begin_where_least_is_live() {
    let program = |program: &mut Program<'_>| {
        hold(program, 7, 5 * MIB);
        for _ in 0..5 {
            let first = program.alloc(MIB, "several");
            (2..12).for_each(|n| program.scratch(n * MIB, "several"));
            program.free(first);
        }
    };
    let repeats = ROOMY.gather(program, |evidence| evidence.repeats.clone());
    // Seven tensors stay live. Each repetition makes eleven requests and frees all of them.
    assert_eq!(repeats, [7..29, 29..51, 51..73, 73..95]);
    assert_eq!(steps(program), None);
}

#[test]
fn repetitions_with_a_gradient_of_each_parameter_are_steps() {
    let train = |layers: u64| {
        move |program: &mut Program<'_>| {
            let sizes = || (0..8 * layers).map(|n| (1 + n % 8) * MIB);
            sizes().for_each(|bytes| hold(program, 1, bytes));
            hold(program, 1, 90 * MIB);
            for _ in 0..5 {
                let gradients = sizes().chain((layers == 1).then_some(90 * MIB));
                let gradients: Vec<_> = gradients.map(|n| program.alloc(n, "mm")).collect();
                program.free_all(gradients);
                program.scratch(77, "once");
            }
        }
    };
    let found = steps(train(1)).unwrap();
    assert_eq!(found.source, StepSource::Gradients);
    assert_eq!(steps(train(2)), None, "a large parameter has no gradient");
}

#[test]
fn numbered_layers_are_no_steps() {
    let found = steps(|program| {
        for layer in 0..12 {
            program.mark(&format!("layer {layer}"));
            hold(program, 1, MIB);
        }
    });
    assert_eq!(found, None);
}

#[test]
fn nothing_repeats() {
    let found = steps(|program| (0..200).for_each(|n| program.scratch(n * n * 512, "")));
    assert_eq!(found, None);
    let found = steps(|program| {
        ["step 3", "step 2", "step 1"]
            .into_iter()
            .for_each(|tag| program.mark(tag))
    });
    assert_eq!(found, None, "decreasing numbers");
}

/// Which of these marks, each before a request, begin steps.
fn begins(marks: &[&str]) -> Option<Vec<u64>> {
    let found = steps(|program| {
        for mark in marks {
            program.mark(mark);
            burst(program, 1, MIB);
        }
    })?;
    // A mark, an allocation and a free.
    Some(found.events.iter().map(|step| step.start / 3).collect())
}

#[test]
fn three_increasing_numbers() {
    assert_eq!(begins(&["step 1", "step 2", "step 5"]), Some(vec![0, 1, 2]));
    assert_eq!(begins(&["step 1", "step 2"]), None);
    assert_eq!(begins(&["step 1", "step 2", "step 2"]), None);
    let both = [
        "epoch 0", "step 0", "step 1", "epoch 1", "step 2", "epoch 2", "step 3",
    ];
    assert_eq!(
        begins(&both),
        Some(vec![1, 2, 4, 6]),
        "the name with most marks"
    );
    let without = [
        "step ",
        "step 1",
        "step 99999999999999999999",
        "step 2",
        "step 3",
    ];
    assert_eq!(
        begins(&without),
        Some(vec![1, 3, 4]),
        "no number, or too large a one"
    );
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

#[test]
fn the_first_of_several_optimizers() {
    let three = [
        "optimizer",
        "optimizer b",
        "optimizer",
        "optimizer b",
        "optimizer",
    ];
    assert_eq!(begins(&three), Some(vec![0, 2, 4]));
    assert_eq!(begins(&three[..4]), None);
}

#[test]
fn the_mark_behind_the_last_step_ends_it() {
    let found = steps(|program| {
        for mark in ["step 0", "end", "step 1", "step 2", "end"] {
            program.mark(mark);
            program.scratch(MIB, "mm");
        }
    });
    assert_eq!(found.unwrap().events, [0..6, 6..9, 9..12]);
}

#[test]
fn what_is_said_of_steps() {
    let at = |source| Steps {
        source,
        events: vec![3..5, 5..9, 9..10, 10..14],
    };
    let in_loop = |trains| StepSource::Loop {
        place: "train.py:12".to_owned(),
        trains,
    };
    let all = [
        StepSource::Marked,
        StepSource::Updates,
        in_loop(true),
        in_loop(false),
        StepSource::Gradients,
    ];
    let said = all.map(|source| {
        let steps = at(source);
        (
            Steps::line(Some(&steps)),
            steps.is_announced(),
            steps.trains(),
        )
    });
    let said = said
        .each_ref()
        .map(|(line, announced, trains)| (&line[..], *announced, *trains));
    assert_eq!(
        said,
        [
            ("steps: 4, recognised by numbered marks\n", true, false),
            ("steps: 4, recognised by optimizer steps\n", true, true),
            (
                "steps: 4, recognised by the loop at train.py:12\n",
                false,
                true
            ),
            (
                "steps: 4, recognised by the loop at train.py:12\n",
                false,
                false
            ),
            (
                "steps: 4, recognised by gradients of all parameters\n",
                false,
                true
            ),
        ]
    );
    assert_eq!(Steps::line(None), "steps: none recognised\n");
    let steps = at(StepSource::Marked);
    assert_eq!(steps.warm(), [9..10, 10..14]);
    assert_eq!((steps.warm_events(), steps.end()), (Some(9..14), 14));
    let none = Steps {
        source: StepSource::Marked,
        events: vec![3..5, 5..9],
    };
    assert_eq!(none.warm_events(), None);
    let empty = Steps {
        source: StepSource::Marked,
        events: Vec::new(),
    };
    assert_eq!(empty.end(), 0);
}

/// Marks come first, then annotations, and then call stacks.
#[test]
fn updates_of_marks_annotations_and_stacks() {
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
    let mut program = Traced::new();
    (0..2).for_each(|_| program.request("a.py:1 main", MIB, false));
    program.request("a.py:2 main > /torch/optim/sgd.py:7 step", MIB, false);
    assert_eq!(program.gather(|evidence| evidence.updates.clone()), [4]);
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
