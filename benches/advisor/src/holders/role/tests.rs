//! Roles of stacks as PyTorch and common packages have them, and of phases: `cases/roles.txt`.

use std::sync::Arc;

use coalesce_workloads::cases;

use super::*;

fn frame(text: &str) -> Arc<Frame> {
    let (file, name) = match text {
        "MODULE" => ("torch/nn/modules/module.py", "_call_impl"),
        _ => text.split_once(':').expect("a file and a function"),
    };
    let filename = match file.strip_prefix('/') {
        // C++ and frozen modules have no folders.
        Some(other) if !other.contains('/') => other.to_owned(),
        Some(_) => file.to_owned(),
        None => format!("/usr/lib/python3/dist-packages/{file}"),
    };
    Arc::new(Frame {
        name: name.to_owned(),
        filename,
        line: 1,
    })
}

#[test]
fn stacks_and_phases_have_the_recorded_roles() {
    cases::check("src/holders/cases/roles.txt", |case| {
        let role = match case.strip_prefix("phase ") {
            Some(tag) => Role::of_phase(tag),
            None => Role::of(&Stack {
                frames: case.split(" < ").map(frame).collect(),
            }),
        };
        format!("{role:?}")
    });
}
