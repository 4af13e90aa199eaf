//! Binary traces contain all operations; broken ones are refused.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::{MempoolId, PoolCall};

use coalesce_workloads::formats::binary;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::trace::{self, TraceFile};
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::op::{Op, Sink, Workload, WorkloadError};
use coalesce_workloads::surroundings::Change;
use proptest::prelude::*;
use serde_json::Map;

use crate::cases;
use crate::common::{TRACE, events, operations, unescaped, write_file};

fn packed(workload: &dyn Workload) -> Vec<u8> {
    let mut bytes = Vec::new();
    binary::write(workload, &Map::new(), &mut bytes).unwrap();
    bytes
}

fn text(workload: &dyn Workload) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace::write(workload, &Map::new(), &mut bytes).unwrap();
    bytes
}

/// A choice of the next operation, and numbers for it.
type Choice = (u8, usize, u64, u32, String);

/// A program that makes these choices.
#[derive(Debug)]
pub struct Program(Vec<Choice>);

impl Workload for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut live: BTreeSet<u64> = BTreeSet::new();
        let mut next = 0_u64;
        // Whether requests go to a pool; none if it was released.
        let mut pools: BTreeMap<MempoolId, Option<bool>> = BTreeMap::new();
        let mut captures = false;
        for (choice, place, number, stream, tag) in &self.0 {
            let (bytes, stream) = (*number, *stream);
            let one = live.iter().nth(place % live.len().max(1)).copied();
            let op = match (choice, one) {
                (0..=2, _) => {
                    // Most ids count up.
                    let id = if *choice < 2 { next } else { *number };
                    if !live.insert(id) {
                        continue;
                    }
                    next = id.wrapping_add(1);
                    Op::Malloc {
                        id,
                        bytes,
                        stream,
                        tag,
                    }
                }
                (3 | 4, Some(id)) => {
                    live.remove(&id);
                    Op::Free { id }
                }
                (5, Some(id)) => Op::RecordStream { id, stream },
                (6, _) => Op::Mark { tag },
                (7, _) => Op::EmptyCache,
                (8, _) => Op::Surroundings(Change::Foreign { bytes }),
                (9, _) => Op::Surroundings(Change::HoldEvents(bytes % 2 == 0)),
                (10, _) => Op::Surroundings(Change::FinishEvents {
                    stream,
                    count: bytes,
                }),
                (11, _) => {
                    let pool = MempoolId(u64::from(stream % 3), number % 3);
                    let use_ = pools.get(&pool).copied();
                    let (next, call) = match (place % 2, use_) {
                        (_, None) => (Some(true), PoolCall::Begin(pool)),
                        (_, Some(Some(true))) => (Some(false), PoolCall::End(pool)),
                        (0, Some(Some(false))) => (Some(true), PoolCall::Begin(pool)),
                        (_, Some(Some(false))) => (None, PoolCall::Release(pool)),
                        (_, Some(None)) => (None, PoolCall::Empty(pool)),
                    };
                    pools.insert(pool, next);
                    Op::Pool(call)
                }
                (12, _) => {
                    captures = !captures;
                    Op::Pool(if captures {
                        PoolCall::BeginCapture
                    } else {
                        PoolCall::EndCapture
                    })
                }
                (13, _) => Op::Limit {
                    bytes: (place % 3 > 0).then_some(bytes),
                },
                _ => continue,
            };
            sink.op(op)?;
        }
        Ok(())
    }
}

pub fn programs() -> impl Strategy<Value = Program> {
    let number = prop_oneof![0..9_u64, 0..1_u64 << 34, any::<u64>()];
    let stream = prop_oneof![4 => 0..3_u32, 1 => any::<u32>()];
    let tag = prop_oneof![4 => "[a-c]{0,2}", 1 => "[^,\r\n]{0,9}"];
    let choice = (0..14_u8, any::<usize>(), number, stream, tag);
    prop::collection::vec(choice, 0..200).prop_map(Program)
}

proptest! {
    #[test]
    fn all_operations_survive(program in programs()) {
        let path = write_file("survives.trace", &packed(&program));
        let again = binary::open(&path).unwrap();
        prop_assert_eq!(operations(&again).unwrap(), operations(&program).unwrap());
    }

    #[test]
    fn a_trace_becomes_itself_by_way_of_the_binary_form(program in programs()) {
        let original = text(&program);
        let csv = TraceFile::open(write_file("itself.csv", &original)).unwrap();
        prop_assert_eq!(operations(&csv).unwrap(), operations(&program).unwrap());
        let binary = binary::open(write_file("itself.trace", &packed(&csv))).unwrap();
        prop_assert_eq!(text(&binary), original);
    }

    #[test]
    fn a_file_that_ends_early_or_late_is_refused(program in programs(), at: prop::sample::Index) {
        let mut bytes = packed(&program);
        let cut = write_file("cut.trace", &bytes[..at.index(bytes.len())]);
        let read = binary::open(&cut)
            .map_err(|error| error.to_string())
            .and_then(|it| operations(&it).map_err(|error| error.to_string()));
        prop_assert!(read.is_err());
        bytes.push(0);
        let late = binary::open(write_file("late.trace", &bytes)).unwrap();
        let error = operations(&late).unwrap_err().to_string();
        prop_assert!(error.ends_with("more bytes follow the end of the trace"), "{}", error);
    }
}

#[test]
fn every_reader_recognises_it_also_compressed() {
    let plain = write_file("plain.csv", TRACE.as_bytes());
    let csv = TraceFile::open(&plain).unwrap();
    let mut bytes = Vec::new();
    binary::write(&csv, csv.header(), &mut bytes).unwrap();
    assert!(bytes.len() < TRACE.len() / 2, "{} bytes", bytes.len());
    let trace = binary::open(write_file("plain.trace", &bytes)).unwrap();
    assert_eq!(trace.header(), csv.header());
    for (name, bytes) in [
        ("opened.trace", bytes.clone()),
        ("opened.trace.gz", gzip(&bytes).unwrap()),
    ] {
        let FileContent::Workload(opened) = open(write_file(name, &bytes)).unwrap() else {
            panic!("{name} is not a snapshot")
        };
        assert_eq!(opened.name(), "opened");
        assert_eq!(operations(&*opened).unwrap(), events(&plain).unwrap());
    }
}

#[test]
fn tags_beyond_those_with_places_are_written_in_full() {
    let choice = |number: u32| (0, 0, 1, 0, format!("{}", number % 70_000));
    let program = Program((0..140_000).map(choice).collect());
    let trace = binary::open(write_file("tags.trace", &packed(&program))).unwrap();
    assert_eq!(operations(&trace).unwrap(), operations(&program).unwrap());
}

#[test]
fn errors_name_the_byte_and_the_reason() {
    cases::check("tests/cases/not-binary-traces.txt", |bytes| {
        let path = write_file("wrong.trace", &unescaped(bytes));
        let read = match open(&path) {
            Ok(FileContent::Workload(workload)) => {
                operations(&*workload).map_err(|error| error.to_string())
            }
            Ok(_) => panic!("no sections"),
            Err(error) => Err(error.to_string()),
        };
        let place = format!("{}, ", path.display());
        read.unwrap_err().strip_prefix(&place).unwrap().to_owned()
    });
}
