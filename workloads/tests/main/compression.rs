//! Compressed files. Those in `tests/packed` were written by `xz -9` and `zstd -19`.

use std::fs;
use std::path::Path;

use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::minimalloc;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::op::Workload;
use flate2::Crc;

use crate::common::{TRACE, assert_contains, events, write_file};

fn packed(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packed");
    fs::read(folder.join(name)).unwrap()
}

/// The same trace in each format.
fn traces() -> [(&'static str, Vec<u8>); 3] {
    let (xz, zst) = (packed("trace.csv.xz"), packed("trace.csv.zst"));
    let gz = gzip(TRACE.as_bytes()).unwrap();
    [("gz", gz), ("xz", xz), ("zst", zst)]
}

/// The events of the trace, from a plain file.
fn expected() -> Vec<String> {
    events(&write_file("plain.csv", TRACE.as_bytes())).unwrap()
}

#[test]
fn every_format_is_read() {
    let expected = expected();
    for (ending, bytes) in traces() {
        let path = write_file(&format!("program.csv.{ending}"), &bytes);
        assert_eq!(TraceFile::open(&path).unwrap().name(), "program");
        assert_eq!(events(&path).unwrap(), expected, "{ending}");
        let unnamed = write_file(&format!("program_{ending}"), &bytes);
        assert_eq!(events(&unnamed).unwrap(), expected, "{ending}");
    }
}

/// As `cat`, `xz --block-list`, `pzstd` and parallel programs write them.
#[test]
fn several_in_a_row_are_one() {
    let expected = expected();
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let empty = write_file("empty", b"op,id,bytes,stream,tag\n");
    assert_eq!(events(&empty).unwrap(), [""; 0]);
    for (ending, first) in traces() {
        let more = gzip(b"alloc,2,3000,0,more\n").unwrap();
        let (more, padded) = match ending {
            "gz" => (more, first.clone()),
            // Padding of a multiple of 4 bytes.
            "xz" => (packed("more.csv.xz"), [&first[..], &[0; 8]].concat()),
            _ => (
                packed("more.csv.zst"),
                [&skippable[..], &first, skippable].concat(),
            ),
        };
        let path = write_file(&format!("several.{ending}"), &[padded, more].concat());
        let found = events(&path).unwrap();
        assert_eq!(found[..6], expected, "{ending}");
        assert_eq!(found.len(), 7, "{ending}");
    }
}

#[test]
fn every_cut_is_noticed() {
    for (ending, bytes) in traces() {
        for length in 10..bytes.len() {
            let error =
                events(&write_file(&format!("cut.{ending}"), &bytes[..length])).unwrap_err();
            let words = "the compressed data ends early: the file is truncated";
            assert!(error.contains(words), "{ending}, {length} bytes: {error}");
        }
    }
}

/// What no checksum covers may differ, but nothing else than the trace is read.
#[test]
fn every_damage_is_noticed() {
    let expected = expected();
    for (ending, bytes) in traces() {
        let mut refused = 0;
        for at in 0..bytes.len() {
            for bit in [0, 3, 7] {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                match events(&write_file(&format!("damaged.{ending}"), &damaged)) {
                    Ok(found) => assert_eq!(found, expected, "{ending}, byte {at}, bit {bit}"),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!(refused > 2 * bytes.len(), "{ending}: {refused}");
        let mut damaged = bytes;
        // The checksum, or the middle of the block.
        let at = match ending {
            "gz" => damaged.len() - 8,
            "xz" => damaged.len() / 2,
            _ => damaged.len() - 1,
        };
        damaged[at] ^= 1;
        let error = events(&write_file(&format!("damaged.{ending}"), &damaged)).unwrap_err();
        assert_contains(&error, "the compressed data is damaged");
    }
}

/// A few bytes may not claim gigabytes of memory.
#[test]
fn large_windows_are_refused() {
    let mut xz = packed("trace.csv.xz");
    // The header of the first block, which follows the header of 12 bytes: its size, its flags, the filter LZMA2 with
    // the size of its dictionary, padding and a checksum.
    assert_eq!(xz[12..16], [2, 0, 0x21, 1]);
    xz[16] = 40;
    let mut crc = Crc::new();
    crc.update(&xz[12..20]);
    xz[20..24].copy_from_slice(&crc.sum().to_le_bytes());
    // No single segment, no size, and an exponent of 31 for the window.
    let zst = b"\x28\xb5\x2f\xfd\x00\xf8\x01\0\0".to_vec();
    for (name, bytes, tool) in [("xz", xz, "unxz"), ("zst", zst, "unzstd")] {
        let error = events(&write_file(&format!("window.{name}"), &bytes)).unwrap_err();
        let words = format!("needs a window of more than 128 MiB; unpack it with {tool}");
        assert_contains(&error, &words);
    }
    let dictionary = b"\x28\xb5\x2f\xfd\x01\x00\x07\x01\0\0".to_vec();
    let error = events(&write_file("dictionary.zst", &dictionary)).unwrap_err();
    assert_contains(&error, "compressed in an uncommon way");
}

#[test]
fn bombs_are_refused() {
    let text = b"id,lower,upper,size\n";
    // A frame with a window of 1 MiB, a raw block with the text, and blocks of 128 KiB of zeros, the last of them empty.
    let block = |kind: u32, length: usize| ((length as u32) << 3 | kind << 1).to_le_bytes();
    let mut bomb = b"\x28\xb5\x2f\xfd\x00\x50".to_vec();
    bomb.extend(&block(0, text.len())[..3]);
    bomb.extend(text);
    for _ in 0..200 {
        bomb.extend(&block(1, 128 << 10)[..3]);
        bomb.push(0);
    }
    bomb.extend([1, 0, 0]);
    let error = minimalloc::read(write_file("bomb.zst", &bomb)).unwrap_err();
    let words = "unpacks to more than 16777216 bytes, over 256 times its size; if this is intended, unpack it with unzstd";
    assert_contains(&error.to_string(), words);
}
