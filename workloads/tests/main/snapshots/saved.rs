//! Snapshots that `torch.save` wrote, and zip archives.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;

use coalesce_workloads::formats::{open, snapshot};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::common::{assert_contains, fixtures, write_file};

const COMPLAINTS: &str = "recordings/complaints";

fn archive(method: CompressionMethod, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, content) in files {
        writer.start_file(*name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The error of opening a file with this content.
fn wrong(name: &str, content: &[u8]) -> String {
    let error = open(write_file(name, content)).err().expect("an error");
    error.to_string()
}

#[test]
fn both_formats_of_torch_save_hold_the_same_snapshot() {
    let read = |name: &str| snapshot::read(Path::new(COMPLAINTS).join(name)).unwrap();
    let zipped = read("saved.pt");
    assert!(!zipped[0].segments.is_empty());
    assert_eq!(zipped, read("saved-legacy.pt"));
}

#[test]
fn the_only_file_of_an_archive_is_read() {
    let path = fixtures().join("protocol-4.pickle");
    let pickle = fs::read(&path).unwrap();
    let expected = snapshot::read(&path).unwrap();
    for method in [CompressionMethod::Stored, CompressionMethod::DEFLATE] {
        let read = |files: &[(&str, &[u8])]| {
            snapshot::read(write_file("s.zip", &archive(method, files))).unwrap()
        };
        assert_eq!(read(&[("a/s.pickle", &pickle)]), expected);
        // As macOS packs it.
        let with_notes = [
            ("s.pickle", &pickle[..]),
            ("__MACOSX/._s.pickle", b"notes"),
            (".DS_Store", b"notes"),
        ];
        assert_eq!(read(&with_notes), expected);
        // As torch.save packs it.
        let with_tensors = [
            ("s/data.pkl", &pickle[..]),
            ("s/version", b"3\n"),
            ("s/data/0", b"\0\0\0\0"),
        ];
        assert_eq!(read(&with_tensors), expected);
    }
}

#[test]
fn other_archives_are_refused() {
    let several = archive(
        CompressionMethod::Stored,
        &[("a.txt", b"a"), ("b.txt", b"b")],
    );
    assert_contains(
        &wrong("several.zip", &several),
        "a zip archive of several files (a.txt to b.txt); unpack it, and name one of them or their folder",
    );
    let mut packed = archive(CompressionMethod::Stored, &[("s.pickle", b"\x80\x04N.")]);
    let cut = &packed[..packed.len() - 30];
    assert_contains(
        &wrong("cut.zip", cut),
        "the zip archive is truncated or damaged",
    );
    let at = packed.windows(3).position(|bytes| bytes == b"\x80\x04N");
    packed[at.unwrap() + 2] = b'K';
    assert_contains(
        &wrong("damaged.zip", &packed),
        "the compressed data is damaged",
    );
    let bomb = archive(
        CompressionMethod::DEFLATE,
        &[("s.pickle", &vec![0x80; 20 << 20])],
    );
    assert!(bomb.len() < 1 << 16);
    assert!(wrong("bomb.zip", &bomb).len() < 400);
    let mut pickle = b"\x80\x04(".to_vec();
    pickle.resize(20 << 20, b'N');
    let bomb = archive(CompressionMethod::DEFLATE, &[("s.pickle", &pickle)]);
    assert_contains(
        &wrong("bomb.zip", &bomb),
        "unpacks to more than 16777216 bytes, over 64 times its size; if this is intended, unpack it with unzip",
    );
}

#[test]
fn a_legacy_file_may_end_anywhere() {
    let whole = fs::read(Path::new(COMPLAINTS).join("saved-legacy.pt")).unwrap();
    for len in [14, 15, 20, 21, 100, 137, 200, 12_000] {
        let error = wrong("cut.pt", &whole[..len]);
        assert_contains(&error, "byte");
    }
    // The keys of storages may be missing.
    let path = write_file("cut.pt", &whole[..12_738]);
    assert_eq!(snapshot::read(path).unwrap().len(), 1);
}
