use coalesce_alloc::driver::GRANULARITY;
use coalesce_alloc::driver::{DeviceAddr, MemoryHandle, StreamId};

use super::extents::Content;
use super::*;

const BYTES: u64 = 4096;
const BLOCK: u64 = GRANULARITY;
const COUNTER: u64 = 2 * GRANULARITY;

fn stream(k: u32) -> StreamOf {
    (0, StreamId::nth(k))
}

fn contents(hold: bool) -> Contents {
    let mut contents = Contents::new(hold);
    for addr in [BLOCK, COUNTER] {
        let (bytes, addr) = (BYTES, DeviceAddr(addr));
        contents.follow(0, &Call::Malloc { bytes, addr });
    }
    contents
}

fn fill(seed: u64) -> Work {
    Work::Fill {
        addr: BLOCK,
        bytes: BYTES,
        content: Content::Words { seed, skipped: 0 },
    }
}

fn check(seed: u64) -> Work {
    Work::Check {
        addr: BLOCK,
        words: BYTES / 8,
        seed,
        mismatches: COUNTER,
    }
}

fn counted(contents: &mut Contents) -> u64 {
    let bytes = contents.read(stream(9), COUNTER, 8).unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn work_is_done_at_once_unless_events_are_held() {
    let mut contents = contents(false);
    contents.submit(stream(1), fill(1));
    contents.submit(stream(2), check(1));
    assert_eq!(counted(&mut contents), 0);
    contents.submit(stream(2), check(2));
    assert_eq!(counted(&mut contents), BYTES / 8);
}

#[test]
fn memory_reused_before_its_last_user_finishes_is_overwritten() {
    let mut contents = contents(true);
    contents.submit(stream(1), fill(1));
    contents.submit(stream(2), fill(2));
    contents.finish(stream(2));
    contents.finish(stream(1));
    contents.submit(stream(2), check(2));
    contents.finish(stream(2));
    assert_eq!(counted(&mut contents), BYTES / 8);
}

#[test]
fn a_stream_that_proceeds_advances_the_streams_it_waits_for() {
    let mut contents = contents(true);
    contents.submit(stream(1), fill(1));
    contents.follow(
        0,
        &Call::RecordEvent {
            stream: StreamId::nth(1),
        },
    );
    contents.submit(stream(1), fill(7));
    contents.wait(stream(2), stream(1), 1);
    contents.submit(stream(2), check(1));
    contents.finish(stream(2));
    assert_eq!(counted(&mut contents), 0);
    assert!(contents.has_work(stream(1)), "what came after the event");
    contents.finish_device(0);
    contents.submit(stream(2), check(7));
    contents.finish(stream(2));
    assert_eq!(counted(&mut contents), 0);
}

#[test]
fn two_addresses_of_the_same_memory_share_contents() {
    let mut contents = contents(false);
    let handle = MemoryHandle(1);
    let bytes = GRANULARITY;
    contents.follow(0, &Call::Create { bytes, handle });
    for page in [8, 16] {
        let addr = DeviceAddr(page * GRANULARITY);
        contents.follow(
            0,
            &Call::Map {
                addr,
                bytes,
                handle,
            },
        );
    }
    contents.follow(0, &Call::Release { handle });
    let (to, from) = (8 * GRANULARITY, BLOCK);
    contents.submit(stream(1), fill(3));
    contents.submit(
        stream(1),
        Work::Copy {
            to,
            from,
            bytes: 16,
        },
    );
    let read = contents.read(stream(1), 16 * GRANULARITY, 16);
    assert_eq!(read, contents.read(stream(1), BLOCK, 16));
}

#[test]
fn work_on_freed_memory_is_a_fault() {
    let mut contents = contents(true);
    contents.submit(stream(1), fill(1));
    let addr = DeviceAddr(BLOCK);
    contents.follow(0, &Call::Free { addr, bytes: BYTES });
    assert!(!contents.take_fault(0));
    contents.finish(stream(1));
    assert!(contents.take_fault(0));
    assert!(contents.read(stream(1), BLOCK, 1).is_err());
}
