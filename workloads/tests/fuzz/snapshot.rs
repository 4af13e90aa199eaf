//! PyTorch's memory snapshots: read, rewound to their initial state, replayed and written again.

use std::error::Error;

use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::op::{Answer, Op, Workload};
use proptest::proptest;

use crate::examples::{almost, examples};
use crate::file::Scratch;
use crate::memory::Most;

const EXAMPLES: &str = "fixtures";

/// One byte of the pickle can be a value, and one value an entry or a block; texts may be shared.
const READ: Most = Most {
    fixed: 1 << 18,
    per_byte: 600,
};
const REPLAYED: Most = Most {
    fixed: 1 << 20,
    per_byte: 2000,
};
/// The same with expandable segments: a device has a million pages.
const WITH_PAGES: Most = Most {
    fixed: 1 << 29,
    per_byte: 2000,
};

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let Ok(recordings) = READ.during(bytes, || read(path).map_err(text)) else {
        return;
    };
    for recording in &recordings {
        let most = if has_pages(recording) {
            WITH_PAGES
        } else {
            REPLAYED
        };
        most.during(bytes, || replay(recording));
    }
    let written = written(&recordings);
    let again = read(file.holding(&written)).expect("what was written is a snapshot");
    let expected = recordings
        .iter()
        .filter(|recording| recording.device < DEVICES);
    let contents = |recording: &Recording| {
        (
            recording.device,
            recording.entries.clone(),
            recording.segments.clone(),
        )
    };
    assert!(again.iter().map(contents).eq(expected.map(contents)));
}

/// Whether it has pages at any time: an unmap implies an earlier map.
fn has_pages(recording: &Recording) -> bool {
    let (mut entries, mut segments) = (recording.entries.iter(), recording.segments.iter());
    entries.any(|entry| entry.action.is_about_pages()) || segments.any(|s| s.is_expandable)
}

fn text(error: impl Error) -> String {
    error.to_string()
}

/// Also formats its errors.
fn replay(recording: &Recording) {
    if let Ok(program) = RecordedWorkload::new("fuzz", recording).map_err(text) {
        let sent = program.emit(&mut |op: Op<'_>| {
            Ok(match op {
                Op::Malloc { id, .. } if id % 5 == 4 => Answer::OutOfMemory,
                _ => Answer::Done,
            })
        });
        sent.expect("it is in memory and the sink takes all");
    }
    if let Ok(verdict) = verify(recording, Known::default()).map_err(text) {
        assert!(verdict.exact <= verdict.allocations);
        assert!(verdict.predicted <= verdict.segment_events);
        let _ = verdict.difference.map(|difference| difference.to_string());
    }
}

/// The number of devices to write: a snapshot has a trace for each, and device numbers can be large.
const DEVICES: u32 = 16;

fn written(recordings: &[Recording]) -> Vec<u8> {
    let of = |device: u32| {
        recordings
            .iter()
            .filter(move |recording| recording.device == device)
    };
    let snapshot = Snapshot {
        segments: (0..DEVICES)
            .flat_map(of)
            .flat_map(|recording| recording.segments.clone())
            .collect(),
        device_traces: (0..DEVICES)
            .map(|device| {
                of(device)
                    .flat_map(|recording| recording.entries.clone())
                    .collect()
            })
            .collect(),
        entry_pools: Vec::new(),
        allocator_settings: Settings::default(),
    };
    let mut written = Vec::new();
    to_writer(&snapshot, &mut written).expect("it is plain data");
    written
}

targets!(".pickle", examples(EXAMPLES));

/// As `torch.save` and zip programs write them.
#[test]
fn almost_saved() {
    let file = Scratch::new("almost.pt");
    proptest!(|(bytes in almost(examples("fuzz/examples/saved")))| check(&bytes, &file));
}
