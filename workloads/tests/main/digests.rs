//! Digests of the operations of every preset.

use std::collections::HashMap;

use coalesce_workloads::op::{Answer, Op, Workload};
use coalesce_workloads::presets;
use coalesce_workloads::realism;
use sha2::{Digest, Sha256};

use crate::cases;

/// The number of operations, and the first 16 hexadecimal digits of their SHA-256, one a line.
fn digest(workload: &dyn Workload) -> (u64, String) {
    let mut hash = Sha256::new();
    let mut events = 0;
    workload
        .emit(&mut |op: Op<'_>| {
            events += 1;
            hash.update(match op {
                Op::Malloc {
                    id,
                    bytes,
                    stream,
                    tag,
                } => format!("alloc {id} {bytes} {stream} {tag}\n"),
                Op::Free { id } => format!("free {id}\n"),
                Op::RecordStream { id, stream } => format!("record_stream {id} {stream}\n"),
                Op::EmptyCache => "empty_cache\n".to_owned(),
                Op::Pool(call) => format!("pool {call:?}\n"),
                Op::Limit { bytes } => format!("limit {bytes:?}\n"),
                Op::Surroundings(change) => format!("around {change:?}\n"),
                Op::Mark { tag } => format!("mark {tag}\n"),
            });
            Ok(Answer::Done)
        })
        .unwrap();
    let bytes = hash.finalize();
    let digits = bytes[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    (events, digits)
}

/// Compares the digests of workloads with those that a file lists.
fn check(file: &str, workloads: Vec<Box<dyn Workload>>) {
    let named = |workload: Box<dyn Workload>| (workload.name().to_owned(), workload);
    let mut left: HashMap<String, Box<dyn Workload>> = workloads.into_iter().map(named).collect();
    cases::check(file, |name| {
        let workload = left
            .remove(name)
            .unwrap_or_else(|| panic!("{file} lists {name}"));
        let (events, digest) = digest(workload.as_ref());
        format!("{events} {digest}")
    });
    assert!(left.is_empty(), "{file} does not list {:?}", left.keys());
}

#[test]
fn presets_emit_the_recorded_operations() {
    check("tests/cases/presets.txt", presets::all());
}

#[test]
fn imitations_of_recordings_emit_the_recorded_operations() {
    let imitations = realism::imitations().unwrap();
    check("tests/cases/imitations.txt", imitations);
}
