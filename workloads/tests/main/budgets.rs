//! What is kept of an input has a limit; its length has none.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use coalesce_workloads::budget::{Budget, MOST_LIVE, MOST_POOLS, MOST_STREAMS};
use coalesce_workloads::cached::Cached;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::{FileContent, binary, open};
use coalesce_workloads::lifetimes;
use coalesce_workloads::op::{Answer, Op, Sink, Workload, WorkloadError};
use coalesce_workloads::written::written;

use crate::common::{assert_contains, write_file};

/// Reads all of a file.
fn read(path: &Path) -> Result<u64, String> {
    let FileContent::Workload(workload) = open(path).map_err(|error| error.to_string())? else {
        panic!("no workload");
    };
    let mut events = 0;
    let sent = workload.emit(&mut |_: Op<'_>| {
        events += 1;
        Ok(Answer::Done)
    });
    sent.map(|()| events).map_err(|error| error.to_string())
}

/// Reads a file that is deleted then, because it is long.
fn read_once(name: &str, contents: &[u8]) -> Result<u64, String> {
    let path = write_file(name, contents);
    let read = read(&path);
    fs::remove_file(path).unwrap();
    read
}

const COLUMNS: &str = "op,id,bytes,stream,tag\n";

/// Requests that are never freed.
fn requests(number: u64) -> impl Workload {
    written("requests", move |sink| {
        (0..number).try_for_each(|id| sink.op(Op::malloc(id, 512)).map(|_| ()))
    })
}

#[test]
fn live_allocations_have_a_limit() {
    let most = MOST_LIVE as u64;
    let mut trace = COLUMNS.to_owned();
    let mut log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned();
    for id in 0..=most {
        writeln!(trace, "alloc,{id},1,0,").unwrap();
        writeln!(log, "1,0,allocate,{:x},1,0", id + 1).unwrap();
    }
    // What cannot be read is not written.
    let mut packed = Vec::new();
    let written = binary::write(&requests(most + 1), &serde_json::Map::new(), &mut packed);
    let refused = std::error::Error::source(&written.unwrap_err())
        .unwrap()
        .to_string();
    assert_contains(&refused, "more than 4194304 allocations are live at once");
    for (name, contents, place) in [
        ("live.csv", trace.as_bytes(), "live.csv, line 4194306: "),
        ("live.log", log.as_bytes(), "live.log, line 4194306: "),
    ] {
        let error = read_once(name, contents).unwrap_err();
        assert_contains(&error, place);
        assert_contains(&error, "more than 4194304 allocations are live at once");
    }
    // One less can be read.
    let end = trace.trim_end().rfind('\n').unwrap();
    assert_eq!(read_once("full.csv", &trace.as_bytes()[..=end]), Ok(most));
}

#[test]
fn streams_and_pools_have_limits() {
    let lines = |line: &dyn Fn(usize) -> String, count: usize| {
        COLUMNS.to_owned() + &(0..count).map(line).collect::<String>()
    };
    let streams = |n: usize| format!("alloc,{n},1,{n},\nfree,{n},1,{n},\n");
    let pools = |n: usize| format!("pool,-1,0,0,begin 0:{n}\npool,-1,0,0,end 0:{n}\n");
    // The handles 0 and 1 are the default stream.
    let log = |count: usize| {
        let lines = (2..count + 2).map(|n| format!("1,0,allocate,{n:x},1,{n:x}\n"));
        "Thread,Time,Action,Pointer,Size,Stream\n".to_owned() + &lines.collect::<String>()
    };
    let found = read_once("few-streams.log", log(MOST_STREAMS).as_bytes());
    assert_eq!(found, Ok(MOST_STREAMS as u64));
    for (name, text, words) in [
        (
            "streams.log",
            log(MOST_STREAMS + 1),
            "streams.log, line 4098: more than 4096 streams",
        ),
        (
            "streams.csv",
            lines(&streams, MOST_STREAMS + 100),
            "more than 4096 streams",
        ),
        (
            "pools.csv",
            lines(&pools, MOST_POOLS + 2),
            "more than 65536 private pools",
        ),
    ] {
        assert_contains(&read_once(name, text.as_bytes()).unwrap_err(), words);
    }
    let many = lines(&streams, MOST_STREAMS);
    let found = read_once("few-streams.csv", many.as_bytes());
    assert_eq!(found, Ok(2 * MOST_STREAMS as u64));
}

/// Such a file is small, and its segments are not.
#[test]
fn the_start_of_a_compressed_trace_has_a_limit() {
    let mut trace = COLUMNS.to_owned();
    for segment in 0..1_100_000_u64 {
        writeln!(trace, "segment,{},0,0,large 0:0", segment << 21).unwrap();
    }
    let packed = gzip(trace.as_bytes()).unwrap();
    let error = read_once("segments.csv.gz", &packed).unwrap_err();
    for words in [
        "segments.csv.gz, line ",
        "exceeds the limit of 512.0 MiB",
        "gunzip",
    ] {
        assert_contains(&error, words);
    }
}

/// Each byte is an empty dict, which takes 40 times as much.
#[test]
fn the_values_of_a_snapshot_have_a_limit() {
    let mut pickle = b"\x80\x02(".to_vec();
    pickle.resize(15_000_000, b'}');
    let packed = gzip(&pickle).unwrap();
    assert!(packed.len() < 30_000);
    for (name, bytes) in [("values.pickle.gz", &packed), ("values.pickle", &pickle)] {
        let error = read_once(name, bytes).unwrap_err();
        // Long before its end.
        assert_contains(&error, &format!("{name}, byte 2"));
        assert_contains(&error, "many times more memory than the file has bytes");
    }
}

/// A trace that takes more than its budget if it is kept.
struct Long<'a>(&'a dyn Workload);

impl Workload for Long<'_> {
    fn name(&self) -> &'static str {
        "long"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.0.emit(sink)
    }

    fn budget(&self) -> Budget {
        Budget::of_packed(1, 64, "gunzip").within(100_000)
    }
}

#[test]
fn what_is_kept_of_a_long_trace_has_a_limit() {
    let (few, many) = (requests(300), requests(1000));
    assert_eq!(Cached::of(&Long(&few)).unwrap().len(), 300);
    lifetimes::of(&Long(&few)).unwrap();
    let kept = Cached::of(&Long(&many)).unwrap_err();
    let planned = lifetimes::of(&Long(&many)).unwrap_err();
    assert_contains(&kept.to_string(), "long, event 391: what must be kept");
    assert_contains(&planned.to_string(), "long, event 782: what must be kept");
    Cached::of(&many).unwrap();
}
