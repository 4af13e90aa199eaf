//! The recorded traces under ten settings each: every figure and every address must match PyTorch's
//! own allocator.
//!
//! `traces/expected.csv` holds the results of the real binary; see the README there. The last column
//! is a digest of every address it returned.

use std::sync::Mutex;

use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::{Op, Workload};
use coalesce_workloads::replay::{Outcome, Step, replay};
use sha2::{Digest, Sha256};

use crate::common::{allocator, traces};

/// The results of this allocator, in the columns of `expected.csv`.
fn row(trace: &dyn Workload, conf: &str, capacity: u64) -> Vec<String> {
    let mut allocator = allocator(conf, capacity);
    // Hashes the lines that the oracle prints for allocations and for skipped frees.
    let mut hash = Sha256::new();
    let mut decisions = |step: &Step<'_>| {
        hash.update(match (step.op, step.outcome) {
            (Op::Malloc { id, .. }, Outcome::Placed(addr)) => format!("A {id} {addr}\n"),
            (Op::Malloc { id, .. }, _) => format!("oom {id}\n"),
            (Op::Free { id }, Outcome::Skipped) => format!("skip f {id}\n"),
            (Op::RecordStream { id, .. }, Outcome::Skipped) => format!("skip r {id}\n"),
            _ => String::new(),
        });
        Ok(())
    };
    let tally = replay(trace, &mut allocator, &mut decisions).unwrap();
    let measures = Measures::of(allocator.stats());
    let mut row = vec![trace.name().to_owned(), conf.to_owned()];
    let figures = [
        capacity,
        tally.ooms,
        measures.retries,
        measures.peak_requested_bytes,
        measures.peak_allocated_bytes,
        measures.peak_active_bytes,
        measures.peak_reserved_bytes,
        measures.peak_inactive_split_bytes,
        measures.device_allocs,
        measures.device_frees,
        measures.syncs,
        measures.allocations,
        tally.skipped_frees,
    ];
    row.extend(figures.map(|figure| figure.to_string()));
    let digest = hash.finalize();
    row.push(
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    );
    row
}

#[test]
fn all_200_rows_match_the_real_binary() {
    let mut reader = csv::Reader::from_path(traces().join("expected.csv")).unwrap();
    let expected: Vec<Vec<String>> = reader
        .records()
        .map(|record| record.unwrap().iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(expected.len(), 200);
    let queue = Mutex::new(expected.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(expected) = queue.lock().unwrap().next() else {
                        return;
                    };
                    let [name, conf, capacity] = [0, 1, 2].map(|i| expected[i].as_str());
                    let file = traces().join(format!("{name}.csv.gz"));
                    let trace = TraceFile::open(file).unwrap();
                    let row = row(&trace, conf, capacity.parse().unwrap());
                    if row != *expected {
                        let difference = format!("PyTorch {expected:?}\nhere    {row:?}");
                        wrong.lock().unwrap().push(difference);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of 200 differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
