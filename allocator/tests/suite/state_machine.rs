//! The interface of the reference as a state machine: valid and invalid calls in every order, with
//! settings changed at run time and private pools begun, ended and released. A model that knows only
//! the users of each pool predicts which calls fail; all others must leave a consistent state.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::MempoolId;
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::pytorch::checkpoint::{PoolCheckpoint, RestoredPool};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::BlockInfo;
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use crate::harness::shadow::Shadow;
use crate::harness::{self, validator};

const MIB: u64 = 1 << 20;

/// Settings strings applied at run time. Some lead into PyTorch's hazards.
const SETTINGS: [&str; 7] = [
    "expandable_segments:True",
    "expandable_segments:False",
    "max_split_size_mb:40",
    "max_split_size_mb:40,expandable_segments:True",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.3",
    "large_segment_size_mb:32",
];

#[derive(Clone, Debug)]
enum Call {
    Malloc { bytes: u64, stream: u32 },
    Free(usize),
    FreeTwice(usize),
    RecordStream(usize, u32),
    EmptyCache,
    EmptyPool(u64),
    Begin(u64),
    End(u64),
    Release(u64),
    UseOnOom(u64, bool),
    NoSplit(u64),
    Apply(usize),
    Fraction(f64),
    CompleteEvents(u32),
    Save(u64),
    Restore(usize),
}

impl Call {
    /// Whether the state of a pool may forbid the call. A malloc may borrow from a pool.
    fn is_about_pools(&self) -> bool {
        matches!(
            self,
            Self::EmptyPool(_) | Self::Release(_) | Self::Malloc { .. }
        )
    }

    /// Whether it is about checkpoints of pools.
    fn is_about_checkpoints(&self) -> bool {
        matches!(self, Self::Save(_) | Self::Restore(_))
    }
}

/// The state of a private pool, derived from the calls alone.
#[derive(Clone, Copy, Debug, Default)]
struct PoolModel {
    users: u32,
    recording: bool,
}

#[derive(Clone, Debug, Default)]
struct Model {
    pools: BTreeMap<u64, PoolModel>,
}

impl Model {
    fn pool(&self, id: u64) -> PoolModel {
        self.pools.get(&id).copied().unwrap_or_default()
    }

    /// Whether the pool ever had users. Such a pool may be destroyed already, so no call begins it
    /// again.
    fn is_over(&self, id: u64) -> bool {
        self.pools.get(&id).is_some_and(|pool| pool.users == 0)
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Call;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self::default()).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Call> {
        let bytes = prop_oneof![1_u64..4096, MIB - 600..MIB + 600, MIB..60 * MIB];
        let victim = || any::<usize>();
        let pool = || 1_u64..5;
        prop_oneof![
            12 => (bytes, 0_u32..2).prop_map(|(bytes, stream)| Call::Malloc { bytes, stream }),
            9 => victim().prop_map(Call::Free),
            1 => victim().prop_map(Call::FreeTwice),
            2 => (victim(), 0_u32..3).prop_map(|(victim, s)| Call::RecordStream(victim, s)),
            1 => Just(Call::EmptyCache),
            1 => pool().prop_map(Call::EmptyPool),
            2 => pool().prop_map(Call::Begin),
            2 => pool().prop_map(Call::End),
            1 => pool().prop_map(Call::Release),
            1 => (pool(), any::<bool>()).prop_map(|(pool, on)| Call::UseOnOom(pool, on)),
            1 => pool().prop_map(Call::NoSplit),
            1 => (0..SETTINGS.len()).prop_map(Call::Apply),
            1 => prop_oneof![Just(1.0), Just(0.5), Just(1.5)].prop_map(Call::Fraction),
            1 => (0_u32..3).prop_map(Call::CompleteEvents),
            2 => pool().prop_map(Call::Save),
            2 => victim().prop_map(Call::Restore),
        ]
        .boxed()
    }

    fn preconditions(model: &Self, call: &Call) -> bool {
        match *call {
            Call::Begin(id) => !model.is_over(id),
            Call::UseOnOom(id, on) => !on || model.pool(id).users > 0,
            // As in torch.cuda.MemPool, a pool is removed from the list before its last user releases
            // it.
            Call::Release(id) => model.pool(id).users != 1 || !model.pool(id).recording,
            _ => true,
        }
    }

    fn apply(mut model: Self, call: &Call) -> Self {
        match *call {
            Call::Begin(id) => {
                let pool = model.pools.entry(id).or_default();
                pool.users += 1;
                pool.recording = true;
            }
            Call::End(id) => {
                if let Some(pool) = model.pools.get_mut(&id) {
                    pool.recording = false;
                }
            }
            Call::Release(id) => {
                if let Some(pool) = model.pools.get_mut(&id) {
                    pool.users = pool.users.saturating_sub(1);
                }
            }
            _ => {}
        }
        model
    }
}

