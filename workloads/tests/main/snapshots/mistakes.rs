//! Files that are not snapshots cause a clear error and nothing worse.

use std::fs;
use std::io::Write;

use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::snapshot::read;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::{assert_contains, fixtures, write_file};

/// Writes a file and returns the error of reading it, without the path.
fn wrong(name: &str, bytes: &[u8]) -> String {
    let path = write_file(name, bytes);
    let error = read(&path).unwrap_err().to_string();
    let file = path.display().to_string();
    error.strip_prefix(&file).unwrap().to_owned()
}

#[test]
fn errors_name_the_byte_and_the_reason() {
    for (bytes, expected) in [
        (&b""[..], ", byte 0: the file is empty"),
        (b"op,id,bytes", "begins with \"op,id,by\" instead of 0x80"),
        (b"\x80\x09N.", "pickle protocol 9"),
        (b"\x80\x04N", ", byte 3: the file ends here"),
        (b"\x80\x04]", "the file ends here"),
        (
            b"\x80\x04cos\nsystem\n.",
            ", byte 2: refuses GLOBAL 'os.system': a snapshot is plain data",
        ),
        (
            b"\x80\x04\x8c\x05posix\x8c\x06system\x93.",
            ", byte 17: refuses STACK_GLOBAL 'posix.system'",
        ),
        (b"\x80\x02}}R.", ", byte 4: refuses REDUCE"),
        (b"\x80\x02\xff.", "0xff is not a pickle opcode"),
        (
            b"\x80\x02X\xff\xff\xff\xffabc.",
            "a string of 4294967295 bytes, but the file ends after 4 bytes",
        ),
        (
            b"\x80\x04\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
            "does not fit into 64 bits",
        ),
        (b"\x80\x04K\x01a.", "too few values"),
        (b"\x80\x04K\x01K\x02a.", "not a list"),
        (b"\x80\x04}(K\x01u.", "a key without a value"),
        (b"\x80\x04(K\x01.", "with 1 values on its stack"),
        (b"\x80\x04e.", "no mark"),
        (b"\x80\x04h\x07.", "memo 7 is empty"),
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "memo 2147483647 is beyond"),
        (b"\x80\x04K\x05.", ", byte 2: a snapshot is 5, not a dict"),
        (b"\x80\x04}.", "a dict without the key 'segments'"),
        (
            b"\x80\x04}\x8c\x08segmentsNs.",
            ", byte 13: segments is None, not a list",
        ),
        (b"\x80\x04](}e.", "a segment without 'address'"),
    ] {
        let found = wrong("wrong.pickle", bytes);
        assert!(
            found.contains(expected),
            "{}: {found}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn incomplete_entries_are_reported() {
    let entry = |pairs: &[u8]| {
        let mut pickle = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}(".to_vec();
        pickle.extend_from_slice(pairs);
        pickle.extend_from_slice(b"ueeu.");
        wrong("entry.pickle", &pickle)
    };
    const ALLOC: &[u8] = b"X\x06\0\0\0actionX\x05\0\0\0alloc";
    const ADDR: &[u8] = b"X\x04\0\0\0addrK\0";
    let found = entry(b"");
    assert_contains(&found, "an entry without 'action'");
    let found = entry(ALLOC);
    assert_contains(&found, "an entry without 'addr'");
    let found = entry(&[ALLOC, ADDR].concat());
    assert_contains(&found, "an entry without 'size'");
    let found = entry(&[ALLOC, ADDR, b"X\x04\0\0\0sizeJ\xff\xff\xff\xff"].concat());
    assert_contains(
        &found,
        "the size of an entry is -1, not a number from 0 to 2^64 - 1",
    );
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
fn cyclic_values_are_refused() {
    let found = wrong("cycle.pickle", b"\x80\x02]q\0h\0a.");
    assert_contains(&found, "a segment is a list, not a dict");
    let found = wrong("cycle.pickle", b"\x80\x02}q\0X\x08\0\0\0segmentsh\0s.");
    assert_contains(&found, "segments is a dict, not a list");
}

#[test]
fn decompression_bombs_are_refused() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"\x80\x02").unwrap();
    for _ in 0..32 {
        packed.write_all(&vec![b'N'; 1 << 20]).unwrap();
    }
    let found = wrong("bomb.pickle.gz", &packed.finish().unwrap());
    assert_contains(&found, "unpacks to more than 16777216 bytes");
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
