//! Our traces, and the detection of text formats.

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::settings::Settings;
use coalesce_workloads::formats;
use coalesce_workloads::formats::trace::{self, TraceFile};
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use coalesce_workloads::replay::replay;
use coalesce_workloads::start;

use crate::examples::examples;
use crate::file::Scratch;
use crate::memory::Most;

const EXAMPLES: &str = "fuzz/examples/trace";
const PACKED: &str = "packed";

/// Covers the current line, at most 1 MiB long, and the live ids.
pub const READ: Most = Most {
    fixed: 4 << 20,
    per_byte: 100,
};

/// A file of any format, also a snapshot.
const ANY: Most = Most {
    per_byte: 600,
    ..READ
};

/// All operations of a workload, as text.
pub fn operations(workload: &dyn Workload) -> Result<Vec<String>, WorkloadError> {
    let mut operations = Vec::new();
    workload.emit(&mut |op: Op<'_>| {
        operations.push(format!("{op:?}"));
        Ok(Answer::Done)
    })?;
    Ok(operations)
}

/// The number of operations.
pub fn count(workload: &dyn Workload) -> Result<usize, String> {
    let mut count = 0;
    let sent = workload.emit(&mut |_: Op<'_>| {
        count += 1;
        Ok(Answer::Done)
    });
    sent.map(|()| count).map_err(|error| error.to_string())
}

/// Replays with the reference, which begins with the segments of the trace if it can have them.
pub fn replay_from_start(workload: &dyn Workload) {
    let start = workload.start().map(AsRef::as_ref);
    for conf in ["", "expandable_segments:True"] {
        let settings = Settings::from_conf(conf).expect("it is valid");
        let config = SimConfig::with_capacity(1 << 30);
        let mut allocator = start::reference(start, &config, settings, None);
        let _ = replay(workload, &mut allocator, &mut ());
        allocator.check().expect("no trace breaks the allocator");
    }
}

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let guessed = ANY.during(bytes, || formats::open(path));
    let opened = READ.during(bytes, || TraceFile::open(path));
    let Ok(opened) = opened.map_err(|error| error.to_string()) else {
        // It may have another format.
        let _ = guessed.map_err(|error| error.to_string());
        return;
    };
    assert!(guessed.is_ok());
    if READ.during(bytes, || count(&opened)).is_err() {
        return;
    }
    let expected = operations(&opened).expect("it was read before");
    let mut written = Vec::new();
    trace::write(&opened, opened.header(), &mut written).expect("it was read before");
    let again = TraceFile::open(file.holding(&written)).expect("what was written is a trace");
    assert_eq!(again.start(), opened.start());
    assert_eq!(again.conditions(), opened.conditions());
    replay_from_start(&opened);
    let again = operations(&again).expect("what was written is a trace");
    // A carriage return within a line is part of a tag and is written as a space.
    let one_line = |ops: Vec<String>| ops.join("\n").replace("\\r", " ");
    assert_eq!(one_line(again), one_line(expected));
}

targets!(".csv", [examples(EXAMPLES), examples(PACKED)].concat());
