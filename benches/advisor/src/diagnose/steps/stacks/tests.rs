use std::sync::Arc;

use super::*;

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
