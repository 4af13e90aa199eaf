use std::sync::Arc;

use super::*;
use crate::diagnose::diagnose;
use crate::diagnose::steps::Steps;
use crate::diagnose::testing::{MIB, Traced};

const CALL: &str = "/lib/site-packages/torch/nn/modules/module.py:1775 _call_impl";

/// The forward pass of a model with six layers, called from `caller`. Each keeps `kept` bytes.
fn forward(program: &mut Traced, caller: &str, kept: u64) {
    let model = format!("{caller} > {CALL} > model.py:8 forward");
    program.request(&model, 2 * MIB, false);
    for _ in 0..6 {
        let layer = format!("{caller} > {CALL} > model.py:9 forward > {CALL}");
        for line in 3..6 {
            program.request(
                &format!("{layer} > layer.py:{line} forward"),
                5 * MIB,
                false,
            );
        }
        program.request(&format!("{layer} > layer.py:7 forward"), kept, kept > 0);
    }
}

/// Training steps with a loss that stays.
fn train(steps: u64) -> Traced {
    let mut program = Traced::new();
    for _ in 0..steps {
        let line = |line: u64| format!("run.py:90 <module> > train.py:{line} epoch");
        program.request(&line(20), MIB, false);
        forward(&mut program, &line(21), 0);
        program.request(&line(22), 3 * MIB, true);
        (0..9).for_each(|_| program.request("", 4 * MIB, false));
    }
    program
}

fn steps(program: &Traced) -> Option<Steps> {
    program.gather(|evidence| evidence.steps.clone())
}

/// The mistakes of the program that are found.
fn mistakes(program: &Traced) -> Vec<&'static str> {
    let mistakes = ["growth", "graph", "gradients", "losses"];
    program.gather(|evidence| {
        let found = diagnose(evidence);
        let rules = found.iter().map(|found| found.rule);
        rules.filter(|rule| mistakes.contains(rule)).collect()
    })
}

#[test]
fn a_loop_with_backward_passes_has_steps() {
    let program = train(5);
    let found = steps(&program).unwrap();
    assert_eq!(found.events.len(), 5);
    assert!(found.trains());
    let source = StepSource::Loop {
        place: "train.py:20".to_owned(),
        trains: true,
    };
    assert_eq!(found.source, source);
    assert_eq!(mistakes(&program), ["growth"], "each step keeps its loss");
}

/// The layers of the first forward pass repeat, and all keep activations: no step has ended.
#[test]
fn layers_of_the_first_step_are_no_steps() {
    let mut program = Traced::new();
    for _ in 0..4 {
        // Four parts of six layers each, in one forward pass.
        forward(
            &mut program,
            "run.py:90 <module> > train.py:21 epoch",
            30 * MIB,
        );
    }
    assert_eq!(steps(&program), None);
    assert_eq!(mistakes(&program), [""; 0]);
}

/// Layers outside of any module, which no layers of their own show to be whole models.
#[test]
fn layers_in_a_plain_function_are_no_steps() {
    let mut program = Traced::new();
    for _ in 0..24 {
        for line in 30..36 {
            let stack = format!("run.py:90 <module> > gpt.py:{line} layers");
            program.request(&stack, 5 * MIB, line == 33);
        }
    }
    assert_eq!(steps(&program), None);
    assert_eq!(mistakes(&program), [""; 0]);
}

#[test]
fn inference_that_keeps_its_outputs() {
    let mut program = Traced::new();
    for _ in 0..10 {
        let line = |line: u64| format!("serve.py:{line} main");
        program.request(&line(40), MIB, false);
        forward(&mut program, &line(41), 0);
        program.request(&line(42), 7 * MIB, true);
    }
    let found = steps(&program).unwrap();
    assert!(!found.trains());
    assert_eq!(mistakes(&program), ["growth"]);
}

