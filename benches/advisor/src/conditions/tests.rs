use coalesce_alloc::history::Action;
use coalesce_alloc::history::Action::{
    Alloc, FreeCompleted, FreeRequested, Oom, SegmentAlloc, SegmentFree,
};
use coalesce_alloc::release::v2;
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

fn generated() -> Input {
    input(written(|program| hold(program, 1, MIB)))
}

fn named() -> Named {
    Named(RecordedConditions {
        device: 0,
        conf: "max_split_size_mb:64".to_owned(),
        release: v2(9),
        addresses: AddressPolicy::Down,
        capacity: Some(20 * GIB),
        limit: Some(10 * GIB),
        limit_below: Some(11 * GIB),
    })
}

/// A recording of entries: action, address and size. At the end, the blocks of these sizes at these addresses are freed
/// and their segments returned.
fn recorded(conf: Option<&str>, entries: &[(Action, u64, u64)], end: &[(u64, u64)]) -> Input {
    let mut all = entries.to_vec();
    for &(addr, size) in end {
        let freed = [FreeRequested, FreeCompleted, SegmentFree];
        all.extend(freed.map(|action| (action, addr, size)));
    }
    let recording = Recording {
        conf: conf.map(str::to_owned),
        ..recording(&all)
    };
    let workload = RecordedWorkload::new("recorded", &recording).unwrap();
    Input {
        coverage: Some(recording.coverage()),
        device: None,
        recording: Some(recording),
        ..input(workload)
    }
}

/// The conditions in full: where they come from, and what they are.
fn lines(given: &Given, input: &Input) -> Vec<String> {
    let found = given.resolve(input, REFERENCE).unwrap();
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
    let text = found.text();
    assert!(text.ends_with("\n\n"));
    text.lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .chain([figures])
        .collect()
}

fn all_given() -> Given {
    Given {
        conf: Some("expandable_segments:True".to_owned()),
        capacity: Some(8 * GIB),
        limit: Some(6 * GIB),
        others: GIB,
        addresses: Some(AddressPolicy::FirstFit),
        release: Some(v2(8)),
    }
}

#[test]
fn conditions_of_a_generated_workload() {
    insta::assert_snapshot!(lines(&Given::default(), &generated()).join("\n"));
    insta::assert_snapshot!(lines(&all_given(), &generated()).join("\n"));
    let conditions = all_given().resolve(&generated(), REFERENCE).unwrap();
    let input = generated();
    let replay = conditions.subject(&input).conditions;
    assert_eq!((replay.capacity, replay.limit), (7 * GIB, Some(6 * GIB)));
}

#[test]
fn conditions_in_the_header_of_a_trace() {
    insta::assert_snapshot!(lines(&Given::default(), &input(named())).join("\n"));
    let others = Given {
        others: GIB,
        ..Given::default()
    };
    insta::assert_snapshot!(lines(&others, &input(named())).join("\n"));
    let capacity = Given {
        capacity: Some(8 * GIB),
        ..Given::default()
    };
    insta::assert_snapshot!(lines(&capacity, &input(named())).join("\n"));
    let mut unknown = named();
    unknown.0.conf = "later:1,max_split_size_mb:64".to_owned();
    unknown.0.capacity = None;
    unknown.0.limit = None;
    insta::assert_snapshot!(lines(&Given::default(), &input(unknown)).join("\n"));
    let found = Given::default().recorded(&input(named())).unwrap();
    assert_eq!(found, Some(named().0));
    assert_eq!(Given::default().recorded(&generated()).unwrap(), None);
}

#[test]
fn conditions_of_another_policy() {
    let found = Given::default().resolve(&input(named()), "direct").unwrap();
    assert_eq!(
        found.sources[2],
        "settings: the default settings, because none are given"
    );
    assert_eq!(found.conf, "");
}

