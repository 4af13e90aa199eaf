//! Valid and invalid trace files.

use std::io::Write;
use std::path::{Path, PathBuf};

use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::Workload;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::common::{assert_contains, operations, write_file};

const GOOD: &str = "# {\"model\": \"none\", \"steps\": 1}\n\
    op,id,bytes,stream,tag\n\
    mark,-1,0,0,step 0\n\
    alloc,0,1000,0,empty\n\
    alloc,1,2000,3,\"a\"\n\
    mark,0,0,2,record_stream\n\
    free,0,01000,0,\n\
    free,1,2000,3,\n";

fn file(name: &str, contents: &[u8]) -> PathBuf {
    write_file("trace_files", name, contents)
}

fn events(path: &Path) -> Result<Vec<String>, String> {
    let trace = TraceFile::open(path).map_err(|error| error.to_string())?;
    operations(&trace).map_err(|error| error.to_string())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn plain_and_compressed_traces_are_equal() {
    let plain = file("plain.csv", GOOD.as_bytes());
    let packed = file("packed.csv.gz", &gzip(GOOD));
    // Concatenated gzip files are one gzip file.
    let (first, second) = GOOD.split_at(100);
    let joined = file("joined", &[gzip(first), gzip(second)].concat());
    let trace = TraceFile::open(&packed).unwrap();
    assert_eq!(trace.name(), "packed");
    assert_eq!(trace.header()["steps"], 1);
    let expected = events(&plain).unwrap();
    assert_eq!(expected.len(), 6);
    assert!(expected[2].contains(r#"tag: "\"a\"""#), "{}", expected[2]);
    let foreign = GOOD.replace('\n', "\r\n");
    let foreign = file(
        "foreign_breaks.csv",
        format!("\u{feff}{foreign}").as_bytes(),
    );
    assert_eq!(events(&foreign).unwrap(), expected);
    assert_eq!(events(&packed).unwrap(), expected);
    assert_eq!(events(&joined).unwrap(), expected);
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
    ];
    for (name, text, expected) in cases {
        let path = file(&format!("{name}.csv"), text.as_bytes());
        let error = events(&path).unwrap_err();
        let full = format!("{}, {expected}", path.display());
        assert!(error.starts_with(&full), "{name}: {error}");
    }
}

#[test]
fn broken_and_missing_files_are_reported() {
    let packed = gzip(&GOOD.repeat(50));
    let cut = file("cut.csv.gz", &packed[..packed.len() / 2]);
    let error = events(&cut).unwrap_err();
    assert_contains(&error, "cut.csv.gz, line");
    let binary = file("binary.csv", &[0xff; 4000]);
    let error = events(&binary).unwrap_err();
    assert_contains(&error, "line 1: not UTF-8 text");
    let missing = Path::new("no/such/trace.csv");
    let error = events(missing).unwrap_err();
    assert!(error.starts_with("no/such/trace.csv: "), "{error}");
    let folder = events(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap_err();
    assert_contains(&folder, "directory");
}
