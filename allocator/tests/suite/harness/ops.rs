//! Lists of operations of which every sublist is valid as well: a victim is chosen from the
//! allocations live at that time.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::StreamId;
use proptest::prelude::*;
use proptest::strategy::Union;

/// One operation on an allocator or its device.
#[derive(Clone, Debug)]
pub enum TestOp {
    Malloc {
        bytes: u64,
        stream: StreamId,
    },
    /// Frees the live allocation at index `victim`, modulo their number.
    Free {
        victim: usize,
    },
    RecordStream {
        victim: usize,
        stream: StreamId,
    },
    EmptyCache,
    /// Requests are served from a private pool, unless one serves them already.
    EnterPool {
        pool: MempoolId,
    },
    /// Requests are no longer served from a private pool.
    LeavePool,
    /// A private pool that serves no requests loses all its users.
    ReleasePool {
        pool: MempoolId,
    },
    /// Takes a checkpoint of a private pool.
    Checkpoint {
        pool: MempoolId,
    },
    /// Restores the checkpoint at index `victim`, modulo their number, while no private pool serves requests.
    Restore {
        victim: usize,
    },
    CompleteEvents {
        stream: StreamId,
        count: u64,
    },
    /// One driver call fails, after `after` that succeed.
    FailCall {
        after: u64,
        memory: bool,
    },
    /// One more driver call fails, after the one that was to fail and `after` that succeed.
    FailAgain {
        after: u64,
        memory: bool,
    },
    /// Every driver call fails, after `after` that succeed, until an operation has failed.
    BreakDevice {
        after: u64,
    },
    /// Limits the memory that may be reserved, if the allocator has such a limit.
    Limit {
        bytes: Option<u64>,
    },
    /// The next requests for memory fail.
    RefuseMemory {
        count: u64,
    },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Sizes at and around the limits of the policies, and all magnitudes.
fn bytes() -> impl Strategy<Value = u64> {
    let edge = prop::sample::select(vec![
        1,
        512,
        KIB,
        MIB,
        2 * MIB,
        10 * MIB,
        19 * MIB,
        20 * MIB,
        40 * MIB,
        64 * MIB,
        84 * MIB,
    ]);
    let near = (edge, -513_i64..=513).prop_map(|(edge, by)| edge.saturating_add_signed(by).max(1));
    let wide = (0_u32..27, any::<u64>()).prop_map(|(log, low)| (1 << log) + low % (1 << log));
    prop_oneof![3 => near, 4 => wide, 1 => Just(0)]
}

fn stream() -> impl Strategy<Value = StreamId> {
    prop_oneof![5 => Just(0), 3 => Just(1), 1 => Just(2)].prop_map(StreamId::nth)
}

fn operation(failures: bool) -> Union<BoxedStrategy<TestOp>> {
    let victim = || any::<usize>();
    let mut choices = vec![
        (
            40,
            (bytes(), stream())
                .prop_map(|(bytes, stream)| TestOp::Malloc { bytes, stream })
                .boxed(),
        ),
        (
            32,
            victim().prop_map(|victim| TestOp::Free { victim }).boxed(),
        ),
        (
            8,
            (victim(), stream())
                .prop_map(|(victim, stream)| TestOp::RecordStream { victim, stream })
                .boxed(),
        ),
        (1, Just(TestOp::EmptyCache).boxed()),
        (
            6,
            (stream(), 1_u64..4)
                .prop_map(|(stream, count)| TestOp::CompleteEvents { stream, count })
                .boxed(),
        ),
    ];
    if failures {
        choices.push((
            5,
            (0_u64..8, any::<bool>())
                .prop_map(|(after, memory)| TestOp::FailCall { after, memory })
                .boxed(),
        ));
        choices.push((
            3,
            (0_u64..8)
                .prop_map(|after| TestOp::BreakDevice { after })
                .boxed(),
        ));
        choices.push((
            2,
            (1_u64..4)
                .prop_map(|count| TestOp::RefuseMemory { count })
                .boxed(),
        ));
    }
    Union::new_weighted(choices)
}

/// Operations on a device that works.
pub fn peaceful() -> impl Strategy<Value = Vec<TestOp>> {
    prop::collection::vec(operation(false), 1..240)
}

/// Operations on a device that fails now and then.
pub fn with_failures() -> impl Strategy<Value = Vec<TestOp>> {
    prop::collection::vec(operation(true), 1..240)
}

/// Operations of every kind on a device that fails now and then, with private pools or without.
pub fn of_all_kinds(pools: bool) -> impl Strategy<Value = Vec<TestOp>> {
    let limit = prop::option::of(0_u64..512 << 20).prop_map(|bytes| TestOp::Limit { bytes });
    let programs = if pools {
        with_pools(true).boxed()
    } else {
        with_failures().boxed()
    };
    let limits = prop::collection::vec((any::<usize>(), limit), 0..4);
    (programs, limits).prop_map(|(mut ops, limits)| {
        for (place, limit) in limits {
            ops.insert(place % (ops.len() + 1), limit);
        }
        ops
    })
}

/// Two pools of graphs, and one of the user.
pub const POOLS: [MempoolId; 3] = [MempoolId(1, 0), MempoolId(2, 0), MempoolId(0, 1)];

fn pool() -> impl Strategy<Value = MempoolId> {
    prop::sample::select(POOLS.to_vec())
}

/// Operations with private pools. The device may fail now and then.
pub fn with_pools(failures: bool) -> impl Strategy<Value = Vec<TestOp>> {
    let call = prop_oneof![
        3 => pool().prop_map(|pool| TestOp::EnterPool { pool }),
        2 => Just(TestOp::LeavePool),
        1 => pool().prop_map(|pool| TestOp::ReleasePool { pool }),
        2 => pool().prop_map(|pool| TestOp::Checkpoint { pool }),
        2 => any::<usize>().prop_map(|victim| TestOp::Restore { victim }),
    ];
    let operation = prop_oneof![5 => operation(failures), 1 => call];
    prop::collection::vec(operation, 1..240)
}
