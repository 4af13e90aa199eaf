use super::*;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::families::program::Program;
use coalesce_workloads::formats::snapshot::Annotation;

use crate::diagnose::testing::{MIB, ROOMY, Scene, Traced, burst, hold};

#[test]
fn phases_tell_the_categories() {
    let holdings = ROOMY.gather(
        |program| {
            program.mark("init");
            hold(program, 2, 10 * MIB);
            for step in 0..2 {
                program.mark(&format!("step {step}"));
                let input = program.alloc(MIB, "input");
                program.mark("forward");
                let activation = program.alloc(30 * MIB, "mm");
                program.mark("backward");
                let gradient = program.alloc(10 * MIB, "mm");
                program.free(activation);
                burst(program, 1, 5 * MIB);
                program.mark("optimizer");
                if step == 0 {
                    hold(program, 1, 20 * MIB);
                }
                burst(program, 1, 5 * MIB);
                program.free(gradient);
                program.free(input);
            }
        },
        |evidence| {
            let holders = Holders::of(evidence);
            [8, 13].map(|event| holders.at(event))
        },
    );
    let found = |holdings: &Holdings| -> Vec<_> {
        let shares = holdings
            .categories
            .iter()
            .map(|one| (one.category.name(), one.bytes / MIB));
        shares.collect()
    };
    assert_eq!(
        found(&holdings[0]),
        [
            ("activations", 30),
            ("parameters", 20),
            ("gradients", 10),
            ("inputs", 1)
        ]
    );
    assert_eq!(
        found(&holdings[1]),
        [
            ("parameters", 20),
            ("optimizer state", 20),
            ("gradients", 10),
            ("inputs", 1)
        ]
    );
    assert_eq!(holdings[0].total_bytes, 61 * MIB);
    assert_eq!(holdings[0].unknown_bytes, 0);
}

