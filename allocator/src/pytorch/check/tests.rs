//! Each broken invariant is found, and named.

use super::super::block::State;
use super::*;
use crate::driver::StreamId;
use crate::driver::sim::{SimConfig, SimDevice};
use crate::mempool::MempoolId;
use crate::settings::Settings;
use crate::stats::PoolKind;

const MIB: u64 = 1 << 20;
const EXPANDABLE: &str = "expandable_segments:True";
const OTHER_STREAM: StreamId = StreamId::nth(1);

type Allocator = PyTorch<SimDevice>;

/// An allocator with allocations of these sizes, which lie side by side in a segment.
fn with<const N: usize>(conf: &str, mib: [u64; N]) -> (Allocator, [BlockId; N]) {
    let config = SimConfig {
        hold_events: true,
        ..SimConfig::with_capacity(1024 * MIB)
    };
    let settings = Settings::from_conf(conf).unwrap();
    let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
    let made = mib.map(|mib| {
        let addr = allocator.malloc(mib * MIB, StreamId::DEFAULT).unwrap();
        let found = allocator.live.get(allocator.blocks.slots(), addr);
        found.unwrap()
    });
    (allocator, made)
}

fn free(allocator: &mut Allocator, id: BlockId) {
    let addr = allocator.blocks[id].addr;
    allocator.free(addr).unwrap();
}

/// Makes a block that is neither allocated nor idle, and waits for nothing.
fn forget(allocator: &mut Allocator, id: BlockId) {
    let addr = allocator.blocks[id].addr;
    allocator.live.remove(allocator.blocks.slots(), addr);
    allocator.blocks[id].state = State::Waiting;
}

/// Frees a block that another stream uses.
fn free_later(allocator: &mut Allocator, id: BlockId) {
    let addr = allocator.blocks[id].addr;
    allocator.record_stream(addr, OTHER_STREAM).unwrap();
    allocator.free(addr).unwrap();
}

/// Moves the boundary between a block and the next one upwards, or downwards.
fn move_end(allocator: &mut Allocator, id: BlockId, bytes: i64) {
    let next = allocator.blocks[id].next.unwrap();
    let block = &mut allocator.blocks[id];
    block.size = block.size.wrapping_add_signed(bytes);
    let end = block.end();
    let next = &mut allocator.blocks[next];
    next.addr = end;
    next.size = next.size.wrapping_add_signed(-bytes);
}

/// Checks that a state without a defect passes, and that the defect is found.
fn assert_found(mut allocator: Allocator, message: &str, corrupt: impl FnOnce(&mut Allocator)) {
    allocator.check().unwrap();
    corrupt(&mut allocator);
    let found = allocator.check().unwrap_err().to_string();
    assert!(found.contains(message), "{found}, not {message}");
}

#[test]
fn blocks_that_are_wrong_in_themselves() {
    type Defect = fn(&mut Block);
    let cases: [(&str, Defect); 4] = [
        ("is empty", |block| block.size = 0),
        ("the size is not a multiple of 512", |block| block.size = 1),
        ("it is not of the kind of its pool", |block| {
            block.kind = PoolKind::Small;
        }),
        ("unmapped outside an expandable segment", |block| {
            block.state = State::Unmapped;
        }),
    ];
    for (message, corrupt) in cases {
        let (allocator, [a, _]) = with("", [3, 3]);
        assert_found(allocator, message, |allocator| {
            corrupt(&mut allocator.blocks[a]);
        });
    }
}

#[test]
fn neighbours_that_do_not_fit() {
    let (allocator, [a, _, c]) = with("", [3, 3, 3]);
    let message = "its previous block does not point back";
    assert_found(allocator, message, |allocator| {
        allocator.blocks[a].prev = Some(c);
    });

    let (allocator, [_, b]) = with("", [3, 3]);
    let message = "its next block does not point back";
    assert_found(allocator, message, |allocator| {
        allocator.blocks[b].prev = None;
    });

    let (allocator, [a, _]) = with("", [3, 3]);
    assert_found(allocator, "gap or overlap before", |allocator| {
        allocator.blocks[a].size += MIN_BLOCK;
    });

    let (allocator, [a, _]) = with("", [3, 3]);
    let message = "its neighbour differs in stream, pool or segment";
    assert_found(allocator, message, |allocator| {
        let large = allocator.large;
        allocator.blocks[a].shelf = allocator.pools.shelf(large, OTHER_STREAM);
    });

    let (allocator, [a, b, _]) = with("", [3, 3, 3]);
    let message = "was not coalesced with its neighbour";
    assert_found(allocator, message, |allocator| {
        for id in [a, b] {
            allocator.blocks[id].state = State::Free;
        }
    });
}

#[test]
fn sets_of_free_blocks_that_are_wrong() {
    for (conf, state) in [("", State::Allocated), (EXPANDABLE, State::Unmapped)] {
        let (mut allocator, [a, _]) = with(conf, [20, 20]);
        free(&mut allocator, a);
        let message = "is in the set of free blocks but is not free";
        assert_found(allocator, message, |allocator| {
            allocator.blocks[a].state = state;
        });
    }

    // The last one that became free is not in the index; the others are.
    for rank in [|other| other, |other| other + 1] {
        let (mut allocator, [a, _, c, _, e, _]) = with("", [3; 6]);
        for id in [a, c, e] {
            free(&mut allocator, id);
        }
        let message = "is not in its place among the free blocks";
        assert_found(allocator, message, |allocator| {
            allocator.blocks[a].rank = rank(allocator.blocks[c].rank);
        });
    }

    let (mut allocator, [a, _]) = with("", [3, 3]);
    free(&mut allocator, a);
    assert_found(allocator, "2 idle blocks, but 1 in pools", |allocator| {
        allocator.pools.remove_block(&allocator.blocks, a);
    });
}

