//! MiniMalloc instances.

use coalesce_workloads::formats::minimalloc::{self, InstanceFile};

use crate::examples::examples;
use crate::file::Scratch;
use crate::memory::Most;
use crate::trace::{count, operations};

const EXAMPLES: &str = "fuzz/examples/minimalloc";

const READ: Most = Most {
    fixed: 1 << 18,
    per_byte: 100,
};

fn check(bytes: &[u8], file: &Scratch) {
    let path = file.holding(bytes);
    let opened = READ.during(bytes, || InstanceFile::open(path));
    let Ok(opened) = opened.map_err(|error| error.to_string()) else {
        return;
    };
    let instance = minimalloc::read(path).expect("it was read before");
    assert_eq!(count(&opened), Ok(2 * instance.buffers.len()));
    let mut written = Vec::new();
    minimalloc::write(&instance, None, &mut written).expect("a vector takes all");
    let path = file.holding(&written);
    let found = minimalloc::read(path).expect("what was written is an instance");
    assert_eq!(found, instance);
    let again = InstanceFile::open(path).expect("what was written is an instance");
    let read = operations(&again).expect("it is in memory");
    assert_eq!(read, operations(&opened).expect("it is in memory"));
}

targets!("-instance.csv", examples(EXAMPLES));
