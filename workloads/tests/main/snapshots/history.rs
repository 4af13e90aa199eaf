//! Histories as CSV tables, with the segments in a file beside them.

use std::fs;
use std::path::PathBuf;

use coalesce_alloc::history::Action;
use coalesce_workloads::formats::snapshot::read;

use crate::common::{assert_contains, write_file};

const HISTORY: &str = "action,addr,size,stream,time_us\n\
    segment_alloc,8388608,2097152,0,7\n\
    alloc,8388608,1000,0,8\n";
const SEGMENTS: &str = r#"[{"address":8388608,"total_size":2097152,"stream":0,"segment_type":"small",
    "pool_id":[0,0],"is_expandable":false,
    "blocks":[[1024,1000,"active_allocated",8388608],[2096128,0,"inactive",8389632]]}]"#;

fn written(name: &str, history: &str, segments: &str) -> PathBuf {
    let write = |name: String, text: &str| write_file(&name, text.as_bytes());
    write(format!("{name}.final_segments.json"), segments);
    write(format!("{name}.csv"), history)
}

#[test]
fn a_table_and_its_segments_are_a_recording() {
    let recordings = read(written("whole", HISTORY, SEGMENTS)).unwrap();
    let [recording] = &recordings[..] else {
        panic!("one device")
    };
    let actions: Vec<Action> = recording.entries.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::SegmentAlloc, Action::Alloc]);
    assert_eq!(recording.entries[1].time_us, 8);
    assert_eq!(recording.segments[0].total_size(), 2 << 20);
    assert_eq!(recording.segments[0].requested_size(), 1000);
    assert_eq!((recording.device, recording.segments[0].device), (0, 0));
}

#[test]
fn errors_name_file_and_line() {
    let wrong = |name, history: &str, segments: &str, expected: &str| {
        let error = read(written(name, history, segments)).unwrap_err();
        assert_contains(&error.to_string(), expected);
    };
    let short = format!("{HISTORY}alloc,1,2\n");
    wrong(
        "short",
        &short,
        SEGMENTS,
        "line 4: 'alloc,1,2' is not action",
    );
    let unknown = format!("{HISTORY}borrow,1,2,3,4\n");
    wrong("unknown", &unknown, SEGMENTS, "line 4: 'borrow,");
    wrong("broken", HISTORY, "[{", "broken.final_segments.json: EOF");
    let state = SEGMENTS.replace("inactive", "asleep");
    wrong(
        "state",
        HISTORY,
        &state,
        "unknown state of a block: 'asleep'",
    );
    let alone = written("alone", HISTORY, SEGMENTS);
    fs::remove_file(alone.with_file_name("alone.final_segments.json")).unwrap();
    let text = read(alone).unwrap_err().to_string();
    assert_contains(&text, "must contain the segments at the end");
}
