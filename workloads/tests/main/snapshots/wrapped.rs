//! Snapshots inside other formats, and files of foreign formats.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coalesce_alloc::MempoolId;
use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::source::Source;
use coalesce_workloads::formats::{Opened, open, snapshot};
use coalesce_workloads::input::Input;
use serde_json::{Value, json};

use crate::common::{assert_contains, fixtures, write_file};

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
    assert!(matches!(open(packed).unwrap(), Opened::Snapshot(found) if found == expected));

    let truncated = file("half.html", &html[..html.len() / 2]);
    assert_contains(&wrong(&truncated), "ends inside its snapshot");
    let other = file("other.html", "<html><p>404</p></html>");
    assert_contains(&wrong(&other), "an HTML page without a snapshot");
    let broken = file("broken.html", page(b"\x80\x04N"));
    assert_contains(&wrong(&broken), "the snapshot in it, byte 3:");
}

#[test]
fn json_of_a_snapshot_is_read() {
    let entry = |action: &str| {
        json!({
            "action": action, "addr": 2_u64 << 40, "size": 1024, "stream": 0, "time_us": 7,
            "frames": [{"name": "main", "filename": "train.py", "line": u64::MAX}],
        })
    };
    let segment = json!({
        "device": 0, "address": 2_u64 << 40, "total_size": 2 << 20, "stream": 0, "segment_type": "small",
        "segment_pool_id": [0, 0], "is_expandable": false, "blocks": [
            {"address": 2_u64 << 40, "size": 2 << 20, "requested_size": 0, "state": "inactive", "frames": []},
        ],
    });
    let conf = json!({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"});
    let whole = json!({
        "segments": [segment],
        "device_traces": [[entry("alloc"), entry("free_requested"), entry("free_completed")]],
        "allocator_settings": conf,
    });
    let path = file("snapshot.json", format!("{whole:#}"));
    let [recording] = &snapshot::read(&path).unwrap()[..] else {
        panic!("one device");
    };
    assert_eq!((recording.entries.len(), recording.segments.len()), (3, 1));
    assert_eq!(recording.conf.as_deref(), Some("max_split_size_mb:64"));
    assert_eq!(recording.stack_of(0).unwrap().frames[0].line, u64::MAX);
    let segments = file("segments.json", Value::Array(vec![segment]).to_string());
    assert_eq!(
        snapshot::read(&segments).unwrap()[0].segments,
        recording.segments
    );
}

#[test]
fn entries_without_a_pool_among_others_use_the_default_one() {
    let entry = |addr: u64| json!({"action": "alloc", "addr": addr, "size": 512, "stream": 0, "frames": []});
    let mut entries = [entry(0x1000), entry(0x2000), entry(0x3000)];
    entries[1]["pool_id"] = json!([3, 0]);
    let whole = json!({"segments": [], "device_traces": [entries]});
    let path = file("pools.json", whole.to_string());
    let recordings = snapshot::read(&path).unwrap();
    let default = MempoolId::DEFAULT;
    assert_eq!(
        recordings[0].entry_pools,
        [default, MempoolId(3, 0), default]
    );
}

#[test]
fn files_of_other_formats_are_named() {
    let mut tar = vec![0; 600];
    tar[257..262].copy_from_slice(b"ustar");
    let far = " ".repeat(100_000);
    for (name, bytes, expected) in [
        ("empty.pickle", &b""[..], "byte 0: the file is empty"),
        (
            "pointer.pickle",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "a Git LFS pointer, not a snapshot or a trace; `git lfs pull` fetches the file",
        ),
        (
            "s.pickle.bz2",
            b"BZh91AY",
            "compressed with bzip2; unpack it first",
        ),
        (
            "s.zip",
            b"PK\x03\x04\x14\0....s.pickle",
            "a zip archive, not",
        ),
        (
            "s.pt",
            b"PK\x03\x04\0\0....archive/data.pkl",
            "a zip archive of torch.save",
        ),
        ("s.tar", &tar, "a tar archive"),
        ("s.nsys-rep", b"\x01\x02\x03", "a report of Nsight Systems"),
        ("s.sqlite", b"SQLite format 3\0\x10", "an SQLite database"),
        ("s.parquet", b"PAR1\x15\x04", "a Parquet file"),
        ("s.png", b"\x89PNG\r\n\x1a\n", "a picture"),
        (
            "old.pickle",
            b"(dp0\nVsegments\n",
            "a pickle of protocol 0 or 1",
        ),
        (
            "trace.json",
            b"{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\"",
            "a trace of a profiler (Chrome trace), not a snapshot",
        ),
        (
            "late.json",
            format!("{{\"schemaVersion\": 1,{far}\"traceEvents\": []}}").as_bytes(),
            "a trace of a profiler (Chrome trace), not a snapshot",
        ),
        (
            "list.json",
            b"[1, 2]",
            "JSON of another kind, not a snapshot",
        ),
        (
            "half.json",
            b"{\"segments\": [",
            "JSON that cannot be read: EOF",
        ),
    ] {
        let path = file(name, bytes);
        let found = wrong(&path);
        assert_contains(&found, expected);
        assert_eq!(snapshot::read(&path).unwrap_err().to_string(), found);
    }
    let packed = file(
        "pointer.gz",
        gzip(b"version https://git-lfs.github.com/spec/v1\n").unwrap(),
    );
    assert_contains(&wrong(&packed), "a Git LFS pointer");
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
        Input::open(&Source::named(name), None)
            .err()
            .expect("an error")
            .to_string()
    };
    assert_contains(&error("transfomer"), "did you mean 'transformer'?");
    assert_contains(
        &error("fragmentation_articel"),
        "did you mean 'fragmentation_article'?",
    );
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
