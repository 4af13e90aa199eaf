//! Memory that rises and falls, as text: `cases/shapes.txt`.

use coalesce_alloc::driver::DeviceAddr;
use coalesce_workloads::cases;

use super::*;
use crate::diagnose::testing::written;

/// A log of allocations, each in the words `0-5 100`: the events of its birth and its end, and its bytes, or `fails`.
fn log(allocations: &str) -> Log {
    let mut log = Log::of(&written(|_| {}));
    let allocation = |text: &str| {
        let (events, bytes) = text.split_once(' ').expect("events and bytes");
        let Range { start, end } = range(events);
        let bytes = bytes.parse().ok();
        Allocation {
            id: start,
            born: start,
            freed: end,
            addr: DeviceAddr(1),
            bytes: bytes.unwrap_or(999),
            block: bytes.unwrap_or(999),
            failed: bytes.is_none(),
            ..Allocation::default()
        }
    };
    let allocations = allocations.split(", ").filter(|text| !text.is_empty());
    log.allocations = allocations.map(allocation).collect();
    log
}

/// Reads `10-12`.
fn range(text: &str) -> Range<u64> {
    let (start, end) = text.split_once('-').expect("two events");
    let [start, end] = [start, end].map(|event| event.parse().expect("an event"));
    start..end
}

/// The first event, the top and the end of each hump before event 20, or the roles if there are steps of an optimizer.
#[test]
fn memory_that_rises_and_falls() {
    cases::check("src/holders/cases/shapes.txt", |case| {
        let (allocations, updates) = case.split_once("; steps ").unwrap_or((case, ""));
        let log = log(allocations.trim_start_matches("nothing"));
        if !updates.is_empty() {
            let updates: Vec<Range<u64>> = updates.split(' ').map(range).collect();
            return format!("{:?}", roles(&log, &updates));
        }
        let humps = humps(&log, 0..20);
        let humps = humps.iter().map(|hump| (hump.start, hump.top, hump.end));
        format!("{:?}", humps.collect::<Vec<_>>())
    });
}
