//! What becomes of each value of a snapshot.

use std::collections::HashMap;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::release::two;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_workloads::formats::pickle::to_writer;
use coalesce_workloads::formats::snapshot::release::{ReleaseEvidence, Releases};
use coalesce_workloads::formats::snapshot::{Annotation, Frame, Recording, Stack, StackId, read};
use coalesce_workloads::formats::source::Source;
use serde_json::{Value, json};

pub fn try_read(snapshot: &Value) -> Result<Vec<Recording>, String> {
    let mut pickle = Vec::new();
    to_writer(snapshot, &mut pickle).unwrap();
    let source = Source::Memory("s.pickle".into(), pickle.into());
    read(source).map_err(|error| error.to_string())
}

fn recordings(snapshot: &Value) -> Vec<Recording> {
    try_read(snapshot).unwrap()
}

/// A frame of the program.
fn frame(line: u64) -> Value {
    json!({"name": "step", "filename": "train.py", "line": line})
}

fn stack(lines: &[u64]) -> Stack {
    let frames = lines.iter().map(|&line| {
        Frame {
            name: "step".to_owned(),
            filename: "train.py".to_owned(),
            line,
        }
        .into()
    });
    Stack {
        frames: frames.collect(),
    }
}

fn entry(action: Action, addr: u64, size: u64) -> TraceEntry {
    TraceEntry {
        action,
        addr: DeviceAddr(addr),
        size,
        stream: StreamId::DEFAULT,
        time_us: 0,
    }
}

/// Two devices; the one between them has nothing.
pub fn whole() -> Value {
    let written = [
        "  File \"train.py\", line 9, in step\n    loss.backward()\n",
        "no frame at all",
        "  File \"train.py\", line 8, in step\n",
    ];
    json!({
        "segments": [
            {
                "device": 2, "address": 0x9000, "total_size": 0x1000, "stream": -2, "segment_type": "small",
                "segment_pool_id": [3, -1], "is_expandable": true, "blocks": [
                    {"size": 0x400, "requested_size": 7, "state": "active_allocated", "frames": [frame(5)]},
                    {"size": 0x200, "state": "active_awaiting_free", "history": [
                        {"real_size": 300, "frames": [frame(1), frame(2)]}, {"real_size": 1},
                    ]},
                    {"address": 0x9800, "size": 0x800, "state": "inactive"},
                ],
            },
            {"address": 0x4000, "device": 2, "blocks": [
                {"address": 0x4000, "size": 0x200, "state": "active_pending_free", "history": [5], "frames": []},
            ]},
        ],
        "device_traces": [
            [{"action": "snapshot", "addr": 0, "size": 5, "time_us": 4}],
            [],
            [
                {"action": "alloc", "addr": -0x1000, "size": 6, "stream": -2, "time_us": 11, "frames": [frame(5)],
                 "forward_frames": written, "user_metadata": "batch 1"},
                {"action": "annotate", "addr": 1, "size": 1},
                {"action": "free_requested", "addr": 0x4000, "size": 6, "user_metadata": "", "forward_frames": null},
                {"action": "borrow", "addr": 1, "size": 1},
                {"action": "oom", "addr": 1, "device_free": 77, "size": 8, "time_us": 12, "frames": [frame(1), frame(2)],
                 "forward_frames": written},
                {"action": "oom", "addr": 78, "size": 9, "time_us": 13, "user_metadata": 5},
            ],
        ],
        "external_annotations": [
            {"name": "late", "stage": "END", "device": 2, "time_us": 9},
            {"name": "first", "stage": "START"},
            {"name": "odd", "stage": "MIDDLE", "device": 2},
        ],
        "allocator_settings": {
            "PYTORCH_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_CUDA_ALLOC_CONF_": "not this one",
            "expandable_segments": false, "trace_alloc_overflowed": true,
        },
    })
}

