//! Snapshots inside other formats, and files of foreign formats.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::{FileContent, open, snapshot};
use coalesce_workloads::input::Input;
use serde_json::{Value, json};

use crate::cases;
use crate::common::{assert_contains, fixtures, unescaped, write_file};

fn file(name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    write_file(name, bytes.as_ref())
}

/// The error of opening a file, which names its path.
fn wrong(path: &Path) -> String {
    let error = open(path).err().expect("an error").to_string();
    assert_contains(&error, &path.display().to_string());
    error
}

/// A page as `torch.cuda._memory_viz._format_viz` writes it.
fn page(pickle: &[u8]) -> String {
    let files = json!([{"name": "snapshot.pickle", "base64": STANDARD.encode(pickle)}]);
    // Python writes a space behind a colon.
    let files = files.to_string().replace("\":", "\": ");
    format!(
        "\n<!DOCTYPE html>\n<html>\n<head>\n</head>\n<body>\n<script type=\"module\">\n\
         import {{add_local_files}} from \"https://cdn/MemoryViz.js\"\nconst local_files = {files}\n\
         add_local_files(local_files, 'Active Memory Timeline')\n</script>\n</body>\n"
    )
}

#[test]
fn a_page_of_memory_viz_is_the_snapshot_in_it() {
    let path = fixtures().join("protocol-4.pickle");
    let html = page(&fs::read(&path).unwrap());
    let expected = snapshot::read(&path).unwrap();
    let plain = file("page.html", &html);
    assert_eq!(snapshot::read(&plain).unwrap(), expected);
    let packed = file("page.html.gz", gzip(html.as_bytes()).unwrap());
    assert!(matches!(open(packed).unwrap(), FileContent::Snapshot(found) if found == expected));

    let truncated = file("half.html", &html[..html.len() / 2]);
    assert_contains(&wrong(&truncated), "ends inside its snapshot");
    let other = file("other.html", "<html><p>404</p></html>");
    assert_contains(&wrong(&other), "an HTML page without a snapshot");
    let broken = file("broken.html", page(b"\x80\x04N"));
    assert_contains(&wrong(&broken), "the snapshot in it, byte 3:");
}

#[test]
fn json_of_a_snapshot_is_read() {
    let whole = fs::read("src/formats/snapshot/cases/whole.json").unwrap();
    let mut pickle = Vec::new();
    let value: Value = serde_json::from_slice(&whole).unwrap();
    to_writer(&value, &mut pickle).unwrap();
    let recordings = snapshot::read(file("whole.json", whole)).unwrap();
    let expected = snapshot::read(file("whole.pickle", pickle)).unwrap();
    assert_eq!(recordings, expected);
    assert_eq!(recordings.len(), 2);
}

#[test]
fn files_of_other_formats_are_named() {
    let wrong = |name: &str, bytes: &[u8]| {
        let path = file(name, bytes);
        let error = wrong(&path);
        assert!(snapshot::read(&path).is_err());
        error
    };
    cases::check("tests/cases/foreign.txt", |text| {
        let (name, start) = text.split_once(' ').unwrap();
        let error = wrong(name, &unescaped(start));
        error
            .split_once(name)
            .unwrap()
            .1
            .trim_start_matches([',', ':', ' '])
            .to_owned()
    });
    let half = wrong("half.json", b"{\"segments\": [");
    assert_contains(&half, "JSON that cannot be read: EOF");
    let mut tar = vec![0; 600];
    tar[257..262].copy_from_slice(b"ustar");
    assert_contains(&wrong("s.tar", &tar), "a tar archive");
    let late = format!(
        "{{\"schemaVersion\": 1,{}\"traceEvents\": []}}",
        " ".repeat(100_000)
    );
    assert_contains(
        &wrong("late.json", late.as_bytes()),
        "a profile without memory events of a device; record one with",
    );
    let packed = gzip(b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert_contains(&wrong("pointer.gz", &packed), "a Git LFS pointer");
}

#[test]
fn damaged_and_unreadable_files_are_named() {
    let packed = gzip(&fs::read(fixtures().join("protocol-4.pickle")).unwrap()).unwrap();
    let half = file("half.pickle.gz", &packed[..packed.len() / 2]);
    assert_contains(
        &wrong(&half),
        "the compressed data ends early: the file is truncated",
    );
    let mut damaged = packed;
    // The checksum.
    let end = damaged.len() - 8;
    damaged[end] ^= 1;
    let damaged = file("damaged.pickle.gz", damaged);
    assert_contains(&wrong(&damaged), "the compressed data is damaged");
    let folder = damaged.parent().unwrap();
    assert_contains(
        &wrong(folder),
        "a directory, not a regular file; name a file in it",
    );
}

#[test]
fn unknown_names_suggest_the_nearest() {
    let error = |name: &str| {
        Input::open(&name.into(), None)
            .err()
            .expect("an error")
            .to_string()
    };
    assert_contains(&error("transfomer"), "did you mean 'transformer'?");
    assert_contains(
        &error("fragmentation_articel"),
        "did you mean 'fragmentation_article'?",
    );
    // The beginning of a name, with a mistake.
    assert_contains(&error("grda_acc"), "did you mean 'grad_accumulation'?");
    // Tests run in the folder of their package.
    assert_contains(&error("Cargotoml"), "did you mean 'Cargo.toml'?");
    assert_contains(
        &error("nosuchthing"),
        "'nosuchthing' is neither a file nor a preset or family; `coalesce workloads` lists",
    );
    let path = file("recorded.pickle", b"");
    let near = path.with_file_name("recorde.pickle");
    assert_contains(
        &error(near.to_str().unwrap()),
        "no such file (did you mean '",
    );
    assert_contains(&error(near.to_str().unwrap()), "recorded.pickle'?)");
}
