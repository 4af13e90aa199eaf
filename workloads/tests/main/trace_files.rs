//! Valid and invalid trace files.

use coalesce_workloads::Input;
use coalesce_workloads::formats::trace::TraceFile;

use crate::cases;
use crate::common::{TRACE, assert_contains, events, operations, write_file};

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

/// The error of reading a file, or the last section of one about several devices, without its path.
fn wrong(text: &str) -> String {
    let path = write_file("wrong.csv", text.as_bytes());
    let read = events(&path).and_then(|_| {
        let last = Input::open(&(&path).into(), Some(3)).map_err(|error| error.to_string())?;
        operations(&*last.workload).map_err(|error| error.to_string())
    });
    let error = read.unwrap_err();
    let reason = error.strip_prefix(&path.display().to_string()).unwrap();
    reason.trim_start_matches([',', ':', ' ']).to_owned()
}

#[test]
fn errors_name_file_line_and_reason() {
    cases::check("tests/cases/not-traces.txt", |text| {
        wrong(&(text.replace("(empty)", "") + "\n"))
    });
    assert_contains(&wrong(""), "byte 0: the file is empty");
}