#[test]
fn every_value_becomes_what_it_means() {
    let written_by = Releases {
        from: Some(two(5)),
        before: Some(two(8)),
        evidence: ReleaseEvidence::Keys,
    };
    let lost = "the history is longer than PyTorch's ring buffer, so its beginning is lost (max_entries of \
                _record_memory_history)";
    let block = |address: u64, size, requested, state| {
        BlockInfo::new(DeviceAddr(address), size, requested, state)
    };
    let conf = Some("max_split_size_mb:64".to_owned());
    let first = Recording {
        conf: conf.clone(),
        entries: vec![TraceEntry {
            time_us: 4,
            ..entry(Action::Snapshot, 0, 5)
        }],
        stacks: vec![Stack::default()],
        annotations: vec![Annotation {
            name: "first".to_owned(),
            is_start: true,
            time_us: 0,
        }],
        written_by,
        remarks: vec![lost.to_owned()],
        ..Recording::default()
    };
    let stream = StreamId(u64::MAX - 1);
    let third = Recording {
        device: 2,
        conf,
        entries: vec![
            TraceEntry {
                stream,
                time_us: 11,
                ..entry(Action::Alloc, u64::MAX - 0xfff, 6)
            },
            entry(Action::FreeRequested, 0x4000, 6),
            TraceEntry {
                time_us: 12,
                ..entry(Action::Oom, 77, 8)
            },
            TraceEntry {
                time_us: 13,
                ..entry(Action::Oom, 78, 9)
            },
        ],
        entry_stacks: [1, 0, 2, 0].map(StackId).to_vec(),
        forward_stacks: HashMap::from_iter([(0, StackId(3)), (2, StackId(3))]),
        entry_labels: HashMap::from_iter([(0, "batch 1".to_owned())]),
        segments: vec![
            SegmentInfo {
                device: 2,
                address: DeviceAddr(0x4000),
                stream: StreamId::DEFAULT,
                kind: PoolKind::Large,
                pool: MempoolId::DEFAULT,
                is_expandable: false,
                blocks: vec![block(0x4000, 0x200, 0x200, BlockState::ActivePendingFree)],
            },
            SegmentInfo {
                device: 2,
                address: DeviceAddr(0x9000),
                stream,
                kind: PoolKind::Small,
                pool: MempoolId(3, u64::MAX),
                is_expandable: true,
                blocks: vec![
                    block(0x9000, 0x400, 7, BlockState::ActiveAllocated),
                    block(0x9400, 0x200, 300, BlockState::ActivePendingFree),
                    block(0x9800, 0x800, 0, BlockState::Inactive),
                ],
            },
        ],
        block_stacks: HashMap::from_iter([
            (DeviceAddr(0x9000), StackId(1)),
            (DeviceAddr(0x9400), StackId(2)),
        ]),
        stacks: vec![
            Stack::default(),
            stack(&[5]),
            stack(&[1, 2]),
            stack(&[8, 9]),
        ],
        annotations: vec![Annotation {
            name: "late".to_owned(),
            is_start: false,
            time_us: 9,
        }],
        written_by,
        remarks: [
            "entries of the unknown action 'borrow', skipped: 1",
            "entries without a time: 1",
            "blocks in use without a requested size, taken to be wholly requested: 1",
            "segments whose size is not the sum of their blocks, which are used instead: 1",
            "annotations that are neither START nor END, skipped: 1",
            lost,
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Recording::default()
    };
    let found = recordings(&whole());
    assert_eq!(found[1], third);
    assert_eq!(found, [first, third]);
}

#[test]
fn only_devices_with_entries_or_segments_are_recordings() {
    let found = |snapshot: Value| -> Vec<u32> {
        recordings(&snapshot).iter().map(|one| one.device).collect()
    };
    let none: [u32; 0] = [];
    assert_eq!(
        found(json!({"segments": [], "device_traces": [[], []]})),
        none
    );
    assert_eq!(found(json!([])), none);
    assert_eq!(
        found(json!([{"device": 5, "address": 1, "blocks": []}])),
        [5]
    );
    let entry = json!({"action": "snapshot", "addr": 0, "size": 0});
    assert_eq!(
        found(json!({"segments": [], "device_traces": [[], [entry], [], [entry]]})),
        [1, 3]
    );
}

/// PyTorch 2.12 and later write the pool of each entry. Two devices have their own.
#[test]
fn entries_belong_to_their_device() {
    let entry = |addr: u64, pool: Option<u64>| {
        let mut entry = json!({
            "action": "alloc", "addr": addr, "size": 1, "time_us": addr, "frames": [frame(addr)],
            "user_metadata": addr.to_string(),
        });
        if let Some(pool) = pool {
            entry["pool_id"] = json!([0, pool]);
        }
        entry
    };
    let traces = [
        json!([entry(1, None), entry(2, Some(7)), entry(3, None)]),
        json!([entry(4, Some(8)), entry(5, None)]),
        json!([entry(6, None)]),
    ];
    let found = recordings(&json!({"segments": [], "device_traces": traces}));
    let [none, seven, eight] = [0, 7, 8].map(|pool| MempoolId(0, pool));
    for (recording, (addresses, pools)) in found.iter().zip([
        (vec![1, 2, 3], vec![none, seven, none]),
        (vec![4, 5], vec![eight, none]),
        (vec![6], vec![none]),
    ]) {
        let entries = recording.entries.iter().map(|entry| entry.addr.0);
        assert_eq!(entries.collect::<Vec<_>>(), addresses);
        assert_eq!(recording.entry_pools, pools);
        for (index, addr) in addresses.iter().enumerate() {
            assert_eq!(recording.stack_of(index), Some(&stack(&[*addr])));
            assert_eq!(recording.entry_labels[&index], addr.to_string());
        }
        assert_eq!(
            recording.stacks.len(),
            addresses.len() + 1,
            "those of others are left out"
        );
    }
    assert_eq!(found.len(), 3);
}
