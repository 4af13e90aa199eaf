//! The form of the public recordings: `NAME.csv.gz`, the history (`action,addr,size,stream,time_us`), and
//! `NAME.final_segments.json.gz`, the state at its end.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use allocator::driver::{DeviceAddr, StreamId};
use allocator::history::{Action, TraceEntry};
use allocator::mempool::MempoolId;
use allocator::snapshot::{BlockInfo, BlockState, SegmentInfo};
use allocator::stats::PoolKind;
use flate2::bufread::MultiGzDecoder;
use serde_json::Value;
use workloads::recording::Recording;

fn unpacked(path: &Path) -> MultiGzDecoder<BufReader<File>> {
    MultiGzDecoder::new(BufReader::new(File::open(path).unwrap()))
}

pub fn read(history: &Path) -> Recording {
    let text = history.to_str().unwrap();
    let segments = text.replace(".csv.gz", ".final_segments.json.gz");
    let segments: Vec<Value> = serde_json::from_reader(unpacked(Path::new(&segments))).unwrap();
    let entries = csv::Reader::from_reader(unpacked(history))
        .records()
        .map(|record| entry(&record.unwrap()))
        .collect();
    Recording {
        entries,
        segments: segments.iter().map(segment).collect(),
        ..Recording::default()
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
        time_us: number(4),
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
