//! Checkpoints of private pools, and captures of graphs.

use std::collections::HashSet;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::{CheckpointError, Error, Hazard, PoolError};
use coalesce_alloc::pytorch::checkpoint::{PoolCheckpoint, RestoredPool};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PyTorch};

const MIB: u64 = 1 << 20;
const POOL: MempoolId = MempoolId(4, 0);
const OTHER_STREAM: StreamId = StreamId::nth(1);

type Allocator = PyTorch<SimDevice>;

/// An allocator of a release on a device that uses addresses again and whose events stay pending.
fn allocator(release: &str, conf: &str) -> Allocator {
    let config = SimConfig {
        hold_events: true,
        address_policy: AddressPolicy::FirstFit,
        ..SimConfig::with_capacity(256 * MIB)
    };
    let settings = Settings::of_release(release.parse().unwrap());
    let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
    allocator.apply_settings(conf).unwrap();
    allocator
}

/// Allocates in the pool.
fn in_pool<const N: usize>(allocator: &mut Allocator, sizes: [u64; N]) -> [DeviceAddr; N] {
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    let made = sizes.map(|bytes| allocator.malloc(bytes, StreamId::DEFAULT).unwrap());
    allocator.end_allocate_to_pool(POOL).unwrap();
    made
}

fn sorted(mut addresses: Vec<DeviceAddr>) -> Vec<DeviceAddr> {
    addresses.sort_unstable();
    addresses
}

fn holds_exactly(allocator: &Allocator, expected: &[DeviceAddr]) -> bool {
    let expected: HashSet<DeviceAddr> = expected.iter().copied().collect();
    allocator
        .pool_live_allocations_are(POOL, &expected)
        .unwrap()
}

#[test]
fn a_restored_pool_has_the_blocks_of_the_checkpoint_wherever_they_lie() {
    for conf in ["", "expandable_segments:True"] {
        let mut allocator = allocator("2.11", conf);
        let [a, b, c] = in_pool(&mut allocator, [3 * MIB, 5 * MIB, 700]);
        allocator.free(a).unwrap();
        let saved: PoolCheckpoint = allocator.checkpoint_pool(POOL).unwrap();
        assert_eq!(sorted(saved.allocated().collect()), sorted(vec![b, c]));
        let before = allocator.segments();

        // The pool changes, and gets more memory.
        let [d, e, _] = in_pool(&mut allocator, [2 * MIB, 70 * MIB, 900]);
        allocator.free(b).unwrap();
        assert!(!holds_exactly(&allocator, &[b, c]));

        let RestoredPool { freed, allocated } = allocator.restore_pool(&saved).unwrap();
        assert!([c, d, e].iter().all(|addr| freed.contains(addr)));
        assert_eq!(sorted(allocated), sorted(vec![b, c]));
        assert!(holds_exactly(&allocator, &[b, c]), "{conf}");
        allocator.check().unwrap();
        assert_eq!(allocator.free(d), Err(Error::InvalidPointer(d)));
        // What was reserved then is cut as it was then.
        for (then, now) in before.iter().zip(allocator.segments()) {
            let live = |segment: &coalesce_alloc::snapshot::SegmentInfo| {
                let blocks = segment.blocks.iter();
                let live = blocks.filter(|b| b.state.name() == "active_allocated");
                live.map(|b| (b.address, b.size)).collect::<Vec<_>>()
            };
            assert_eq!(live(then), live(&now), "{conf}");
        }
        for addr in [b, c] {
            allocator.free(addr).unwrap();
        }
        assert!(holds_exactly(&allocator, &[]));
        allocator.check().unwrap();
    }
}

#[test]
fn a_segment_that_grew_is_refused_until_2_10() {
    let mut allocator = allocator("2.10", "expandable_segments:True");
    in_pool(&mut allocator, [3 * MIB]);
    let saved = allocator.checkpoint_pool(POOL).unwrap();
    in_pool(&mut allocator, [70 * MIB]);
    let error = allocator.restore_pool(&saved).unwrap_err();
    let expected = "curr_block->next == nullptr";
    assert_eq!(error, CheckpointError::Changed { expected }.into());
    allocator.check().unwrap();
}

#[test]
fn checkpoints_of_pools_that_are_gone_are_refused() {
    let mut allocator = allocator("2.11", "");
    let unknown = allocator.checkpoint_pool(POOL).unwrap_err();
    assert_eq!(unknown, CheckpointError::NothingToSave.into());
    let [a] = in_pool(&mut allocator, [100]);
    let saved = allocator.checkpoint_pool(POOL).unwrap();
    allocator.release_pool(POOL).unwrap();
    let refused = allocator.restore_pool(&saved);
    assert_eq!(refused, Err(CheckpointError::Released.into()));
    allocator.free(a).unwrap();
    allocator.empty_cache().unwrap();
    let refused = allocator.restore_pool(&saved);
    assert_eq!(refused, Err(CheckpointError::NothingToRestore.into()));
}

