//! Binary traces contain all operations; broken ones are refused.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::{MempoolId, PoolCall};

use coalesce_workloads::formats::binary::{self, BinaryTrace};
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::trace::{self, TraceFile};
use coalesce_workloads::formats::{Opened, open};
use coalesce_workloads::op::{Op, Sink, Workload, WorkloadError};
use coalesce_workloads::surroundings::Change;
use proptest::prelude::*;
use serde_json::Map;

use crate::common::{TRACE, events, operations, write_file};

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
                    Op::Pool(match captures {
                        true => PoolCall::BeginCapture,
                        false => PoolCall::EndCapture,
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
        let again = BinaryTrace::open(&path).unwrap();
        prop_assert_eq!(operations(&again).unwrap(), operations(&program).unwrap());
    }

    #[test]
    fn a_trace_becomes_itself_by_way_of_the_binary_form(program in programs()) {
        let original = text(&program);
        let csv = TraceFile::open(write_file("itself.csv", &original)).unwrap();
        prop_assert_eq!(operations(&csv).unwrap(), operations(&program).unwrap());
        let binary = BinaryTrace::open(write_file("itself.trace", &packed(&csv))).unwrap();
        prop_assert_eq!(text(&binary), original);
    }

    #[test]
    fn a_file_that_ends_early_or_late_is_refused(program in programs(), at: prop::sample::Index) {
        let mut bytes = packed(&program);
        let cut = write_file("cut.trace", &bytes[..at.index(bytes.len())]);
        let read = BinaryTrace::open(&cut).map_err(|error| error.to_string());
        let read = read.and_then(|it| operations(&it).map_err(|error| error.to_string()));
        prop_assert!(read.is_err());
        bytes.push(0);
        let late = BinaryTrace::open(write_file("late.trace", &bytes)).unwrap();
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
    let trace = BinaryTrace::open(write_file("plain.trace", &bytes)).unwrap();
    assert_eq!(trace.header(), csv.header());
    for (name, bytes) in [
        ("opened.trace", bytes.clone()),
        ("opened.trace.gz", gzip(&bytes).unwrap()),
    ] {
        let Opened::Workload(opened) = open(write_file(name, &bytes)).unwrap() else {
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
    let trace = BinaryTrace::open(write_file("tags.trace", &packed(&program))).unwrap();
    assert_eq!(operations(&trace).unwrap(), operations(&program).unwrap());
}

#[test]
fn errors_name_the_byte_and_the_reason() {
    const HEAD: &[u8] = b"\x8bTRACE\r\n\x01\x00";
    let cases: [(&str, &[u8], &[u8], &str); 22] = [
        ("magic", b"\x8bTRACE\r\n", b"", "byte 8: the file ends here"),
        (
            "version",
            b"\x8bTRACE\r\n\x04\x00",
            b"",
            "byte 8: a binary trace of version 4",
        ),
        (
            "header",
            b"\x8bTRACE\r\n\x01\x01x",
            b"",
            "byte 9: the header is not a JSON object",
        ),
        (
            "text",
            b"\x8bTRACE\r\n\x01\x05{",
            b"",
            "byte 9: a text of 5 bytes, but the file ends after 1 bytes",
        ),
        (
            "bomb",
            HEAD,
            b"\x03\xff\xff\xff\xff\x0f",
            "byte 10: a text of 4294967295 bytes; expected at most",
        ),
        (
            "utf8",
            HEAD,
            b"\x03\x01\xff",
            "byte 10: a text that is not UTF-8",
        ),
        (
            "cut",
            HEAD,
            b"\x04",
            "byte 11: the file ends after 1 events without a mark of its end",
        ),
        (
            "inside",
            HEAD,
            b"\x04\x00\x80",
            "byte 11: the file ends within an event",
        ),
        ("kind", HEAD, b"\x07", "byte 10: 0x07 is not an event"),
        ("flag", HEAD, b"\x09\x00", "byte 10: 0x09 is not an event"),
        (
            "number",
            HEAD,
            b"\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            "byte 10: a number of more than 64 bits",
        ),
        (
            "free",
            HEAD,
            b"\x01\x00",
            "byte 10: no allocation is in slot 0",
        ),
        (
            "twice",
            HEAD,
            b"\x00\x01\x00\x00\x08\x01\x01\x01",
            "byte 14: id 0 is already live",
        ),
        (
            "tag",
            HEAD,
            b"\x00\x01\x02",
            "byte 10: tag 2, but there are only 0",
        ),
        (
            "count",
            HEAD,
            b"\x04\x06\x02",
            "byte 11: the end of 2 events after 1",
        ),
        (
            "failure",
            HEAD,
            b"\x20\x01\x00\x00",
            "byte 10: a failed request that the header does not count",
        ),
        (
            "pool",
            HEAD,
            b"\x0f\x00\x01\x0f\x00\x01",
            "byte 13: requests already go to pool (0, 1)",
        ),
        ("capture", HEAD, b"\x2f", "byte 10: no capture is under way"),
        (
            "segments",
            b"\x8bTRACE\r\n\x02\x00",
            b"\x01\x01\x00\x00\x01\x00\x00\x00",
            "byte 11: segments without their settings",
        ),
        (
            "segment",
            b"\x8bTRACE\r\n\x02\x00",
            b"\x01\x01\x00\x00\x04\x00\x00\x00",
            "byte 11: 4 are no flags of a segment",
        ),
        (
            "recorded",
            b"\x8bTRACE\r\n\x02\x0e{\"coalesce\":1}",
            b"",
            "byte 9: the header, under 'coalesce': invalid type",
        ),
        (
            "missing",
            b"\x8bTRACE\r\n\x02\x1b{\"coalesce\":{\"failures\":1}}",
            b"\x00\x06\x00",
            "byte 38: 1 of the failures that the header counts are missing",
        ),
    ];
    for (name, head, rest, expected) in cases {
        let path = write_file(&format!("{name}.trace"), &[head, rest].concat());
        let read = BinaryTrace::open(&path).map_err(|error| error.to_string());
        let read = read.and_then(|it| operations(&it).map_err(|error| error.to_string()));
        let error = read.unwrap_err();
        let full = format!("{}, {expected}", path.display());
        assert!(error.starts_with(&full), "{name}: {error}");
    }
    let unfit = [HEAD, b"\x02\x00\x80\x80\x80\x80\x10"].concat();
    let unfit = BinaryTrace::open(write_file("stream.trace", &unfit)).unwrap();
    let error = operations(&unfit).unwrap_err().to_string();
    assert!(
        error.contains("stream 4294967296; expected a number"),
        "{error}"
    );
}
