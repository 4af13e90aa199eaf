//! Binary traces.

use coalesce_workloads::Workload;
use coalesce_workloads::formats::binary;

use crate::examples::examples;
use crate::file::Scratch;
use crate::memory::Most;
use crate::trace::{count, operations, replay_from_start};

const EXAMPLES: &str = "fuzz/examples/binary";

/// Covers the buffers, the longest text, and a slot or a tag for every few bytes.
const READ: Most = Most {
    fixed: 4 << 20,
    per_byte: 100,
};

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let opened = READ.during(bytes, || binary::open(path));
    let Ok(opened) = opened.map_err(|error| error.to_string()) else {
        return;
    };
    if READ.during(bytes, || count(&opened)).is_err() {
        return;
    }
    let expected = operations(&opened).expect("it was read before");
    let mut written = Vec::new();
    binary::write(&opened, opened.header(), &mut written).expect("it was read before");
    let again = binary::open(file.holding(&written)).expect("what was written is a trace");
    let found = operations(&again).expect("what was written is a trace");
    assert_eq!(found, expected);
    // What is written of one device of several does not list the others.
    if opened.devices().is_empty() {
        assert_eq!(again.header(), opened.header());
    }
    assert_eq!(again.start(), opened.start());
    replay_from_start(&opened);
}

targets!(".trace", examples(EXAMPLES));
