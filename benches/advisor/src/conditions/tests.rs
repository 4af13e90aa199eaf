//! The conditions of inputs as text: `cases/inputs.txt`.
//!
//! A case is a generated workload, a trace with settings in its header, or a recording, whose entries are lines: `taken` is a
//! segment with its block, `given-back` frees a block, `freed` returns its segment as well, and `oom` has what is free.

use coalesce_alloc::bytes;
use coalesce_alloc::history::Action;
use coalesce_alloc::release::v2;
use coalesce_workloads::cases;
use coalesce_workloads::formats::snapshot::process::Process;
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::op::{Sink, Workload, WorkloadError};

use super::*;
use crate::diagnose::testing::{GIB, MIB, hold, recording, written};

/// A trace with conditions in its header.
struct Named(RecordedConditions);

impl Workload for Named {
    fn name(&self) -> &'static str {
        "named"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        written(|program| hold(program, 1, MIB)).emit(sink)
    }

    fn conditions(&self) -> Option<&RecordedConditions> {
        Some(&self.0)
    }
}

fn input(workload: impl Workload + 'static) -> Input {
    Input {
        source: "x".into(),
        workload: Box::new(workload),
        device: None,
        recording: None,
        coverage: None,
        remarks: Vec::new(),
    }
}

fn trace(conf: &str, has_memory: bool) -> Input {
    input(Named(RecordedConditions {
        device: 0,
        conf: conf.to_owned(),
        release: v2(9),
        addresses: AddressPolicy::Down,
        capacity: has_memory.then_some(20 * GIB),
        limit: has_memory.then_some(10 * GIB),
        limit_below: Some(11 * GIB),
    }))
}

fn recorded(recording: Recording) -> Input {
    let workload = RecordedWorkload::new("recorded", &recording).unwrap();
    Input {
        coverage: Some(recording.coverage()),
        recording: Some(recording),
        ..input(workload)
    }
}

/// The input of a case, what is given, and the policy.
fn read(case: &str) -> (Input, Given, &str) {
    use Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree};
    let size = |text: &str| bytes::parse(text).expect("a size");
    let (mut given, mut policy) = (Given::default(), REFERENCE);
    let (mut entries, mut process, mut conf) = (Vec::new(), Process::default(), None);
    let mut other = None;
    for line in case.lines() {
        match *line.splitn(3, ' ').collect::<Vec<_>>() {
            ["generated"] => other = Some(input(written(|program| hold(program, 1, MIB)))),
            ["trace", conf] => other = Some(trace(conf, !case.contains("without memory"))),
            ["without", "memory"] => {}
            ["policy", name] => policy = name,
            ["settings", settings] => conf = Some(settings.to_owned()),
            ["given", "conf", value] => given.conf = Some(value.to_owned()),
            ["given", "capacity", value] => given.capacity = Some(size(value)),
            ["given", "limit", value] => given.limit = Some(size(value)),
            ["given", "others", value] => given.others = size(value),
            ["given", "addresses", value] => given.addresses = Some(value.parse().unwrap()),
            ["given", _, value] => given.release = Some(value.parse().unwrap()),
            ["noted", "total", value] => process.total = Some(size(value)),
            ["noted", "free", value] => process.free = Some(size(value)),
            ["noted", _, value] => process.limit = Some(size(value)),
            [what, _, place] => {
                let (addr, bytes) = place.split_once(", ").expect("an address and a size");
                let actions: &[Action] = match what {
                    "taken" => &[SegmentAlloc, Alloc],
                    "given-back" => &[FreeRequested, FreeCompleted],
                    "freed" => &[FreeRequested, FreeCompleted, SegmentFree],
                    "segment_free" => &[SegmentFree],
                    _ => &[Oom],
                };
                let base = if what == "oom" { 0 } else { 1 << 40 };
                let entry = |&action| (action, base + size(addr), size(bytes));
                entries.extend(actions.iter().map(entry));
            }
            _ => panic!("no such line: {line}"),
        }
    }
    let recording = || Recording {
        conf: conf.clone(),
        process,
        ..recording(&entries)
    };
    (
        other.unwrap_or_else(|| recorded(recording())),
        given,
        policy,
    )
}

/// Where the conditions come from, what they are, and what a trace would record.
fn shown(case: &str) -> String {
    let (input, given, policy) = read(case);
    let found = match given.resolve(&input, policy) {
        Ok(found) => found,
        Err(error) => return format!("{error:#}"),
    };
    let replay = found.replay;
    let mib = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(MIB));
    let figures = format!(
        "'{}' of '{}', capacity {:?}, others {}, limit {:?} below {:?}, {}, {}",
        found.conf,
        found.present,
        (replay.capacity != ROOMY).then_some(replay.capacity / MIB),
        replay.others / MIB,
        mib(replay.limit),
        mib(found.limit_below),
        replay.addresses.name(),
        replay.release,
    );
    let subject = found.subject(&input).conditions;
    let subject = (subject.capacity / MIB, mib(subject.limit));
    let beside = input.recording.as_ref().and_then(Recording::beside_at_end);
    let recorded = given.recorded(&input).unwrap();
    let recorded = recorded.map(|it| (it.conf, mib(it.capacity), mib(it.limit)));
    assert!(found.text().ends_with("\n\n"));
    let text = found.text().trim_end().to_owned();
    format!(
        "{text}\n{figures}\nreplayed on {subject:?}; recorded {recorded:?}, beside {:?}",
        mib(beside)
    )
}

#[test]
fn conditions_of_inputs() {
    cases::check("src/conditions/cases/inputs.txt", shown);
}

#[test]
fn a_snapshot_without_a_history() {
    assert!(require_history(&read("generated").0).is_ok());
    let mut empty = read("taken at 0 MiB, 40 MiB\nfreed at 0 MiB, 40 MiB").0;
    assert!(require_history(&empty).is_ok());
    empty.coverage.as_mut().unwrap().extent = Extent::NoHistory;
    let error = require_history(&empty).unwrap_err().to_string();
    let words = "x: the snapshot has no history";
    assert!(error.starts_with(words), "{error}");
}
