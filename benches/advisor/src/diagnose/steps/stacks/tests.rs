//! What is known about stacks: `cases/paths.txt`.

use std::sync::Arc;

use coalesce_workloads::cases;

use super::*;

fn frame(text: &str) -> Arc<Frame> {
    let (file, name) = text.split_once(' ').expect("a file and a function");
    Arc::new(Frame {
        name: name.to_owned(),
        filename: file.replace("TORCH", "/lib/site-packages/torch"),
        line: 7,
    })
}

/// The path of a stack, whose frames are written outermost first, and what it does.
#[test]
fn paths_of_stacks() {
    cases::check("src/diagnose/steps/cases/paths.txt", |stack| {
        let frames = stack.rsplit(" > ").map(frame).collect();
        let stack = Stack { frames };
        let outline = Outline::of(&stack);
        let path: Vec<&str> = path(&stack).map(|frame| &*frame.name).collect();
        let path = if path.is_empty() {
            "none".to_owned()
        } else {
            path.join(" ")
        };
        let does = [
            (outline.calls_module, ", calls a module"),
            (outline.is_backward, ", of a backward pass"),
            (outline.is_update, ", updates"),
        ];
        let does = does.into_iter().filter(|(does, _)| *does);
        path + &does.map(|(_, what)| what).collect::<String>()
    });
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
