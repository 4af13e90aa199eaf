use coalesce_alloc::driver::DeviceAddr;

use super::*;
use crate::diagnose::testing::written;

/// A log of allocations: the events of their birth and their end, and their bytes.
fn log(allocations: &[(u64, u64, u64)]) -> Log {
    let mut log = Log::of(&written(|_| {}));
    let allocation = |&(born, freed, bytes): &(u64, u64, u64)| Allocation {
        id: born,
        born,
        freed,
        addr: DeviceAddr(1),
        bytes,
        block: bytes,
        failed: bytes == FAILED,
        ..Allocation::default()
    };
    log.allocations = allocations.iter().map(allocation).collect();
    log
}

/// The bytes of a request that failed.
const FAILED: u64 = 999;

/// The first event, the top and the end of each hump before event 20.
fn found(allocations: &[(u64, u64, u64)]) -> Vec<(u64, u64, u64)> {
    let humps = humps(&log(allocations), 0..20);
    humps
        .iter()
        .map(|hump| (hump.start, hump.top, hump.end))
        .collect()
}

#[test]
fn memory_that_rises_and_falls() {
    let shown = found(&[(0, 5, 100), (1, 4, 100), (2, 3, 100)]);
    assert_eq!(shown, [(0, 2, 20)]);
    let two = [(0, 5, 100), (1, 4, 100), (6, 8, 200), (7, 9, 10)];
    assert_eq!(found(&two), [(0, 1, 5), (6, 7, 20)]);
    assert_eq!(found(&[]), []);
    // The first of several events with most memory.
    assert_eq!(found(&[(0, 2, 60), (1, 6, 40), (3, 5, 60)]), [(0, 1, 20)]);
}

#[test]
fn memory_that_fails_or_stays_does_not_count() {
    let shown = found(&[(0, 4, 100), (1, 20, 500), (2, 3, FAILED), (5, 19, 100)]);
    assert_eq!(shown, [(0, 0, 4), (5, 5, 20)]);
}

/// A hump ends where a tenth is left.
#[test]
fn nearly_all_is_freed() {
    let left = |bytes: u64| found(&[(0, 2, 100 - bytes), (1, 3, bytes), (5, 6, 100)]);
    assert_eq!(left(10), [(0, 1, 2), (3, 5, 20)]);
    assert_eq!(left(11), [(0, 1, 3), (5, 5, 20)]);
}

/// A rise to less than half of the highest belongs to the hump behind it, or else before it.
#[test]
fn small_rises_are_no_humps() {
    assert_eq!(found(&[(0, 1, 50), (2, 3, 100)]), [(0, 0, 1), (2, 2, 20)]);
    assert_eq!(found(&[(0, 1, 49), (2, 3, 100)]), [(0, 2, 20)]);
    assert_eq!(found(&[(2, 3, 100), (5, 6, 49)]), [(2, 2, 20)]);
}

#[test]
fn roles_before_within_and_after_the_steps() {
    use Role::{Backward, Optimizer, Rise, Unknown};
    let log = log(&[
        (0, 5, 100),
        (1, 4, 100),
        (2, 6, 10),
        (3, 6, 10),
        (10, 11, 7),
        (11, 13, 100),
        (12, 13, 1),
        (14, 40, 1),
        (20, 21, 5),
        (30, 31, 5),
    ]);
    let roles = roles(&log, &[10..12, 20..21]);
    let expected = [
        // Memory is highest at the fourth request.
        Rise, Rise, Rise, Rise, Optimizer, Optimizer, Rise, Backward, Optimizer, Unknown,
    ];
    assert_eq!(roles, expected);
}