#[test]
fn optimizer_steps_are_recognised_by_their_stacks() {
    let mut program = Traced::new();
    for _ in 0..4 {
        forward(&mut program, "train.py:21 epoch", 0);
        let update = "train.py:23 epoch > /lib/site-packages/torch/optim/optimizer.py:500 wrapper";
        (0..3).for_each(|_| program.request(update, MIB, false));
    }
    let found = steps(&program).unwrap();
    assert_eq!(found.source, StepSource::Updates);
    assert_eq!(found.events.len(), 4);
}

/// Layers with temporary tensors of the parameters' sizes, as casts of the parameters are.
#[test]
fn casts_of_parameters_in_layers_are_not_gradients() {
    let mut program = Traced::new();
    let caller = "run.py:90 <module>";
    (0..4).for_each(|_| program.request(&format!("{caller} > model.py:3 __init__"), 4 * MIB, true));
    for _ in 0..12 {
        let layer = format!("{caller} > {CALL} > model.py:9 forward > {CALL}");
        program.request(&format!("{layer} > layer.py:3 forward"), 4 * MIB, false);
        (4..14).for_each(|line| {
            program.request(
                &format!("{layer} > layer.py:{line} forward"),
                line * MIB / 2,
                line == 7,
            );
        });
    }
    assert_eq!(steps(&program), None);
    assert_eq!(mistakes(&program), Vec::<&str>::new());
}

fn frame(file: &str, name: &str) -> Frame {
    Frame {
        name: name.to_owned(),
        filename: file.to_owned(),
        line: 7,
    }
}

#[test]
fn frames_of_optimizer_steps() {
    for (file, name) in [
        ("/torch/optim/optimizer.py", "wrapper"),
        ("C:\\torch\\optim\\optimizer.py", "wrapper"),
        ("/torch/optim/adam.py", "step"),
    ] {
        assert!(is_update(&frame(file, name)), "{file} {name}");
    }
    for (file, name) in [
        ("/torch/optim/adam.py", "wrapper"),
        ("/torch/optim/adam.py", "adamw"),
        ("/torch/optim/lr_scheduler.py", "step"),
        ("/app/optimizer.py", "wrapper"),
        ("/app/train.py", "step"),
    ] {
        assert!(!is_update(&frame(file, name)), "{file} {name}");
    }
}

/// A path ends at the first frame of PyTorch or of a module; decorators and launchers belong to it.
#[test]
fn the_path_of_a_stack() {
    let names = |frames: &[(&str, &str)]| {
        let frames = frames
            .iter()
            .rev()
            .map(|(file, name)| Arc::new(frame(file, name)));
        let stack = Stack {
            frames: frames.collect(),
        };
        let outline = Outline::of(&stack);
        let path: Vec<String> = path(&stack).map(|frame| frame.name.clone()).collect();
        (path.join(" "), outline.calls_module, outline.is_backward)
    };
    let torch = |file: &str| format!("/lib/site-packages/torch/{file}");
    let run = ("/app/run.py", "main");
    let module = torch("nn/modules/module.py");
    assert_eq!(
        names(&[
            run,
            (&torch("utils/_contextlib.py"), "decorate"),
            (&torch("autograd/grad_mode.py"), "no_grad"),
            ("/app/loop.py", "step"),
            (&module, "_call_impl"),
            ("/app/model.py", "forward"),
        ]),
        ("main decorate no_grad step".to_owned(), true, false)
    );
    assert_eq!(
        names(&[run, ("/app/model.py", "forward"), ("/app/a.py", "f")]),
        ("main".to_owned(), true, false)
    );
    for launcher in [
        "multiprocessing/spawn.py",
        "distributed/run.py",
        "distributed/elastic/agent.py",
        "distributed/launcher/api.py",
    ] {
        let found = names(&[(&torch(launcher), "launch"), run]);
        assert_eq!(found.0, "launch main", "{launcher}");
    }
    assert_eq!(names(&[(&torch("functional.py"), "f"), run]).0, "");
    let autograd = torch("autograd/function.py");
    assert!(
        names(&[(&autograd, "apply"), run]).2,
        "a function in the backward pass"
    );
    assert!(!names(&[run, (&autograd, "apply")]).2);
    assert!(names(&[("??", "at::empty")]).2, "no Python frames");
}

