//! The recorded traces, placed by someone who knows them beforehand: all fit in their lower bounds.

use coalesce_alloc::placement::{Effort, lower_bound, pack};
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::lifetimes;
use coalesce_workloads::op::Workload;

const PYTORCH_UNIT: u64 = 512;
const STEPS: u64 = 1_000_000;

#[test]
fn recorded_traces_are_placed_at_their_lower_bounds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_str().unwrap().ends_with(".csv.gz") {
            continue;
        }
        let trace = TraceFile::open(&path).unwrap();
        let buffers = lifetimes::of(&trace).unwrap().buffers(PYTORCH_UNIT);
        let placement = pack(&buffers, Effort::Steps(STEPS)).unwrap();
        assert_eq!(placement.check(&buffers), Ok(()), "{}", trace.name());
        assert_eq!(placement.height, lower_bound(&buffers), "{}", trace.name());
        count += 1;
    }
    assert_eq!(count, 20);
}
