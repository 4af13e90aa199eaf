//! A trace of a snapshot, in either form, replays like the snapshot: in every figure and at every address.
//!
//! `COALESCE_SNAPSHOTS`, `COALESCE_H200` and `COALESCE_PUBLIC_TRACES` name folders with more recordings.

use std::path::Path;

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallCounts;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::registry;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::DeviceStats;
use coalesce_workloads::formats::binary;
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::formats::{Device, FileContent, open};
use coalesce_workloads::op::Workload;
use coalesce_workloads::replay::{Outcome, Step, Tally, replay};
use coalesce_workloads::start;

use crate::common::{EXPANDABLE, MIB, ROOMY, write_file};
use crate::elsewhere::{files, say};
use crate::sections::written;

/// All that a replay shows.
#[derive(Debug, PartialEq)]
struct Shown {
    tally: Tally,
    stats: DeviceStats,
    calls: CallCounts,
    segments: Vec<SegmentInfo>,
    outcomes: Vec<Outcome>,
    /// Bytes reserved after each operation.
    reserved: Vec<i64>,
}

fn shown<A>(workload: &dyn Workload, mut allocator: A) -> Shown
where
    A: Allocator<Driver = SimDevice>,
{
    let (mut outcomes, mut reserved) = (Vec::new(), Vec::new());
    let mut watch = |step: &Step<'_>| {
        outcomes.push(step.outcome);
        reserved.push(step.stats.reserved_bytes.all().current);
        Ok(())
    };
    let tally = replay(workload, &mut allocator, &mut watch)
        .unwrap_or_else(|error| panic!("{}: {error:?}", workload.name()));
    allocator.check().unwrap();
    Shown {
        tally,
        stats: allocator.stats().clone(),
        calls: allocator.driver().counts().clone(),
        segments: allocator.segments(),
        outcomes,
        reserved,
    }
}

/// Replays with the reference under settings, on a device of `capacity` bytes.
fn by_reference(
    workload: &dyn Workload,
    recording: &Recording,
    conf: &str,
    capacity: u64,
) -> Shown {
    let settings = Settings::of_release(recording.release())
        .started_with(conf)
        .unwrap();
    let config = SimConfig {
        addresses: recording.address_policy().unwrap_or_default(),
        ..SimConfig::with_capacity(capacity)
    };
    let start = workload.start().map(AsRef::as_ref);
    shown(workload, start::reference(start, &config, settings, None))
}

fn by_policy(workload: &dyn Workload, name: &str) -> Shown {
    let device = SimDevice::new(&SimConfig::with_capacity(ROOMY));
    shown(workload, registry::build(name, device, "").unwrap())
}

/// The traces of a workload: CSV and binary.
fn traces(name: &str, workload: &dyn Workload) -> [Box<dyn Workload>; 2] {
    let [csv, packed] = written(&[(0, workload)])
        .map(|(ending, bytes)| write_file(&format!("{name}.{ending}"), &bytes));
    [
        Box::new(TraceFile::open(csv).unwrap()),
        Box::new(binary::open(packed).unwrap()),
    ]
}

/// Compares the replays of a recording with those of its traces. Returns whether the recording can be replayed.
fn check(name: &str, recording: &Recording) -> bool {
    let Ok(recorded) = RecordedWorkload::new("recorded", recording) else {
        return false;
    };
    compare(name, recording, &recorded, &traces(name, &recorded));
    true
}

