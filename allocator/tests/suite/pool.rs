//! The model of the driver's pool, compared with sequences of calls recorded on a GPU (`tests/pool`).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::policy;

/// Where a recorded call and the model differ: the line, what the GPU answered, what the model did.
fn difference(path: &Path) -> Option<(usize, String, String)> {
    let text = fs::read_to_string(path).unwrap();
    let device = SimDevice::new(&SimConfig::default());
    let mut allocator = policy::build("cuda_async", device, "").unwrap();
    let mut blocks = HashMap::new();
    let mut bases = None;
    for (number, line) in text.lines().enumerate().skip(1) {
        let [call, id, bytes, stream, address, held] =
            line.split(',').collect::<Vec<_>>().try_into().unwrap();
        let placed = match call {
            "malloc" => {
                let stream = StreamId::nth(stream.parse().unwrap());
                let addr = allocator.malloc(bytes.parse().unwrap(), stream).unwrap();
                blocks.insert(id.to_owned(), addr);
                addr
            }
            "free" => {
                let addr = blocks.remove(id).unwrap();
                allocator.free(addr).unwrap();
                addr
            }
            other => panic!("unknown call: {other}"),
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        let (ours, theirs) = *bases.get_or_insert((placed.0, address));
        let reserved = allocator.stats().reserved_bytes.all().current;
        let answer = format!(
            "{} bytes from the first block, {held} held",
            address - theirs
        );
        let done = format!(
            "{} bytes from the first block, {reserved} held",
            placed.0 - ours
        );
        if answer != done {
            return Some((number + 1, answer, done));
        }
    }
    allocator.check().unwrap();
    None
}

#[test]
fn blocks_lie_where_a_gpu_placed_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pool");
    for name in [
        "small",
        "any-size",
        "sizes-of-pytorch",
        "neighbours",
        "two-streams",
    ] {
        let path = folder.join(name).with_extension("csv");
        assert_eq!(difference(&path), None, "{name}");
    }
}
