//! Files that are no snapshots: what is said of them, and that nothing worse happens.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::snapshot::read;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Writes a file and says what reading it fails with.
fn wrong(name: &str, bytes: &[u8]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("snapshots");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    let said = read(&path).unwrap_err().to_string();
    let file = path.display().to_string();
    said.strip_prefix(&file).unwrap().to_owned()
}

#[test]
fn what_is_no_snapshot_is_told_with_its_place() {
    for (bytes, said) in [
        (&b""[..], ", byte 0: the file is empty"),
        (b"op,id,bytes", "begins with \"op,id,by\" and not with 0x80"),
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
        (b"\x80\x02\xff.", "0xff is no opcode"),
        (
            b"\x80\x02X\xff\xff\xff\xffabc.",
            "a text of 4294967295 bytes, but the file ends 4 bytes",
        ),
        (
            b"\x80\x04\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
            "does not fit into 64 bits",
        ),
        (b"\x80\x04K\x01a.", "too few values"),
        (b"\x80\x04K\x01K\x02a.", "no list"),
        (b"\x80\x04}(K\x01u.", "a key without a value"),
        (b"\x80\x04(K\x01.", "with 1 values on its stack"),
        (b"\x80\x04e.", "no mark"),
        (b"\x80\x04h\x07.", "nothing was put into memo 7"),
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
        assert!(found.contains(said), "{}: {found}", bytes.escape_ascii());
    }
}

#[test]
fn entries_that_say_too_little_are_told() {
    let entry = |pairs: &[u8]| {
        let mut pickle = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](}(".to_vec();
        pickle.extend_from_slice(pairs);
        pickle.extend_from_slice(b"ueeu.");
        wrong("entry.pickle", &pickle)
    };
    const ALLOC: &[u8] = b"X\x06\0\0\0actionX\x05\0\0\0alloc";
    const ADDR: &[u8] = b"X\x04\0\0\0addrK\0";
    let found = entry(b"");
    assert!(found.contains("an entry without 'action'"), "{found}");
    let found = entry(ALLOC);
    assert!(found.contains("an entry without 'addr'"), "{found}");
    let found = entry(&[ALLOC, ADDR].concat());
    assert!(found.contains("an entry without 'size'"), "{found}");
    let found = entry(&[ALLOC, ADDR, b"X\x04\0\0\0sizeJ\xff\xff\xff\xff"].concat());
    assert!(
        found.contains("the size of an entry is -1, not a number from 0 to 2^64 - 1"),
        "{found}"
    );
}

/// A list of lists that are one and the same, and so on: more entries than there are atoms.
#[test]
fn lists_that_share_their_items_are_not_multiplied() {
    let mut pickle = b"\x80\x02}(X\x08\0\0\0segments]X\x0d\0\0\0device_traces](](".to_vec();
    // One entry, and itself many times more.
    pickle.extend_from_slice(b"}(X\x06\0\0\0actionX\x05\0\0\0allocX\x04\0\0\0addrK\0");
    pickle.extend_from_slice(b"X\x04\0\0\0sizeK\0uq\0");
    pickle.extend_from_slice(&b"h\0".repeat(1000));
    pickle.extend_from_slice(b"eq\x01");
    pickle.extend_from_slice(&b"h\x01".repeat(1000));
    pickle.extend_from_slice(b"eu.");
    let found = wrong("shared.pickle", &pickle);
    assert!(
        found.contains("more items than the file has bytes"),
        "{found}"
    );
}

/// A megabyte that would take gigabytes, or hours, if everything in it were copied or looked at each time
/// that it is named.
#[test]
fn what_is_long_and_shared_is_not_multiplied() {
    const LONG: usize = 20_000;
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
        assert!(found.contains("many times larger than the file"), "{found}");
    }

    let mut pickle = b"\x80\x02}(X\x08\0\0\0segments](}q\0(".to_vec();
    pickle.extend_from_slice(b"X\x07\0\0\0addressK\0X\x06\0\0\0blocks]");
    pickle.extend_from_slice(&b"NN".repeat(LONG));
    pickle.extend_from_slice(b"u");
    pickle.extend_from_slice(&b"h\0".repeat(LONG));
    pickle.extend_from_slice(b"eu.");
    let found = wrong("long-dict.pickle", &pickle);
    assert!(found.contains("a segment: the dicts"), "{found}");
}

#[test]
fn lists_that_contain_themselves_are_no_snapshots() {
    let found = wrong("cycle.pickle", b"\x80\x02]q\0h\0a.");
    assert!(found.contains("a segment is a list, not a dict"), "{found}");
    let found = wrong("cycle.pickle", b"\x80\x02}q\0X\x08\0\0\0segmentsh\0s.");
    assert!(found.contains("segments is a dict, not a list"), "{found}");
}

#[test]
fn a_small_file_that_unpacks_to_much_is_refused() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"\x80\x02").unwrap();
    for _ in 0..32 {
        packed.write_all(&vec![b'N'; 1 << 20]).unwrap();
    }
    let found = wrong("bomb.pickle.gz", &packed.finish().unwrap());
    assert!(
        found.contains("unpacks to more than 16777216 bytes"),
        "{found}"
    );
}

#[test]
fn missing_files_and_folders_are_told() {
    let missing = read("no/such/file.pickle").unwrap_err().to_string();
    assert!(missing.starts_with("no/such/file.pickle: "), "{missing}");
    let folder = read(env!("CARGO_MANIFEST_DIR")).unwrap_err().to_string();
    assert!(folder.contains("a directory"), "{folder}");
}

proptest! {
    /// Bytes that change, are lost or are put in between: an error or another snapshot, no panic.
    #[test]
    fn damaged_files_are_errors_at_worst(
        which in 0_usize..6,
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..8),
    ) {
        const NAMES: [&str; 6] = [
            "protocol-2", "protocol-4", "protocol-5", "earlier", "later", "torch-cpp",
        ];
        let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/fixtures");
        let name = format!("{}.pickle", NAMES[which]);
        let mut bytes = fs::read(fixtures.join(&name)).unwrap();
        for (index, byte, kind) in damage {
            let at = index.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                _ => bytes.insert(at, byte),
            }
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("damaged-{name}"));
        fs::write(&path, &bytes).unwrap();
        match read(&path) {
            Ok(recordings) => for recording in recordings {
                prop_assert!(recording.entries.len() + recording.segments.len() <= bytes.len());
            },
            Err(error) => prop_assert!(error.to_string().contains(&name)),
        }
    }
}
