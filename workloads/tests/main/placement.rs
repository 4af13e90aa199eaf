//! Offline placement of the recorded traces: all reach their lower bounds.

use coalesce_alloc::placement::{Effort, lower_bound, pack};
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::lifetimes;
use coalesce_workloads::op::Workload;

use crate::common::traces;

const PYTORCH_UNIT: u64 = 512;
const STEPS: u64 = 1_000_000;

#[test]
fn recorded_traces_are_packed_to_their_lower_bounds() {
    let mut count = 0;
    for entry in std::fs::read_dir(traces()).unwrap() {
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