/// Compares the replays of a recording with those of traces of it.
fn compare(
    name: &str,
    recording: &Recording,
    recorded: &RecordedWorkload,
    traces: &[Box<dyn Workload>],
) {
    for trace in traces {
        assert_eq!(trace.start(), recorded.start(), "{name}");
        assert_eq!(trace.recorded_failures(), recorded.recorded_failures());
    }
    let conf = recording.settings().unwrap().conf;
    let scarce = (recording.peak_reserved() / 4 * 3).max(2 * MIB);
    let confs = [(&*conf, ROOMY), ("", ROOMY), (EXPANDABLE, ROOMY)];
    for (conf, capacity) in confs.into_iter().chain([(&*conf, scarce), ("", scarce)]) {
        let expected = by_reference(recorded, recording, conf, capacity);
        for trace in traces {
            let again = by_reference(&**trace, recording, conf, capacity);
            assert!(again == expected, "{name}, '{conf}', {capacity} bytes");
        }
    }
    for policy in ["gmlake", "cuda_async"] {
        let expected = by_policy(recorded, policy);
        for trace in traces {
            assert!(by_policy(&**trace, policy) == expected, "{name}, {policy}");
        }
    }
}

/// As [`check`], for the devices of one recording in one trace. Returns how many can be replayed.
fn check_together(name: &str, recordings: &[Recording]) -> usize {
    let recorded: Vec<(&Recording, RecordedWorkload)> = recordings
        .iter()
        .filter_map(|recording| {
            let workload = RecordedWorkload::new("recorded", recording).ok()?;
            Some((recording, workload))
        })
        .collect();
    if recorded.len() < 2 {
        return 0;
    }
    let devices: Vec<Device<'_>> = recorded
        .iter()
        .map(|(recording, workload)| -> Device<'_> { (recording.device, workload) })
        .collect();
    let opened = written(&devices).map(|(ending, bytes)| {
        let path = write_file(&format!("{name}-all.{ending}"), &bytes);
        match open(path).unwrap() {
            FileContent::Devices(trace) => trace,
            _ => panic!("{name} has several devices"),
        }
    });
    for (index, (recording, workload)) in recorded.iter().enumerate() {
        for trace in &opened {
            assert_eq!(trace.devices()[index], recording.device);
        }
        let traces = opened.each_ref().map(|trace| trace.open(index).unwrap());
        compare(
            &format!("{name}, section {index}"),
            recording,
            workload,
            &traces,
        );
    }
    recorded.len()
}

/// Checks the recordings of a file, and their ends, which begin with reserved memory.
fn check_file(path: &Path) -> usize {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mut checked = 0;
    let recordings = read(path).unwrap();
    let together = check_together(&name, &recordings);
    if recordings.len() > 1 {
        say(&format!("{name}: {together} devices in one trace"));
    }
    for recording in recordings {
        let name = format!("{name}-{}", recording.device);
        checked += usize::from(check(&name, &recording));
        let mut end = recording;
        let half = end.entries.len() / 2;
        end.entries.drain(..half);
        if !end.entry_pools.is_empty() {
            end.entry_pools.drain(..half);
        }
        end.entry_stacks.clear();
        check(&format!("{name}-end"), &end);
    }
    checked
}

#[test]
fn traces_of_the_recordings_in_this_repository_replay_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "tests/fixtures",
        "../allocator/tests/golden",
        "tests/h200",
        "../benches/advisor/tests/holders",
    ];
    let mut checked = 0;
    for folder in folders {
        for file in root.join(folder).read_dir().unwrap() {
            let path = file.unwrap().path();
            let name = path.to_string_lossy();
            let is_snapshot = [".pickle", ".pickle.gz", ".pickle.xz"];
            if is_snapshot.iter().any(|ending| name.ends_with(ending)) {
                checked += check_file(&path);
            }
        }
    }
    assert!(checked > 20, "{checked} recordings");
}

#[test]
fn traces_of_recordings_elsewhere_replay_alike() {
    let folders = [
        ("COALESCE_SNAPSHOTS", ".pickle.gz"),
        ("COALESCE_H200", ".pickle.xz"),
        ("COALESCE_PUBLIC_TRACES", ".csv.gz"),
    ];
    for (variable, ending) in folders {
        for file in files(variable, ending) {
            say(&format!(
                "{}: {} checked",
                file.display(),
                check_file(&file)
            ));
        }
    }
}
