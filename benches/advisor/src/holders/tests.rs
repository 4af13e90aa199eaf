//! Who holds memory in programs as text: `cases/programs.txt`.

use std::fmt::Write;

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::cases;
use coalesce_workloads::families::program::Program;
use coalesce_workloads::formats::snapshot::Annotation;

use super::*;
use crate::diagnose::testing::{MIB, Scene, case};

#[test]
fn holders_in_programs() {
    cases::check("src/holders/cases/programs.txt", |case| {
        let (at, program) = case.split_once('\n').unwrap();
        let events = at.split(' ').skip(1).map(|event| event.parse().unwrap());
        case::gather(program, |evidence| {
            let holders = Holders::of(evidence);
            let held: String = events
                .clone()
                .map(|event| held(&holders.at(event)))
                .collect();
            held + &format!("requests {}", categories_of(evidence).join(", "))
        })
    });
}

fn held(held: &Holdings) -> String {
    let mut text = format!("event {}\n", held.event);
    for holder in &held.holders {
        let (mib, blocks, by) = (holder.bytes / MIB, holder.blocks, holder.is_by_size());
        let (category, stream) = (holder.category.name(), holder.stream);
        let _ = write!(
            text,
            "{holder}: {mib} in {blocks}, {category}, stream {stream}"
        );
        let _ = writeln!(text, ", by size {by}, frames {:?}", holder.frames);
    }
    for one in &held.streams {
        let _ = writeln!(text, "stream {}: {}", one.stream, one.bytes / MIB);
    }
    for one in &held.categories {
        let (name, bytes) = (one.category.name(), held.bytes_of(one.category));
        let _ = writeln!(text, "{name}: {}", bytes / MIB);
    }
    let sums = [held.total_bytes, held.unknown_bytes, held.unplaced_bytes];
    let [total, unknown, unplaced] = sums.map(|bytes| bytes / MIB);
    text + &format!("{total}, of which {unknown} unknown, {unplaced} without a place\n")
}

fn categories_of(evidence: &Evidence<'_>) -> Vec<String> {
    let holders = Holders::of(evidence);
    let shown = evidence.allocations().map(|(index, a)| {
        let tag = &evidence.log.tags[a.tag as usize];
        format!("{tag}: {}", holders.category(index).name())
    });
    shown.collect()
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
