use crate::diagnose::diagnose;
use crate::diagnose::steps::{StepSource, Steps};
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