#[test]
fn conditions_that_contradict() {
    let error = |given: &Given| {
        let found = given.resolve(&generated(), REFERENCE);
        format!("{:#}", found.unwrap_err())
    };
    let unknown = Given {
        conf: Some("later:1".to_owned()),
        ..Given::default()
    };
    assert_eq!(
        error(&unknown),
        "--conf 'later:1': Unrecognized key 'later' in CUDA allocator config."
    );
    assert!(unknown.resolve(&generated(), "direct").is_ok());
    let all = Given {
        capacity: Some(GIB),
        others: GIB,
        ..Given::default()
    };
    assert_eq!(
        error(&all),
        "--reserve-for-others leaves no device memory for the workload"
    );
    let invalid = Given {
        conf: Some("max_split_size_mb:1".to_owned()),
        ..Given::default()
    };
    assert!(
        invalid.resolve(&generated(), REFERENCE).is_ok(),
        "the replay reports it"
    );
}

/// Two tensors in segments of their own; a request fails while so many bytes are free on the device.
fn failing(free: u64) -> Input {
    recorded(
        None,
        &[
            (SegmentAlloc, 1 << 40, 40 * MIB),
            (Alloc, 1 << 40, 40 * MIB),
            (SegmentAlloc, (1 << 40) + 40 * MIB, 30 * MIB),
            (Alloc, (1 << 40) + 40 * MIB, 30 * MIB),
            (Oom, free, 50 * MIB),
        ],
        &[(1 << 40, 40 * MIB), ((1 << 40) + 40 * MIB, 30 * MIB)],
    )
}

#[test]
fn conditions_of_a_recording_in_which_a_request_fails() {
    let given = Given::default();
    insta::assert_snapshot!(lines(&given, &failing(20 * MIB)).join("\n"));
    insta::assert_snapshot!(lines(&given, &failing(200 * MIB)).join("\n"));
    let others = Given {
        others: 10 * MIB,
        ..Given::default()
    };
    assert_eq!(
        lines(&others, &failing(20 * MIB)).last().unwrap(),
        "'' of '', capacity Some(100), others 10, limit None below None, up, 2.11"
    );
    insta::assert_snapshot!(lines(&all_given(), &failing(200 * MIB)).join("\n"));
    let capacity = Given {
        capacity: Some(GIB),
        ..Given::default()
    };
    insta::assert_snapshot!(lines(&capacity, &failing(200 * MIB)).join("\n"));
    let recorded = Given::default()
        .recorded(&failing(200 * MIB))
        .unwrap()
        .unwrap();
    assert_eq!(recorded.limit.map(|bytes| bytes / MIB), Some(70));
}

/// The collector returns the older of two free segments before a third is taken.
#[test]
fn a_limit_under_which_the_collector_acts() {
    let [a, b, c] = [0, 40, 90].map(|mib| (1 << 40) + mib * MIB);
    let entries = [
        (SegmentAlloc, a, 40 * MIB),
        (Alloc, a, 40 * MIB),
        (FreeRequested, a, 40 * MIB),
        (FreeCompleted, a, 40 * MIB),
        (SegmentAlloc, b, 50 * MIB),
        (Alloc, b, 50 * MIB),
        (FreeRequested, b, 50 * MIB),
        (FreeCompleted, b, 50 * MIB),
        (SegmentFree, a, 40 * MIB),
        (SegmentAlloc, c, 60 * MIB),
        (Alloc, c, 60 * MIB),
        (FreeRequested, c, 60 * MIB),
        (FreeCompleted, c, 60 * MIB),
        (SegmentFree, b, 50 * MIB),
        (SegmentFree, c, 60 * MIB),
    ];
    let input = recorded(Some("garbage_collection_threshold:0.5"), &entries, &[]);
    insta::assert_snapshot!(lines(&Given::default(), &input).join("\n"));
    let capacity = Given {
        capacity: Some(GIB),
        ..Given::default()
    };
    let found = capacity.resolve(&input, REFERENCE).unwrap();
    assert_eq!(found.replay.limit, None);
}