struct System {
    allocator: PyTorch<SimDevice>,
    shadow: Shadow,
    before: Model,
    /// Streams recorded on live allocations while allocations went to a pool.
    recorded_in_pool: Vec<(DeviceAddr, StreamId)>,
    checkpoints: Vec<PoolCheckpoint>,
}

impl System {
    /// The result that the model expects of a call on pools.
    fn expected(&self, call: &Call) -> Option<Result<(), PoolError>> {
        let before = &self.before;
        Some(match *call {
            Call::Begin(id) if before.pool(id).recording => Err(PoolError::AlreadyRecording),
            Call::Begin(_) => Ok(()),
            Call::End(id) if !before.pool(id).recording => Err(PoolError::NotRecording),
            Call::End(_) => Ok(()),
            Call::Release(id) if before.pool(id).users > 0 => Ok(()),
            _ => return None,
        })
    }

    fn is_recording(&self) -> bool {
        self.before.pools.values().any(|pool| pool.recording)
    }

    /// A free while allocations go to any pool takes the streams recorded during a pool as finished,
    /// as those of a graph capture are. That includes streams recorded again without a pool: the block
    /// does not wait for them.
    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.forget(addr);
        self.allocator.free(addr)
    }

    /// Records a free that is about to happen.
    fn forget(&mut self, addr: DeviceAddr) {
        let is_recording = self.is_recording();
        for (_, stream) in self.recorded_in_pool.extract_if(.., |(at, _)| *at == addr) {
            if is_recording {
                self.shadow.forget_stream(addr, stream);
            }
        }
        self.shadow.free(addr, self.allocator.driver());
    }

    /// The allocations of a pool with their requested bytes and streams.
    fn allocations_in(&self, pool: MempoolId) -> Vec<(DeviceAddr, u64, StreamId)> {
        let segments = self
            .allocator
            .segments()
            .into_iter()
            .filter(|segment| segment.pool == pool);
        segments
            .flat_map(|segment| {
                let blocks = segment.blocks.into_iter().filter(BlockInfo::is_allocated);
                blocks.map(move |b| (b.address, b.requested_size, segment.stream))
            })
            .collect()
    }

    /// Restores a checkpoint, which frees all allocations of the pool. However it ends, the pool then has allocations
    /// that overlap nothing; if it succeeds, they are those of the checkpoint.
    fn restore(&mut self, checkpoint: &PoolCheckpoint) -> Result<(), Error> {
        let pool = checkpoint.pool();
        if !self
            .allocator
            .pool_use_count(pool)
            .is_ok_and(|users| users > 0)
        {
            return self.allocator.restore_pool(checkpoint).map(|_| ());
        }
        let addresses = |allocations: &[(DeviceAddr, u64, StreamId)]| {
            let addresses = allocations.iter().map(|&(addr, ..)| addr);
            addresses.collect::<BTreeSet<_>>()
        };
        let before = self.allocations_in(pool);
        for &(addr, ..) in &before {
            self.forget(addr);
        }
        let restored = self.allocator.restore_pool(checkpoint);
        let after = self.allocations_in(pool);
        for &(addr, bytes, stream) in &after {
            let device = self.allocator.driver();
            self.shadow.malloc(addr, bytes, stream, None, device);
        }
        let RestoredPool { freed, allocated } = restored?;
        let found = freed.into_iter().collect::<BTreeSet<_>>();
        assert_eq!(found, addresses(&before));
        let found = allocated.into_iter().collect::<BTreeSet<_>>();
        assert_eq!(found, addresses(&after));
        let found = checkpoint.allocated().collect::<BTreeSet<_>>();
        assert_eq!(found, addresses(&after));
        let expected = addresses(&after).into_iter().collect();
        assert!(self.allocator.pool_live_allocations_are(pool, &expected)?);
        Ok(())
    }

    fn perform(&mut self, call: &Call) -> Result<(), Error> {
        let is_recording = self.is_recording();
        let allocator = &mut self.allocator;
        let pool = |id: u64| MempoolId(0, id);
        match *call {
            Call::Malloc { bytes, stream } => {
                let stream = StreamId::nth(stream);
                let addr = allocator.malloc(bytes, stream)?;
                self.shadow
                    .malloc(addr, bytes, stream, None, allocator.driver());
                Ok(())
            }
            Call::Free(victim) => match self.shadow.pick(victim) {
                Some(addr) => self.free(addr),
                None => Ok(()),
            },
            Call::FreeTwice(victim) => match self.shadow.pick(victim) {
                Some(addr) => {
                    self.free(addr)?;
                    let twice = self.allocator.free(addr);
                    assert_eq!(twice, Err(Error::InvalidPointer(addr)));
                    Ok(())
                }
                None => Ok(()),
            },
            Call::RecordStream(victim, stream) => match self.shadow.pick(victim) {
                Some(addr) => {
                    let stream = StreamId::nth(stream);
                    self.shadow.record_stream(addr, stream);
                    if is_recording {
                        self.recorded_in_pool.push((addr, stream));
                    }
                    allocator.record_stream(addr, stream)
                }
                None => allocator
                    .record_stream(DeviceAddr(1), StreamId::nth(stream))
                    .or_else(|error| match error {
                        Error::InvalidPointer(DeviceAddr(1)) => Ok(()),
                        other => Err(other),
                    }),
            },
            Call::EmptyCache => allocator.empty_cache(),
            Call::EmptyPool(id) => allocator.empty_pool(pool(id)),
            Call::Begin(id) => {
                // Every pool takes the allocations of one stream.
                let stream = StreamId::nth((id % 2) as u32);
                allocator.begin_allocate_to_pool(pool(id), Box::new(move |s| s == stream))
            }
            Call::End(id) => allocator.end_allocate_to_pool(pool(id)),
            Call::Release(id) => {
                if self.before.pool(id).users <= 1 {
                    allocator.set_use_on_oom(pool(id), false);
                }
                allocator.release_pool(pool(id))
            }
            Call::UseOnOom(id, on) => {
                allocator.set_use_on_oom(pool(id), on);
                Ok(())
            }
            Call::NoSplit(id) => {
                allocator.set_no_split(pool(id));
                Ok(())
            }
            Call::Apply(index) => allocator.apply_settings(SETTINGS[index]),
            Call::Fraction(fraction) => allocator.set_memory_fraction(fraction),
            Call::Save(id) => {
                self.checkpoints.push(allocator.checkpoint_pool(pool(id))?);
                Ok(())
            }
            Call::Restore(which) => {
                let Some(index) = which.checked_rem(self.checkpoints.len()) else {
                    return Ok(());
                };
                let checkpoint = self.checkpoints[index].clone();
                self.restore(&checkpoint)
            }
            Call::CompleteEvents(stream) => {
                let streams = allocator.driver_mut().streams_mut();
                streams.complete(StreamId::nth(stream), 2);
                Ok(())
            }
        }
    }
}