/// The category of each request of a program, by its tag.
fn categories(program: impl Fn(&mut Program<'_>) + Send + Sync) -> Vec<String> {
    ROOMY.gather(program, categories_of)
}

fn categories_of(evidence: &Evidence<'_>) -> Vec<String> {
    let holders = Holders::of(evidence);
    let shown = evidence.allocations().map(|(index, a)| {
        let tag = &evidence.log.tags[a.tag as usize];
        format!("{tag}: {}", holders.category(index).name())
    });
    shown.collect()
}

/// A tensor that is never freed.
fn leak(program: &mut Program<'_>, bytes: u64, tag: &str) {
    let _ = program.alloc(bytes, tag);
}

/// The workspaces of cuBLAS before and since Hopper.
const WORKSPACES: [u64; 2] = [8_519_680, 33_554_432];

#[test]
fn phases_tell_the_categories_of_all_requests() {
    let found = categories(|program| {
        program.mark("init");
        program.scratch(MIB, "copy of a weight");
        leak(program, 4 * MIB, "weight");
        let buffer = program.alloc(MIB, "buffer");
        let mut late = None;
        for step in 0..2 {
            program.mark(&format!("step {step}"));
            program.scratch(MIB, "augmentation");
            let input = program.alloc(MIB, "input");
            program.mark("forward");
            if let Some(late) = late.take() {
                program.free(late);
            }
            let activation = program.alloc(3 * MIB, "activation");
            let output = program.alloc(MIB, "output");
            let kept = program.alloc(MIB, "kept for two steps");
            leak(program, WORKSPACES[0], "workspace");
            leak(program, WORKSPACES[0], "no workspace");
            program.mark("backward");
            leak(program, WORKSPACES[0], "workspace of the backward pass");
            program.scratch(WORKSPACES[1], "freed workspace");
            let gradient = program.alloc(4 * MIB, "gradient");
            program.scratch(MIB, "temporary");
            program.free(activation);
            program.mark("optimizer");
            match step {
                0 => leak(program, 8 * MIB, "state"),
                _ => program.scratch(8 * MIB, "update"),
            }
            program.mark("step end");
            program.free(gradient);
            program.free(output);
            program.free(input);
            leak(program, MIB, "metric");
            late = Some(kept);
        }
        program.mark("data");
        program.scratch(MIB, "batch");
        program.mark("evaluation");
        program.scratch(MIB, "activation of the evaluation");
        program.mark("backward");
        program.scratch(MIB, "last temporary");
        leak(program, MIB, "last gradient");
        program.mark("optimizer");
        program.scratch(MIB, "last update");
        leak(program, MIB, "last state");
        program.free(buffer);
        late.into_iter().for_each(|late| program.free(late));
    });
    insta::assert_snapshot!(found.join("\n"));
}

/// What a recorded program does.
enum Act {
    Alloc(&'static str, u64),
    /// Frees the tensor with this number.
    Free(usize),
    /// A step of the optimizer begins or ends.
    Step(bool),
}

/// The categories of the requests of a program, whose recording has no stacks but announces the steps of the optimizer.
fn recorded_categories(acts: &[Act]) -> Vec<String> {
    let mut recorded = Recording::default();
    for (time_us, act) in (0..).zip(acts) {
        let (action, size) = match act {
            Act::Alloc(_, mib) => (Action::Alloc, mib * MIB),
            Act::Free(_) => (Action::FreeCompleted, MIB),
            &Act::Step(is_start) => {
                recorded.annotations.push(Annotation {
                    name: "Optimizer.step#AdamW.step".to_owned(),
                    is_start,
                    time_us,
                });
                continue;
            }
        };
        recorded.entries.push(TraceEntry {
            action,
            addr: DeviceAddr(0),
            size,
            stream: StreamId::DEFAULT,
            time_us,
        });
    }
    let program = |program: &mut Program<'_>| {
        let mut tensors = Vec::new();
        for act in acts {
            match act {
                Act::Alloc(tag, mib) => tensors.push(Some(program.alloc(mib * MIB, tag))),
                &Act::Free(number) => program.free(tensors[number].take().unwrap()),
                Act::Step(_) => {}
            }
        }
    };
    Scene::recorded(&recorded).gather(program, categories_of)
}

/// Memory rises in the forward pass and falls in the backward pass, and parameters have the sizes of gradients.
#[test]
fn sizes_and_the_course_of_memory_tell_categories() {
    use Act::{Alloc, Free, Step};
    let mut acts = vec![
        Alloc("weight", 5),
        Alloc("weight", 6),
        Alloc("other", 9),
        Alloc("freed before the first step", 5),
        Free(3),
    ];
    let mut number = 4;
    for step in 0..3 {
        acts.extend([
            Alloc("activation", 20),
            Alloc("activation", 21),
            Alloc("gradient", 6),
            Free(number + 1),
            Alloc("gradient", 5),
            Free(number),
            Alloc("temporary", 1),
            Free(number + 4),
            Step(true),
        ]);
        let states = match step {
            0 => vec![Alloc("state", 5), Alloc("state", 6)],
            _ => vec![Alloc("update", 3), Free(number + 5)],
        };
        acts.extend(states);
        acts.extend([Step(false), Free(number + 2), Free(number + 3)]);
        number += if step == 0 { 7 } else { 6 };
    }
    acts.extend([Alloc("of a parameter's size", 5), Free(number)]);
    insta::assert_snapshot!(recorded_categories(&acts).join("\n"));
}

/// Holders in full: by place, category and stream, the largest first.
#[test]
fn who_holds_memory_in_full() {
    let shown = |holdings: &Holdings| -> Vec<String> {
        let holders = holdings.holders.iter().map(|holder| {
            format!(
                "{holder}: {} MiB in {}, {}, stream {}",
                holder.bytes / MIB,
                holder.blocks,
                holder.category.name(),
                holder.stream
            )
        });
        let streams = holdings
            .streams
            .iter()
            .map(|one| format!("stream {}: {} MiB", one.stream, one.bytes / MIB));
        let sums = [
            holdings.total_bytes,
            holdings.unknown_bytes,
            holdings.unplaced_bytes,
        ];
        let sums = sums.map(|bytes| bytes / MIB);
        holders
            .chain(streams)
            .chain([format!("{sums:?}")])
            .collect()
    };
    let holdings = ROOMY.gather(
        |program| {
            program.mark("init");
            hold(program, 2, 10 * MIB);
            let other = program.alloc_on(3, 25 * MIB, "other");
            hold(program, 1, 4 * MIB);
            program.free(other);
            program.mark("work");
            [7, 7, 8].into_iter().for_each(|mib| {
                let tensor = program.alloc(mib * MIB, "");
                program.hold(tensor);
            });
            let small = program.alloc(700, "");
            program.hold(small);
        },
        |evidence| {
            let holders = Holders::of(evidence);
            [3, 10].map(|event| holders.at(event))
        },
    );
    insta::assert_snapshot!(shown(&holdings[0]).join("\n"));
    insta::assert_snapshot!(shown(&holdings[1]).join("\n"));
    assert!(holdings[1].holders.iter().any(Holder::is_by_size));
    assert_eq!(holdings[1].bytes_of(Category::Gradients), 0);
    let mut program = Traced::new();
    for line in [3, 3, 4] {
        program.request(&format!("/app/train.py:{line} main"), line * MIB, true);
    }
    let library = "/app/train.py:9 main > /lib/site-packages/transformers/model.py:7 forward";
    program.request(library, 20 * MIB, true);
    program.request("/lib/site-packages/torch/functional.py:8 f", MIB, true);
    let holdings = program.gather(|evidence| Holders::of(evidence).at(4));
    insta::assert_snapshot!(shown(&holdings).join("\n"));
    assert!(!holdings.holders[0].is_by_size());
    assert_eq!(holdings.holders[0].frames.len(), 2);
}