#[test]
fn a_snapshot_without_a_history() {
    assert!(require_history(&generated()).is_ok());
    assert!(require_history(&failing(MIB)).is_ok());
    let mut empty = failing(MIB);
    let coverage = empty.coverage.as_mut().unwrap();
    coverage.extent = Extent::NoHistory;
    let error = require_history(&empty).unwrap_err().to_string();
    assert!(
        error.starts_with("x: the snapshot has no history"),
        "{error}"
    );
}

/// A recording, with what `coalesce.record()` noted at its end.
fn noting(mut input: Input, process: Process) -> Input {
    input.recording.as_mut().unwrap().process = process;
    input
}

#[test]
fn a_limit_that_the_recorder_noted_is_exact() {
    let of = |free: u64, limit: u64, given: &Given| {
        let noted = Process {
            total: Some(GIB),
            free: Some(free),
            limit: Some(limit),
        };
        let found = lines(given, &noting(failing(free), noted));
        [&found[0], &found[1], found.last().unwrap()].map(String::clone)
    };
    let [device, limit, figures] = of(200 * MIB, 100 * MIB, &Given::default());
    let device_source = "reserved and free memory together when a request failed";
    assert_eq!(device, format!("device memory: 270.0 MiB, {device_source}"));
    assert_eq!(limit, "limit: 100.0 MiB, as coalesce.record() noted");
    assert!(figures.contains("capacity Some(270), others 0, limit Some(100) below None"));
    // Without a limit it is the memory of the device.
    let [_, limit, _] = of(200 * MIB, GIB, &Given::default());
    assert!(limit.starts_with("limit: between 70.0 MiB and 120.0 MiB, inferred"));
    // It was changed after the request failed.
    let [_, limit, _] = of(200 * MIB, 300 * MIB, &Given::default());
    assert!(limit.starts_with("limit: between 70.0 MiB and 120.0 MiB, inferred"));
    // The device was full.
    let [_, limit, figures] = of(20 * MIB, 95 * MIB, &Given::default());
    assert_eq!(limit, "limit: 95.0 MiB, as coalesce.record() noted");
    assert!(figures.contains("capacity Some(90), others 0, limit Some(95)"));
    let given = Given {
        limit: Some(110 * MIB),
        ..Given::default()
    };
    let [_, limit, _] = of(200 * MIB, 100 * MIB, &given);
    assert_eq!(limit, "limit: 110.0 MiB, as requested");
    let [.., figures] = of(200 * MIB, 100 * MIB, &all_given());
    assert!(figures.contains("capacity Some(8192), others 1024, limit Some(6144)"));
}

#[test]
fn a_recording_without_a_failure_has_the_memory_that_was_free_at_its_end() {
    let [held, freed] = [(1 << 40, 40 * MIB), ((1 << 40) + 40 * MIB, 30 * MIB)];
    let entries = [
        (SegmentAlloc, held.0, held.1),
        (Alloc, held.0, held.1),
        (SegmentAlloc, freed.0, freed.1),
        (Alloc, freed.0, freed.1),
    ];
    let memory = |free: u64| {
        let noted = Process {
            free: Some(free),
            ..Process::default()
        };
        let input = noting(recorded(None, &entries, &[held, freed]), noted);
        lines(&Given::default(), &input)[0].clone()
    };
    let source = "reserved and free memory together when the snapshot was written";
    assert_eq!(
        memory(200 * MIB),
        format!("device memory: 200.0 MiB, {source}")
    );
    assert_eq!(
        memory(10 * MIB),
        format!("device memory: 70.0 MiB, {source}"),
        "its peak"
    );
    assert_eq!(
        memory(u64::MAX),
        format!("device memory: 16777216.00 TiB, {source}")
    );
    let noted = Process {
        total: Some(300 * MIB),
        free: Some(200 * MIB),
        limit: None,
    };
    let input = noting(recorded(None, &entries, &[held, freed]), noted);
    let beside = input.recording.unwrap().beside_at_end();
    assert_eq!(beside, Some(100 * MIB), "nothing is reserved at the end");
}