#[test]
fn the_line_that_is_reached_once_in_each_repetition() {
    let find = |visits: &[(u64, usize)]| {
        let lines = (0..).zip(visits).map(|(node, &(_, visits))| Line {
            node,
            visits: vec![0; visits],
        });
        let number = |line: &Line| visits[line.node as usize].0;
        once_per_repetition(lines.collect(), number).map(|line| line.node)
    };
    // The numbers of lines, and how often each is reached.
    assert_eq!(find(&[(9, 3), (8, 5), (6, 5), (7, 5), (1, 4)]), Some(2));
    assert_eq!(
        find(&[(9, 6), (8, 4)]),
        Some(1),
        "the one reached least often"
    );
    assert_eq!(
        find(&[(9, 3), (8, 2), (7, 2)]),
        Some(0),
        "three times at least"
    );
    assert_eq!(find(&[(9, 2)]), None);
    assert_eq!(find(&[(9, 3), (9, 3)]), Some(0));
}

/// Requests of one optimizer step are at most eight requests apart.
#[test]
fn optimizer_steps_of_one_caller() {
    let updates = |between: usize| {
        let mut program = Traced::new();
        let optimizer = "/torch/optim/sgd.py:7 step";
        program.request("a.py:1 main", MIB, false);
        for caller in [2, 3, 2] {
            program.request(&format!("a.py:{caller} main > {optimizer}"), MIB, false);
            (0..between).for_each(|_| program.request("a.py:1 main", MIB, false));
        }
        program.gather(|evidence| evidence.updates.clone())
    };
    assert_eq!(updates(3), [2], "eight requests apart");
    assert_eq!(updates(4), [2, 22], "without the other optimizer");
}

/// Each repetition makes ten requests at two lines, and these without Python frames.
#[test]
fn a_backward_pass_makes_three_requests() {
    let found = |backward: usize| {
        let mut program = Traced::new();
        for _ in 0..4 {
            (0..5).for_each(|_| program.request("train.py:20 main", MIB, false));
            (0..5).for_each(|_| program.request("train.py:21 main", MIB, false));
            (0..backward).for_each(|_| program.request("", MIB, false));
        }
        steps(&program).map(|steps| steps.events.iter().map(|step| step.start).collect())
    };
    assert_eq!(found(3), Some(vec![0, 26, 52, 78]));
    assert_eq!(found(2), None);
}

/// Each repetition calls a module in whose stack layers repeat.
#[test]
fn three_layers() {
    let found = |layers: usize| {
        let mut program = Traced::new();
        for _ in 0..4 {
            program.request("serve.py:40 main", MIB, false);
            for _ in 0..layers {
                let layer = format!("serve.py:41 main > {CALL} > model.py:9 forward");
                // Two requests of one layer.
                (0..2).for_each(|_| program.request(&layer, MIB, false));
                program.request(&format!("{layer} > {CALL} > a.py:3 forward"), MIB, false);
            }
        }
        steps(&program).map(|steps| steps.events.len())
    };
    assert_eq!(found(3), Some(4));
    assert_eq!(found(2), None);
}

/// The repetitions reach from the first visit of the line to the last request of its frame.
#[test]
fn a_loop_covers_half_of_the_program() {
    let found = |others: usize| {
        let mut program = Traced::new();
        (0..others).for_each(|_| program.request("setup.py:1 main", MIB, false));
        for _ in 0..3 {
            program.request("train.py:20 main", MIB, false);
            (0..3).for_each(|_| program.request("", MIB, false));
            program.request("train.py:21 main", MIB, false);
        }
        steps(&program).map(|steps| steps.events.len())
    };
    // Of 28 and 29 requests, 14 are covered.
    assert_eq!(found(13), Some(3));
    assert_eq!(found(14), None);
}
