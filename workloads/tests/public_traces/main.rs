//! Memory histories of real programs on real GPUs, published by others: every block must land where
//! it did.
//!
//! The recordings are not part of this repository. `COALESCE_PUBLIC_TRACES` names their folder;
//! without it the test says so and does nothing. Each is `NAME.csv.gz`, the history
//! (`action,addr,size,stream,time_us`), and `NAME.final_segments.json.gz`, the state at its end. The
//! state at its start is had by undoing the history ([`rewind`]); the device then places segments
//! where the history says, and every entry of our own history must be the recorded one.

mod rewind;

use std::fmt;
use std::fs::{self, File};
use std::io::{BufReader, Write, stderr};
use std::path::{Path, PathBuf};

use allocator::driver::sim::address::Placement;
use allocator::driver::sim::{SimConfig, SimDevice};
use allocator::driver::{DeviceAddr, StreamId};
use allocator::history::{Action, HistoryOptions, TraceEntry};
use allocator::mempool::MempoolId;
use allocator::policy::pytorch::DeviceCachingAllocator;
use allocator::policy::pytorch::restore::RestoreError;
use allocator::settings::Settings;
use allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};
use allocator::stats::PoolKind;
use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

const FOLDER: &str = "COALESCE_PUBLIC_TRACES";

/// A recording that no allocator has made: the fixture of a tool's own tests. Its blocks lie at odd
/// addresses and leave gaps.
const INVENTED: &str = "facebookresearch__mosaic__test_snapshots_output";

/// What can be read from a public recording.
struct Recording {
    entries: Vec<TraceEntry>,
    last: Vec<SegmentInfo>,
}

fn unpacked(path: &Path) -> MultiGzDecoder<BufReader<File>> {
    MultiGzDecoder::new(BufReader::new(File::open(path).unwrap()))
}

impl Recording {
    fn read(history: &Path) -> Self {
        let text = history.to_str().unwrap();
        let segments = text.replace(".csv.gz", ".final_segments.json.gz");
        let segments: Vec<Value> = serde_json::from_reader(unpacked(Path::new(&segments))).unwrap();
        let entries = csv::Reader::from_reader(unpacked(history))
            .records()
            .map(|record| entry(&record.unwrap()))
            .collect();
        Self {
            entries,
            last: segments.iter().map(segment).collect(),
        }
    }

    /// Expandable segments are on if any was seen.
    fn settings(&self) -> Settings {
        let expandable = self.last.iter().any(|segment| segment.is_expandable);
        let conf = if expandable {
            "expandable_segments:True"
        } else {
            ""
        };
        Settings::from_conf(conf).unwrap()
    }
}

fn entry(record: &csv::StringRecord) -> TraceEntry {
    let number = |index: usize| -> u64 { record[index].parse().unwrap() };
    let named = |action: &Action| action.name() == &record[0];
    TraceEntry {
        action: Action::ALL.into_iter().find(named).unwrap(),
        addr: DeviceAddr(number(1)),
        size: number(2),
        stream: StreamId(number(3)),
        time_us: 0,
    }
}

fn segment(json: &Value) -> SegmentInfo {
    let number = |value: &Value| value.as_u64().unwrap();
    let states = [
        BlockState::ActiveAllocated,
        BlockState::ActivePendingFree,
        BlockState::Inactive,
    ];
    let block = |json: &Value| {
        let [size, requested, address] = [0, 1, 3].map(|i| number(&json[i]));
        let state = states.into_iter().find(|state| json[2] == state.name());
        BlockInfo::new(DeviceAddr(address), size, requested, state.unwrap())
    };
    SegmentInfo {
        device: 0,
        address: DeviceAddr(number(&json["address"])),
        stream: StreamId(number(&json["stream"])),
        kind: match json["segment_type"].as_str() {
            Some("small") => PoolKind::Small,
            _ => PoolKind::Large,
        },
        pool: MempoolId(number(&json["pool_id"][0]), number(&json["pool_id"][1])),
        is_expandable: json["is_expandable"] == true,
        blocks: json["blocks"]
            .as_array()
            .unwrap()
            .iter()
            .map(block)
            .collect(),
    }
}

/// What became of a recording.
#[derive(Default)]
struct Verdict {
    /// Whether it starts with memory in use.
    warm: bool,
    /// Allocations at their recorded address.
    exact: usize,
    /// Allocations elsewhere.
    moved: usize,
    /// Entries of the history that are the recorded ones, in order.
    entries: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.warm { "warm" } else { "cold" };
        let Self {
            exact,
            moved,
            entries,
            ..
        } = self;
        write!(
            f,
            "{start}, {exact} allocations at their address, {moved} not; {entries} entries equal"
        )
    }
}

