//! Files that are not snapshots cause a clear error and nothing worse.

use std::fs;

use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::snapshot::read;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::cases;
use crate::common::{assert_contains, fixtures, unescaped, write_file};

/// Writes a file and returns the error of reading it, without the path.
fn wrong(name: &str, bytes: &[u8]) -> String {
    let path = write_file(name, bytes);
    let error = read(&path).unwrap_err().to_string();
    let file = path.display().to_string();
    error.strip_prefix(&file).unwrap().to_owned()
}

#[test]
fn errors_name_the_byte_and_the_reason() {
    cases::check("tests/cases/not-snapshots.txt", |bytes| {
        wrong("wrong.pickle", &unescaped(bytes))
    });
}

/// A list that repeats one list, which repeats one entry: exponentially many entries.
#[test]
fn shared_lists_do_not_multiply_memory() {
    let mut pickle = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](".to_vec();
    // One entry, repeated.
    pickle.extend_from_slice(b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0addrK\0");
    pickle.extend_from_slice(b"X\x04\0\0\0sizeK\0uq\0");
    pickle.extend_from_slice(&b"h\0".repeat(1000));
    pickle.extend_from_slice(b"eq\x01");
    pickle.extend_from_slice(&b"h\x01".repeat(1000));
    pickle.extend_from_slice(b"eu.");
    let found = wrong("shared.pickle", &pickle);
    assert_contains(&found, "more items than the file has bytes");
}

/// A small file that would need a thousand times its size, or hours, if shared values were copied or visited for
/// each reference.
#[test]
fn shared_long_values_do_not_multiply_memory() {
    const LONG: usize = 6_000;
    let name = "x".repeat(LONG);
    let entry = |frames: Value| json!({"action": "alloc", "addr": 0, "size": 0, "frames": frames});
    let frames: Value = (0..LONG)
        .map(|line| json!({"name": name, "line": line}))
        .collect();
    let annotation = json!({"name": name, "stage": "START"});
    let unknown = json!({"action": name});
    let trace = |entries: Value| json!({"segments": [], "device_traces": [entries]});
    let of_each_device = json!({
        "segments": [],
        "device_traces": vec![json!([entry(json!([]))]); LONG],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": name},
    });
    for snapshot in [
        trace(json!([entry(frames)])),
        trace(json!(vec![unknown; LONG])),
        json!({"segments": [], "external_annotations": vec![annotation; LONG]}),
        of_each_device,
    ] {
        let mut pickle = Vec::new();
        to_writer(&snapshot, &mut pickle).unwrap();
        let found = wrong("long.pickle", &pickle);
        assert_contains(&found, "many times larger than the file");
    }

    let mut pickle = b"\x80\x02}(X\x08\0\0\0segments](}q\0(".to_vec();
    pickle.extend_from_slice(b"X\x07\0\0\0addressK\0X\x06\0\0\0blocks]");
    pickle.extend_from_slice(&b"NN".repeat(LONG));
    pickle.extend_from_slice(b"u");
    pickle.extend_from_slice(&b"h\0".repeat(LONG));
    pickle.extend_from_slice(b"eu.");
    let found = wrong("long-dict.pickle", &pickle);
    assert_contains(&found, "a segment: the dicts");
}

#[test]
fn missing_files_and_folders_are_reported() {
    let missing = read("no/such/file.pickle").unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file.pickle: "), "{missing}");
    let folder = read(env!("CARGO_MANIFEST_DIR")).unwrap_err().to_string();
    assert_contains(&folder, "a directory");
}

proptest! {
    /// Changed, removed or inserted bytes cause an error or another snapshot, never a panic.
    #[test]
    fn damaged_files_never_panic(
        which in 0_usize..6,
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..8),
    ) {
        const NAMES: [&str; 6] = [
            "protocol-2", "protocol-4", "protocol-5", "earlier", "later", "torch-cpp",
        ];
        let name = format!("{}.pickle", NAMES[which]);
        let mut bytes = fs::read(fixtures().join(&name)).unwrap();
        for (index, byte, kind) in damage {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        let path = write_file(&format!("damaged-{name}"), &bytes);
        match read(&path) {
            Ok(recordings) => for recording in recordings {
                prop_assert!(recording.entries.len() + recording.segments.len() <= bytes.len());
            },
            Err(error) => prop_assert!(error.to_string().contains(&name)),
        }
    }
}