#[test]
fn sets_of_unmapped_ranges_that_are_wrong() {
    // An unmapped range, one in use, and the unmapped rest of the segment.
    let unmapped_before_used = || {
        let (mut allocator, [a, b]) = with(EXPANDABLE, [20, 20]);
        free(&mut allocator, a);
        allocator.empty_cache().unwrap();
        (allocator, [a, b])
    };
    let (allocator, [a, _]) = unmapped_before_used();
    let message = "is in the set of unmapped ranges but is mapped";
    assert_found(allocator, message, |allocator| {
        allocator.blocks[a].state = State::Free;
    });

    let message = "is not in its place among the unmapped ranges";
    let (allocator, [a, b]) = unmapped_before_used();
    assert_found(allocator, message, |allocator| {
        let tail = allocator.blocks[b].next.unwrap();
        let blocks = &mut allocator.blocks;
        let (low, high) = (blocks[a].addr, blocks[tail].addr);
        let (short, long) = (blocks[a].size, blocks[tail].size);
        (blocks[tail].addr, blocks[tail].size) = (low, short);
        (blocks[a].addr, blocks[a].size) = (high, long);
        (blocks[a].prev, blocks[a].next) = (None, None);
        blocks.link(b, Some(tail), Some(a));
        (blocks[tail].prev, blocks[a].next) = (None, None);
    });

    let (allocator, [a, _]) = unmapped_before_used();
    assert_found(allocator, message, |allocator| {
        let block = &allocator.blocks[a];
        let again = allocator.blocks.insert(block.part(block.addr, block.size));
        let (pools, mut blocks) = (&mut allocator.pools, allocator.blocks.slots_mut());
        pools.insert_block(&mut blocks, again);
    });
}

#[test]
fn an_address_table_that_is_wrong() {
    let (allocator, [a, _]) = with("", [3, 3]);
    let message = "is in the address table but its block is not allocated";
    assert_found(allocator, message, |allocator| {
        allocator.blocks[a].state = State::Waiting;
    });
    let (allocator, [a, _]) = with("", [3, 3]);
    let message = "2 allocated blocks, but 1 live addresses";
    assert_found(allocator, message, |allocator| {
        let addr = allocator.blocks[a].addr;
        allocator.live.remove(allocator.blocks.slots(), addr);
    });
}

#[test]
fn events_that_are_wrong() {
    let (mut allocator, [a, _]) = with("", [3, 3]);
    free_later(&mut allocator, a);
    let message = "counts 0 events but waits for 1";
    assert_found(allocator, message, |allocator| {
        allocator.blocks[a].uses = None;
    });

    let (allocator, [a]) = with("", [3]);
    let message = "is wrongly deferred or not deferred";
    assert_found(allocator, message, |allocator| {
        allocator.events.defer(a, Vec::new());
    });
    let (allocator, [a]) = with("", [3]);
    assert_found(allocator, message, |allocator| {
        allocator.note_stream(a, OTHER_STREAM);
        forget(allocator, a);
    });

    // It is its whole segment, so that no neighbour tells that it is gone.
    let (mut allocator, [a]) = with("", [30]);
    free_later(&mut allocator, a);
    let message = "an event refers to a removed block";
    assert_found(allocator, message, |allocator| allocator.blocks.remove(a));
}

#[test]
fn expandable_segments_that_are_wrong() {
    let (allocator, [a]) = with(EXPANDABLE, [20]);
    let message = "the blocks do not cover the addresses from";
    assert_found(allocator, message, |allocator| {
        let tail = allocator.blocks[a].next.take().unwrap();
        allocator.pools.remove_block(&allocator.blocks, tail);
        allocator.blocks.remove(tail);
    });

    let (allocator, [a]) = with(EXPANDABLE, [20]);
    assert_found(allocator, "blocks and pages from", |allocator| {
        move_end(allocator, a, 20 * MIB as i64);
    });

    // Two unmapped ranges start with a page and end in a page.
    let (mut allocator, [a, b, c, d]) = with(EXPANDABLE, [20; 4]);
    for id in [a, c] {
        free(&mut allocator, id);
    }
    allocator.empty_cache().unwrap();
    let message = "does not consist of whole pages";
    assert_found(allocator, message, |allocator| {
        for id in [b, d] {
            forget(allocator, id);
        }
        move_end(allocator, a, 512);
        move_end(allocator, c, -512);
    });
}

#[test]
fn statistics_that_are_wrong() {
    let (allocator, _) = with("", [3]);
    let message = "allocation (all) is counted as 2 but is 1";
    assert_found(allocator, message, |allocator| {
        allocator.stats.allocation.increase(PoolKind::Large, 1);
    });

    let (allocator, _) = with("", [30]);
    let message = "31457280 bytes are reserved, but 512 are counted";
    assert_found(allocator, message, |allocator| allocator.reserved = 512);

    let (mut allocator, _) = with("", [3]);
    let pool = MempoolId(1, 0);
    let begun = allocator.begin_allocate_to_pool(pool, Box::new(|_| true));
    begun.unwrap();
    allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap();
    let message = "a private pool reserves 31457280 bytes but counts 512";
    assert_found(allocator, message, |allocator| {
        allocator.private_pools.get_mut(pool).unwrap().reserved = 512;
    });
}