/// A device that places the segments of the first state, and then those of the history, where they
/// were.
fn device(first: &[SegmentInfo], entries: &[TraceEntry]) -> SimDevice {
    let mut device = SimDevice::new(&SimConfig::default());
    let (mut plain, mut ranges) = (Vec::new(), Vec::new());
    for segment in first {
        let addr = segment.address;
        if segment.is_expandable {
            ranges.push(Placement { bytes: None, addr });
        } else {
            let bytes = Some(segment.total_size());
            plain.push(Placement { bytes, addr });
        }
    }
    let later = entries
        .iter()
        .filter(|entry| entry.action == Action::SegmentAlloc);
    let later = later.map(|entry| Placement {
        bytes: Some(entry.size),
        addr: entry.addr,
    });
    device.follow_recording(plain.into_iter().chain(ranges).chain(later));
    device
}

fn replay(recording: &Recording) -> Verdict {
    let first = rewind::rewind(&recording.last, &recording.entries);
    let device = device(&first, &recording.entries);
    let restored = DeviceCachingAllocator::restore(device, recording.settings(), &first);
    let mut allocator = restored.unwrap();
    allocator.check().unwrap();
    allocator.record_history(Some(HistoryOptions::default()));
    let mut verdict = Verdict {
        warm: !first.is_empty(),
        ..Verdict::default()
    };
    for entry in &recording.entries {
        match entry.action {
            Action::Alloc => {
                let addr = allocator.malloc(entry.size, entry.stream).unwrap();
                if addr == entry.addr {
                    verdict.exact += 1;
                } else {
                    verdict.moved += 1;
                }
            }
            // Every free in these recordings completes at once.
            Action::FreeCompleted => allocator.free(entry.addr).unwrap(),
            _ => {}
        }
        if verdict.moved > 0 {
            break;
        }
    }
    // The ring may have lost the request of the first free.
    let orphan = recording.entries[0].action == Action::FreeCompleted;
    let ours = allocator.history().skip(usize::from(orphan));
    let same = ours.zip(&recording.entries).take_while(|(ours, recorded)| {
        (ours.action, ours.addr, ours.size, ours.stream)
            == (
                recorded.action,
                recorded.addr,
                recorded.size,
                recorded.stream,
            )
    });
    verdict.entries = same.count();
    if verdict.moved == 0 {
        assert_eq!(
            allocator.driver().left_of_recording(),
            0,
            "segments never asked for"
        );
        assert_eq!(layout(&allocator.segments()), layout(&recording.last));
    }
    verdict
}

/// Everything about segments but what free blocks remember of their last user.
fn layout(segments: &[SegmentInfo]) -> Vec<(DeviceAddr, u64, BlockState)> {
    let mut blocks: Vec<_> = segments
        .iter()
        .flat_map(|segment| &segment.blocks)
        .map(|block| (block.address, block.size, block.state))
        .collect();
    blocks.sort_by_key(|block| block.0);
    blocks
}

#[test]
fn every_block_lands_where_it_did() {
    let mut report = stderr();
    let Some(folder) = std::env::var_os(FOLDER) else {
        writeln!(
            report,
            "SKIPPED: public traces; set {FOLDER} to their folder"
        )
        .unwrap();
        return;
    };
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with(".csv.gz")))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no recording in {}", folder.display());
    let mut moved = 0;
    for file in &files {
        let recording = Recording::read(file);
        let name = file.file_name().unwrap().to_str().unwrap();
        if name.starts_with(INVENTED) {
            let device = SimDevice::new(&SimConfig::default());
            let settings = Settings::default();
            let error = DeviceCachingAllocator::restore(device, settings, &recording.last);
            let Err(RestoreError::Impossible { segment, reason }) = error else {
                panic!("{name} should be impossible");
            };
            writeln!(report, "{name}: no allocator's; at {segment}: {reason}").unwrap();
            continue;
        }
        let verdict = replay(&recording);
        writeln!(report, "{name}: {verdict} of {}", recording.entries.len()).unwrap();
        moved += verdict.moved;
        if verdict.moved == 0 {
            assert_eq!(verdict.entries, recording.entries.len(), "{name}");
        }
    }
    assert_eq!(moved, 0, "blocks elsewhere");
}