#[test]
fn blocks_that_streams_still_use_are_not_handed_out_by_a_restore() {
    let mut allocator = allocator("2.11", "");
    let [a, b, c] = in_pool(&mut allocator, [3 * MIB, 3 * MIB, 20 * MIB]);
    let saved = allocator.checkpoint_pool(POOL).unwrap();

    // In the middle of a segment, PyTorch hands the block out.
    allocator.record_stream(b, OTHER_STREAM).unwrap();
    let error = allocator.restore_pool(&saved).unwrap_err();
    assert_eq!(error, Hazard::RestoreOfUsedBlock { addr: b }.into());
    let waiting = allocator.checkpoint_pool(POOL).unwrap_err();
    assert_eq!(waiting, CheckpointError::WaitingWhenSaved.into());
    allocator.check().unwrap();
    allocator.driver_mut().streams_mut().complete_all();
    let other_pool = allocator.malloc(1, StreamId::DEFAULT).unwrap(); // frees the block
    allocator.restore_pool(&saved).unwrap();
    assert!(holds_exactly(&allocator, &[a, b, c]));

    // At the head of a segment, it does not find the segment.
    allocator.record_stream(c, OTHER_STREAM).unwrap();
    let error = allocator.restore_pool(&saved).unwrap_err();
    assert_eq!(error, CheckpointError::SegmentGone(c).into());
    assert_eq!(error.to_string(), format!(" could not find {c}"));
    allocator.check().unwrap();
    allocator.free(other_pool).unwrap();
}

#[test]
fn deferred_frees_are_processed_before_a_checkpoint() {
    let mut allocator = allocator("2.11", "");
    let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
    begun.unwrap();
    let [a, b] = [0; 2].map(|_| allocator.malloc(3 * MIB, StreamId::DEFAULT).unwrap());
    allocator.record_stream(a, OTHER_STREAM).unwrap();
    allocator.free(a).unwrap();
    allocator.end_allocate_to_pool(POOL).unwrap();
    let saved = allocator.checkpoint_pool(POOL).unwrap();
    assert_eq!(saved.allocated().collect::<Vec<_>>(), [b]);
}

#[test]
fn segments_in_use_are_freed_in_the_order_of_their_addresses() {
    let mut allocator = allocator("2.11", "");
    // Blocks that are gone leave their numbers behind, the last one first.
    let gone = [0; 3].map(|_| allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap());
    for addr in gone {
        allocator.free(addr).unwrap();
    }
    allocator.empty_cache().unwrap();
    let made = in_pool(&mut allocator, [30 * MIB; 3]);
    let saved = allocator.checkpoint_pool(POOL).unwrap();
    let restored = allocator.restore_pool(&saved).unwrap();
    assert_eq!(restored.freed, sorted(made.to_vec()));
    assert_eq!(restored.allocated, restored.freed);
}

/// A pool is gone, and another one has its name and the addresses of its segments.
#[test]
fn a_segment_of_another_size_is_refused() {
    let larger = "(curr_block != nullptr) == ((i + 1) < (segment_len))";
    let smaller = "curr_block->size == block_state.size";
    for (then, now, expected) in [
        (&[30][..], 40, larger),
        (&[30], 20, smaller),
        // Of two blocks.
        (&[30, 12], 40, larger),
        (&[30, 12], 12, larger),
    ] {
        let mut allocator = allocator("2.11", "");
        let mut first = DeviceAddr::NULL;
        for &mib in then {
            [first] = in_pool(&mut allocator, [mib * MIB]);
            allocator.free(first).unwrap();
        }
        let last = *then.last().unwrap();
        assert_eq!(in_pool(&mut allocator, [last * MIB]), [first]);
        let saved = allocator.checkpoint_pool(POOL).unwrap();
        allocator.free(first).unwrap();
        // The users of the pool are those that began to allocate to it.
        for _ in 0..=then.len() {
            allocator.release_pool(POOL).unwrap();
        }
        allocator.empty_cache().unwrap();

        let [again] = in_pool(&mut allocator, [now * MIB]);
        assert_eq!(again, first);
        let error = allocator.restore_pool(&saved).unwrap_err();
        let case = format!("{then:?} then, {now} now");
        assert_eq!(
            error,
            CheckpointError::Changed { expected }.into(),
            "{case}"
        );
        allocator.check().unwrap();
        assert_eq!(allocator.free(again).is_ok(), expected == larger, "{case}");
    }
}

/// Frees an allocation that another stream has used, and allocates again: the same address if the free was
/// neither deferred nor waits.
fn is_reused_at_once(allocator: &mut Allocator) -> bool {
    let addr = allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap();
    allocator.record_stream(addr, OTHER_STREAM).unwrap();
    allocator.free(addr).unwrap();
    allocator.driver_mut().streams_mut().complete_all();
    let next = allocator.malloc(30 * MIB, StreamId::DEFAULT).unwrap();
    allocator.free(next).unwrap();
    next == addr
}

#[test]
fn until_2_12_a_pool_scope_is_a_capture_and_from_2_13_on_only_a_capture_is() {
    for (release, pool_scope, capture) in [("2.12", true, false), ("2.13", false, true)] {
        let mut allocator = allocator(release, "");
        assert!(is_reused_at_once(&mut allocator));
        let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
        begun.unwrap();
        assert_eq!(is_reused_at_once(&mut allocator), !pool_scope, "{release}");
        allocator.end_allocate_to_pool(POOL).unwrap();

        allocator.mark_capture_begin();
        assert!(is_reused_at_once(&mut allocator), "of another stream");
        allocator.driver_mut().set_capturing(true);
        assert_eq!(is_reused_at_once(&mut allocator), !capture, "{release}");
        allocator.mark_capture_end().unwrap();
        assert!(is_reused_at_once(&mut allocator), "not of PyTorch");
        let error = allocator.mark_capture_end().unwrap_err();
        assert_eq!(error, PoolError::NoCapture.into());
        allocator.check().unwrap();
    }
}
