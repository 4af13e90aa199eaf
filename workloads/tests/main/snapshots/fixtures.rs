//! Small snapshots in every form, written by scripts/conformance/snapshots.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::Action;
use coalesce_alloc::snapshot::BlockState;
use coalesce_alloc::stats::PoolKind;
use coalesce_workloads::formats::snapshot::{Recording, StackId, read};

use crate::common::fixtures;

const MIB: u64 = 1 << 20;
const HIGH: DeviceAddr = DeviceAddr(0xffff_8000_0000_0000);

fn fixture(name: &str) -> Vec<Recording> {
    read(fixtures().join(name)).unwrap()
}

#[test]
fn a_snapshot_is_read_completely() {
    let recordings = fixture("protocol-4.pickle");
    // The third device has neither entries nor segments.
    let [first, second] = &recordings[..] else {
        panic!("{} devices", recordings.len());
    };
    assert_eq!((first.device, second.device), (0, 1));
    assert_eq!(first.conf.as_deref(), Some("max_split_size_mb:64"));
    assert_eq!(second.conf, first.conf);

    let kinds: Vec<_> = first.entries.iter().map(|entry| entry.action).collect();
    let expected = [
        Action::SegmentAlloc,
        Action::Alloc,
        Action::Alloc,
        Action::FreeRequested,
        Action::SegmentAlloc,
        Action::Alloc,
        Action::Snapshot,
        Action::Oom,
    ];
    assert_eq!(kinds, expected);
    let request = first.entries[1];
    assert_eq!(
        (request.addr, request.size),
        (DeviceAddr(2 << 40), 3 * MIB - 7)
    );
    assert_eq!(request.time_us, 1_700_000_000_000_002);
    assert_eq!(first.entries[5].stream, StreamId(94_000_000_000_000));
    let oom = first.entries[7];
    assert_eq!((oom.addr, oom.size), (DeviceAddr(77 * MIB), 80 << 30));

    let states: Vec<_> = first.segments[0].blocks.iter().map(|b| b.state).collect();
    let expected = [
        BlockState::ActiveAllocated,
        BlockState::ActivePendingFree,
        BlockState::Inactive,
    ];
    assert_eq!(states, expected);
    assert_eq!(first.segments[0].blocks[2].requested_size, 12345);
    assert_eq!(first.segments[1].pool, MempoolId(0, 3));
    assert_eq!(first.segments[1].kind, PoolKind::Small);
    assert_eq!(second.segments[0].address, HIGH);
    assert!(second.segments[0].is_expandable);

    assert_eq!(first.annotations.len(), 2);
    assert!(first.annotations[0].is_start && !first.annotations[1].is_start);
    assert_eq!(second.annotations, []);
    assert_eq!(first.remarks, [""; 0]);
}

#[test]
fn equal_stacks_are_stored_once() {
    let [first, second] = &fixture("protocol-4.pickle")[..] else {
        panic!("two devices");
    };
    assert_eq!(
        first.stacks.len(),
        3,
        "the empty, the short and the long one"
    );
    let names = |recording: &Recording, entry: usize| -> Vec<String> {
        let stack = recording.stack_of(entry).unwrap();
        stack
            .frames
            .iter()
            .map(|frame| frame.name.clone())
            .collect()
    };
    assert_eq!(names(first, 1), ["forward", "<module>"]);
    assert_eq!(names(first, 2), ["at::empty", "forward", "<module>"]);
    assert_eq!(first.entry_stacks[1], first.entry_stacks[3]);
    assert_eq!(first.entry_stacks[5], StackId::default());
    assert_eq!(names(second, 0), names(first, 2));
    let native = &first.stack_of(2).unwrap().frames[0];
    assert_eq!(native.line, u64::MAX);
    assert_eq!(
        first.stack_of(2).unwrap().frames[1].filename,
        "/app/modèle.py"
    );
    let of_block = first.block_stacks[&DeviceAddr(2 << 40)];
    assert_eq!(of_block, first.entry_stacks[1]);
}

#[test]
fn all_pickle_protocols_are_equal() {
    let expected = fixture("protocol-4.pickle");
    assert_eq!(fixture("protocol-2.pickle"), expected);
    assert_eq!(fixture("protocol-5.pickle"), expected);
}

#[test]
fn missing_fields_of_earlier_versions_are_remarked() {
    let recordings = fixture("earlier.pickle");
    let [now, _] = &fixture("protocol-4.pickle")[..] else {
        panic!("two devices");
    };
    let first = &recordings[0];
    assert_eq!(first.remarks, ["entries without a time: 8"]);
    assert_eq!(first.stacks, now.stacks);
    assert_eq!(first.block_stacks, now.block_stacks);
    assert!(first.entries.iter().all(|entry| entry.time_us == 0));
    let mut blocks = now.segments[0].blocks.clone();
    // Earlier versions omit the requested size of free blocks.
    blocks[2].requested_size = 0;
    assert_eq!(first.segments[0].blocks, blocks);
    assert_eq!(first.segments[1].pool, MempoolId::DEFAULT);
}

#[test]
fn additional_fields_of_later_versions_are_read() {
    let recordings = fixture("later.pickle");
    let [now, _] = &fixture("protocol-4.pickle")[..] else {
        panic!("two devices");
    };
    let first = &recordings[0];
    assert_eq!(first.entries, now.entries);
    let mut pools = [MempoolId::DEFAULT; 8];
    pools[4..6].fill(MempoolId(0, 3));
    assert_eq!(first.entry_pools, pools);
    let [unknown, overflowed] = &first.remarks[..] else {
        panic!("{:?}", first.remarks);
    };
    assert_eq!(
        unknown,
        "entries of the unknown action 'defragment', skipped: 1"
    );
    assert!(overflowed.contains("beginning is lost"), "{overflowed}");
    assert_eq!(now.entry_pools, []);
}

/// PyTorch has two writers. The second snapshot has an entry for the first snapshot.
#[test]
fn python_and_cpp_snapshots_are_equal() {
    let [python] = &fixture("torch-python.pickle")[..] else {
        panic!("one device");
    };
    let [cpp] = &mut fixture("torch-cpp.pickle")[..] else {
        panic!("one device");
    };
    assert_eq!(
        cpp.entries.pop().map(|entry| entry.action),
        Some(Action::Snapshot)
    );
    cpp.entry_stacks.pop();
    assert_eq!(cpp, python);
    assert_eq!(
        python.entries.last().map(|entry| entry.action),
        Some(Action::Oom)
    );
    let innermost = &python.stack_of(1).unwrap().frames[0];
    assert_eq!(
        (&*innermost.name, &*innermost.filename),
        ("layer", "train.py")
    );
}
