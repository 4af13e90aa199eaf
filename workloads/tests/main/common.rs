//! Helpers shared by the tests.

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::thread;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::settings::Settings;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::trace::TraceFile;
use coalesce_workloads::measure::Measures;
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use coalesce_workloads::presets;
use coalesce_workloads::replay::{Observer, replay};
use toml::Table;

pub const GIB: u64 = 1 << 30;
pub const MIB: u64 = 1 << 20;
pub const EXPANDABLE: &str = "expandable_segments:True";

/// More device memory than any workload requests.
pub const ROOMY: u64 = 1 << 40;

/// A small trace, which `tests/packed` has compressed with xz and zstd.
pub const TRACE: &str = "# {\"model\": \"none\", \"steps\": 1}\n\
    op,id,bytes,stream,tag\n\
    mark,-1,0,0,step 0\n\
    alloc,0,1000,0,empty\n\
    alloc,1,2000,3,\"a\"\n\
    mark,0,0,2,record_stream\n\
    free,0,01000,0,\n\
    free,1,2000,3,\n";

pub type Allocator = PyTorch<SimDevice>;

pub fn allocator(conf: &str, capacity: u64) -> Allocator {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    PyTorch::new(device, Settings::from_conf(conf).unwrap())
}

pub fn table(text: &str) -> Table {
    text.parse().unwrap()
}

pub fn preset(name: &str, overrides: &str) -> Box<dyn Workload> {
    presets::build(name, table(overrides)).unwrap()
}

/// Replays under these settings, on a device of this capacity.
pub fn watched(
    workload: &dyn Workload,
    (conf, capacity): (&str, u64),
    observer: &mut dyn Observer,
) -> Measures {
    let mut allocator = allocator(conf, capacity);
    replay(workload, &mut allocator, observer).unwrap();
    Measures::of(allocator.stats())
}

/// Replays on a roomy device.
pub fn measured(workload: &dyn Workload, conf: &str) -> Measures {
    watched(workload, (conf, ROOMY), &mut ())
}

/// All operations, as text; every request succeeds.
pub fn operations(workload: &dyn Workload) -> Result<Vec<String>, WorkloadError> {
    let mut operations = Vec::new();
    workload.emit(&mut |op: Op<'_>| {
        operations.push(format!("{op:?}"));
        Ok(Answer::Done)
    })?;
    Ok(operations)
}

/// The operations of a trace file, or the error.
pub fn events(path: &Path) -> Result<Vec<String>, String> {
    let trace = TraceFile::open(path).map_err(|error| error.to_string())?;
    operations(&trace).map_err(|error| error.to_string())
}

/// Asserts that every allocation is freed, and freed once.
pub fn assert_frees_all(workload: &dyn Workload) {
    let name = workload.name();
    let mut live = HashSet::new();
    workload
        .emit(&mut |op: Op<'_>| {
            match op {
                Op::Malloc { id, .. } => assert!(live.insert(id), "{name}: {id} is live already"),
                Op::Free { id } => assert!(live.remove(&id), "{name}: {id} is not live"),
                Op::RecordStream { id, .. } => assert!(live.contains(&id), "{name}: {id}"),
                Op::EmptyCache
                | Op::Pool(_)
                | Op::Limit { .. }
                | Op::Surroundings(_)
                | Op::Mark { .. } => {}
            }
            Ok(Answer::Done)
        })
        .unwrap();
    assert!(live.is_empty(), "{name} keeps {} allocations", live.len());
}

/// The bytes of a text in which `\xff`, `\n` and their like stand for one byte each. `(none)` are no bytes.
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut rest = text.strip_prefix("(none)").unwrap_or(text).bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [rest.next(), rest.next()].map(|digit| char::from(digit.unwrap()));
                    u8::from_str_radix(&String::from_iter(digits), 16).unwrap()
                }
                other => other,
            },
            byte => byte,
        });
    }
    bytes
}

#[track_caller]
pub fn assert_contains(text: &str, expected: &str) {
    assert!(text.contains(expected), "no '{expected}' in: {text}");
}

/// Writes a file to the folder of the running test. Tests run in parallel and use the same file names.
pub fn write_file(name: &str, contents: &[u8]) -> PathBuf {
    // The thread has the name of the test. The folder has a hash of it: a word that a test expects in an error message
    // could otherwise match the path in that message.
    let mut hasher = DefaultHasher::new();
    thread::current().name().hash(&mut hasher);
    let test = format!("{:016x}", hasher.finish());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    path
}

/// The folder of recorded traces.
pub fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces")
}

/// The folder of small snapshots.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The recording without its first entries.
pub fn without_first(recording: &Recording, count: usize) -> Recording {
    let mut later = recording.clone();
    later.entries.drain(..count);
    let (stacks, pools) = (&mut later.entry_stacks, &mut later.entry_pools);
    stacks.drain(..count.min(stacks.len()));
    pools.drain(..count.min(pools.len()));
    later
}
