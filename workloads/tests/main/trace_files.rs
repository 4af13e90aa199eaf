//! Valid and invalid trace files.

use std::path::Path;

use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::trace::TraceFile;

use crate::common::{TRACE, assert_contains, events, write_file};

#[test]
fn headers_quotes_and_windows_line_breaks_are_read() {
    let plain = write_file("plain.csv", TRACE.as_bytes());
    let expected = events(&plain).unwrap();
    assert_eq!(expected.len(), 6);
    assert!(expected[2].contains(r#"tag: "\"a\""#), "{}", expected[2]);
    assert_eq!(TraceFile::open(&plain).unwrap().header()["steps"], 1);
    let windows = format!("\u{feff}{}", TRACE.replace('\n', "\r\n"));
    let windows = write_file("windows.csv", windows.as_bytes());
    assert_eq!(events(&windows).unwrap(), expected);
}

#[test]
fn errors_name_file_line_and_reason() {
    let head = "op,id,bytes,stream,tag\n";
    let cases = [
        ("empty", String::new(), "byte 0: the file is empty"),
        (
            "foreign",
            "id,lower,upper,size\n".to_owned(),
            "line 1: not a trace: expected the columns 'op,id,bytes,stream,tag', found 'id,lower,upper,size'",
        ),
        (
            "json",
            format!("# {{\"a\": \n{head}"),
            "line 1: the header is not a JSON object",
        ),
        (
            "columns",
            format!("# {{\"a\": 1}}\n# \n{head}"),
            "line 2: not a trace",
        ),
        (
            "op",
            format!("{head}malloc,0,1,0,\n"),
            "line 2: unknown op 'malloc'; expected one of: alloc, free, mark",
        ),
        (
            "fields",
            format!("{head}alloc,0,1,0,x\nalloc,1\n"),
            "line 3: 2 fields instead of the 5",
        ),
        (
            "more_fields",
            format!("{head}alloc,0,1,0,x,y\n"),
            "line 2: 6 fields instead of the 5",
        ),
        (
            "quote",
            format!("{head}alloc,0,1,0,\"x\nfree,0,2,0,\n"),
            "line 3: id 0 was allocated with 1 bytes",
        ),
        (
            "typo",
            format!("{head}alloc,0,1,0,\nmark,0,0,1,record-stream\n"),
            "line 3: a mark of an allocation must be record_stream, not 'record-stream'",
        ),
        (
            "endless",
            format!("{head}alloc,0,1,0,{}", "x".repeat(1 << 20)),
            "line 2: not a trace: longer than 1048576 bytes",
        ),
        (
            "id",
            format!("{head}alloc,-1,1,0,\n"),
            "line 2: id '-1' is not a number",
        ),
        (
            "bytes",
            format!("{head}alloc,0,1e9,0,\n"),
            "line 2: bytes '1e9' is not a number",
        ),
        (
            "absurd",
            format!("{head}alloc,0,99999999999999999999,0,\n"),
            "line 2: bytes '99999999999999999999' is not a number from 0 to 2^64 - 1",
        ),
        (
            "stream",
            format!("{head}alloc,0,1,4294967296,\n"),
            "line 2: stream '4294967296' is not a number from 0 to 2^32 - 1",
        ),
        (
            "twice",
            format!("{head}alloc,0,1,0,\nalloc,0,1,0,\n"),
            "line 3: id 0 is already live",
        ),
        (
            "free",
            format!("{head}\nfree,7,1,0,\n"),
            "line 3: free of id 7, which is not live",
        ),
        (
            "mismatch",
            format!("{head}alloc,0,1,0,\nfree,0,2,0,\n"),
            "line 3: id 0 was allocated with 1 bytes on stream 0",
        ),
        (
            "record",
            format!("{head}mark,5,0,1,record_stream\n"),
            "line 2: record_stream of id 5, which is not live",
        ),
        (
            "pool_twice",
            format!("{head}pool,-1,0,0,begin 0:1\npool,-1,0,0,begin 0:1\n"),
            "line 3: requests already go to pool (0, 1)",
        ),
        (
            "pool_end",
            format!("{head}pool,-1,0,0,end 0:1\n"),
            "line 2: no requests go to pool (0, 1)",
        ),
        (
            "pool_gone",
            format!(
                "{head}pool,-1,0,0,begin 7:0\npool,-1,0,0,end 7:0\npool,-1,0,0,release 7:0\n\
                 pool,-1,0,0,begin 7:0\n"
            ),
            "line 5: pool (7, 0) was released",
        ),
        (
            "pool_name",
            format!("{head}pool,-1,0,0,begin 1\n"),
            "line 2: pool 'begin 1'; expected begin, end, release or empty, and a pool such as 0:1",
        ),
        (
            "capture",
            format!("{head}capture,-1,0,0,end\n"),
            "line 2: no capture is under way",
        ),
        (
            "events",
            format!("{head}events,-1,0,0,wait\n"),
            "line 2: events 'wait'; expected hold, at_once or finish",
        ),
        (
            "limit",
            format!("{head}limit,-1,1,0,no\n"),
            "line 2: limit 'no'; expected nothing or none there",
        ),
        (
            "limit_bytes",
            format!("{head}limit,-1,-1,0,\n"),
            "line 2: bytes '-1' is not a number",
        ),
        (
            "failure",
            format!("{head}fail,0,1,0,failed when recorded: mm\n"),
            "line 2: a failed request that the header does not count in 'failures'",
        ),
        (
            "recorded",
            format!("# {{\"coalesce\": {{\"failed\": 1}}}}\n{head}"),
            "line 1: the header, under 'coalesce': unknown field `failed`",
        ),
        (
            "late_segment",
            format!("{head}mark,-1,0,0,a\nsegment,1,0,0,large 0:0\n"),
            "line 3: a segment behind the first event",
        ),
        (
            "block",
            format!("{head}block,-1,512,0,0\n"),
            "line 2: a block before the first segment",
        ),
        (
            "segment",
            format!("{head}segment,288230376151711744,0,0,huge 0:0\n"),
            "line 2: segment 'huge 0:0'; expected one such as 'large 0:0'",
        ),
    ];
    for (name, text, expected) in cases {
        let path = write_file(&format!("{name}.csv"), text.as_bytes());
        let error = events(&path).unwrap_err();
        let full = format!("{}, {expected}", path.display());
        assert!(error.starts_with(&full), "{name}: {error}");
    }
}

#[test]
fn an_impossible_start_is_refused() {
    const FIRST: u64 = 1 << 58;
    let header = r#"# {"coalesce": {"start": {"conf": "", "torch": "2.11"}}}"#;
    let cases = [
        (
            "low",
            "segment,512,0,0,large 0:0\nblock,-1,512,0,0\n".to_owned(),
            "addresses are from 2^58 to 2^62",
        ),
        (
            "gap",
            format!("segment,{FIRST},0,0,large 0:0\n"),
            "it has no blocks",
        ),
        (
            "ids",
            format!("segment,{FIRST},0,0,large 0:0\nblock,1,512,0,9\n"),
            "id 0 is missing",
        ),
        (
            "order",
            format!(
                "segment,{},0,0,large 0:0\nblock,-1,512,0,0\nsegment,{FIRST},0,0,large 0:0\nblock,-1,512,0,0\n",
                FIRST + 512
            ),
            "segments come by address",
        ),
        (
            "overlap",
            format!(
                "segment,{FIRST},0,0,large 0:0\nblock,-1,1024,0,0\nsegment,{},0,0,large 0:0\nblock,-1,512,0,0\n",
                FIRST + 512
            ),
            "it overlaps",
        ),
        (
            "bases",
            format!(
                "segment,{},0,0,large 0:0 expandable\nblock,-1,512,0,0\n\
                 segment,{},0,0,large 0:0 expandable\nblock,-1,512,0,0\n",
                FIRST,
                FIRST + 1024
            ),
            "its stream and pool have another expandable segment",
        ),
        (
            "far",
            format!(
                "segment,{},{},0,large 0:0 expandable\nblock,-1,512,0,0\n",
                FIRST + (1 << 52),
                1_u64 << 52
            ),
            "it is too far behind the start of its expandable segment",
        ),
    ];
    for (name, lines, expected) in cases {
        let text = format!("{header}\nop,id,bytes,stream,tag\n{lines}");
        let error = events(&write_file(&format!("start_{name}.csv"), text.as_bytes())).unwrap_err();
        assert_contains(&error, expected);
    }
}

#[test]
fn broken_and_missing_files_are_reported() {
    let packed = gzip(TRACE.repeat(50).as_bytes()).unwrap();
    let cut = write_file("cut.csv.gz", &packed[..packed.len() / 2]);
    let error = events(&cut).unwrap_err();
    assert_contains(&error, "cut.csv.gz, line");
    let binary = write_file("binary.csv", &[0xff; 4000]);
    let error = events(&binary).unwrap_err();
    assert_contains(&error, "line 1: not UTF-8 text");
    let missing = Path::new("no/such/trace.csv");
    let error = events(missing).unwrap_err();
    assert!(error.starts_with("no/such/trace.csv: "), "{error}");
    let folder = events(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
    assert_contains(&folder, "directory");
}
