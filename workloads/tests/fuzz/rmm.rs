//! RMM logs.

use coalesce_workloads::formats::rmm::{self, RmmLog};

use crate::examples::examples;
use crate::file::Scratch;
use crate::trace::{READ, count, operations};

const EXAMPLES: &str = "fuzz/examples/rmm";

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let opened = READ.during(bytes, || RmmLog::open(path));
    let Ok(opened) = opened.map_err(|error| error.to_string()) else {
        return;
    };
    if READ.during(bytes, || count(&opened)).is_err() {
        return;
    }
    let expected = operations(&opened).expect("it was read before");
    let mut written = Vec::new();
    let left_out = rmm::write(&opened, &mut written).expect("it was read before");
    assert_eq!(
        left_out, 0,
        "an RMM log can hold all operations of an RMM log"
    );
    let again = RmmLog::open(file.holding(&written)).expect("what was written is a log");
    let found = operations(&again).expect("what was written is a log");
    assert_eq!(found, expected);
}

targets!(".log", examples(EXAMPLES));