impl StateMachineTest for System {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(model: &Model) -> Self {
        let config = SimConfig {
            hold_events: true,
            ..SimConfig::with_capacity(256 * MIB)
        };
        Self {
            allocator: PyTorch::new(SimDevice::new(&config), Settings::default()),
            shadow: Shadow::default(),
            before: model.clone(),
            recorded_in_pool: Vec::new(),
            checkpoints: Vec::new(),
        }
    }

    fn apply(mut system: Self, after: &Model, call: Call) -> Self {
        let expected = system.expected(&call);
        let outcome = system.perform(&call);
        if let Some(expected) = expected {
            assert_eq!(outcome, expected.map_err(Error::Pool), "{call:?}");
        } else {
            match &outcome {
                Ok(()) => assert!(!matches!(call, Call::Fraction(1.5)), "refused by PyTorch"),
                Err(Error::OutOfMemory(_) | Error::Hazard(_)) => {}
                Err(Error::Checkpoint(_)) => assert!(call.is_about_checkpoints(), "{call:?}"),
                Err(Error::Pool(_)) => assert!(call.is_about_pools(), "{call:?}: {outcome:?}"),
                Err(Error::InvalidFraction(wrong)) => assert_eq!(*wrong, 1.5),
                Err(other) => panic!("{call:?}: {other}"),
            }
        }
        system.before = after.clone();
        system
    }

    fn check_invariants(system: &Self, _: &Model) {
        let allocator = &system.allocator;
        allocator.check().unwrap();
        let segments = allocator.segments();
        validator::validate(&segments, allocator.stats(), system.shadow.live(), 0);
    }

    fn teardown(mut system: Self, model: Model) {
        while let Some(addr) = system.shadow.pick(0) {
            system.free(addr).unwrap();
        }
        let allocator = &mut system.allocator;
        for (&id, pool) in &model.pools {
            let id = MempoolId(0, id);
            allocator.set_use_on_oom(id, false);
            if pool.recording {
                allocator.end_allocate_to_pool(id).unwrap();
            }
            // As in PyTorch, a request that may not borrow from a pool while allocations go to it
            // leaves a user behind, so the pool may have more users than the model knows.
            while allocator.pool_use_count(id).is_ok_and(|users| users > 0) {
                allocator.release_pool(id).unwrap();
            }
        }
        // Hazards may be reported, but the memory is returned.
        while let Err(error) = allocator.empty_cache() {
            assert!(matches!(error, Error::Hazard(_)), "{error}");
        }
        allocator.check().unwrap();
        assert_eq!(allocator.stats().reserved_bytes.all().current, 0);
        assert_eq!(allocator.driver().used(), 0);
        assert!(allocator.driver_mut().last_error().is_ok());
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig::with_cases(4 * harness::cases()))]

    #[test]
    fn calls_in_every_order_leave_a_consistent_state(sequential 1..120 => System);
}
