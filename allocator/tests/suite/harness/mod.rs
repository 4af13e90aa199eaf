//! One suite for every policy: the properties that hold whatever an allocator decides.
//!
//! The checks are independent of the code under test: [`shadow`] knows only the requests and the state
//! of the device, [`validator`] compares all blocks with all others. [`ops`] generates the operations.

pub mod foreseen;
pub mod ops;
pub mod recorded;
pub mod releases;
pub mod shadow;
pub mod validator;

use std::collections::BTreeSet;

use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DriverError, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::registry;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator, Checkpoint, MempoolId, PoolCall, PyTorch, RestoredPool};

use self::foreseen::Foreseen;
use self::ops::TestOp;
use self::shadow::{Live, Shadow};

pub type DynAllocator = Box<dyn Allocator<Driver = SimDevice>>;

/// The subject of a test: a policy with settings on a device.
#[derive(Clone, Debug)]
pub struct Subject {
    pub policy: &'static str,
    pub conf: &'static str,
    pub device: SimConfig,
    /// The program announced to an offline policy.
    pub foreseen: Foreseen,
    /// The release that the reference follows, if it is not the newest.
    pub release: Option<Release>,
}

impl Subject {
    pub fn build(&self, ops: &[TestOp]) -> DynAllocator {
        let device = SimDevice::new(&self.device);
        if let Some(release) = self.release {
            let settings = Settings::of_release(release).started_with(self.conf);
            return Box::new(PyTorch::new(device, settings.unwrap()));
        }
        let foresight = self.foreseen.of(ops);
        match registry::plan_offline(self.policy, self.conf, &foresight).unwrap() {
            Some(prepared) => prepared.build(device),
            None => registry::build(self.policy, device, self.conf).unwrap(),
        }
    }

    /// The limit that the settings contain.
    fn limit(&self) -> Option<u64> {
        let settings = Settings::from_conf(self.conf)
            .ok()
            .filter(|_| self.policy == "pytorch")?;
        let fraction = settings.per_process_memory_fraction();
        Some((fraction * self.device.capacity as f64) as u64)
    }

    /// The most bytes it may reserve under a limit: the limit and, with expandable segments, the bytes by which the
    /// last mapping may exceed it.
    fn most_reserved(&self, limit: Option<u64>) -> u64 {
        let capacity = self.device.capacity;
        let Some(limit) = limit else {
            return capacity;
        };
        let settings = Settings::from_conf(self.conf).unwrap();
        let beyond = if settings.expandable_segments() {
            settings.large_segment_size()
        } else {
            0
        };
        capacity.min(limit + beyond)
    }
}

/// An allocator with its shadow.
pub struct Bench {
    subject: Subject,
    pub allocator: DynAllocator,
    pub shadow: Shadow,
    /// The result of each operation, to compare two runs.
    pub decisions: Vec<String>,
    failures_ordered: bool,
    /// The most bytes that may be reserved.
    most_reserved: u64,
    /// The private pool that serves requests.
    pool: Option<MempoolId>,
    /// Checkpoints of pools that still have users, with the allocations that were live.
    checkpoints: Vec<(Checkpoint, Vec<Live>)>,
}

impl Bench {
    pub fn new(subject: &Subject, ops: &[TestOp]) -> Self {
        let mut allocator = subject.build(ops);
        allocator.driver_mut().set_logging(true);
        Self {
            subject: subject.clone(),
            allocator,
            shadow: Shadow::default(),
            decisions: Vec::new(),
            failures_ordered: false,
            most_reserved: subject.most_reserved(subject.limit()),
            pool: None,
            checkpoints: Vec::new(),
        }
    }

    /// Whether the operation is performed. What the reference does in captures and with checkpoints is PyTorch's, not what
    /// this suite demands: streams that a capture used count as finished, for example. Its state machine tests that.
    fn performs(&self, op: &TestOp) -> bool {
        let of_graphs = matches!(op, TestOp::EnterPool { pool } if pool.is_of_graphs());
        let saves = matches!(op, TestOp::Checkpoint { .. } | TestOp::Restore { .. });
        self.subject.policy != "pytorch" || !(of_graphs || saves)
    }

    /// Performs one operation and checks the outcome with the shadow.
    pub fn step(&mut self, op: &TestOp) {
        if !self.performs(op) {
            return;
        }
        let captures = self.pool.is_some_and(MempoolId::is_of_graphs);
        let outcome = self.perform(op);
        let calls = self.allocator.driver_mut().take_log();
        if captures {
            let mut calls = calls.iter();
            let illegal = calls.find(|call| is_illegal_in_captures(call));
            assert_eq!(illegal, None, "during a capture");
        }
        self.shadow.forget_released(calls);
        match &outcome {
            Ok(_) | Err(Error::OutOfMemory(_)) => {}
            Err(Error::Driver(_) | Error::VirtualMemory(_)) => {
                assert!(
                    self.failures_ordered,
                    "the device did not fail: {outcome:?}"
                );
                self.allocator.driver_mut().faults_mut().set_sticky(None);
                self.check();
            }
            Err(Error::Unsupported { .. }) => assert!(
                asks_for_streams(op),
                "a request on the default stream failed: {outcome:?}"
            ),
            Err(other) => panic!("{op:?} failed: {other}"),
        }
        self.decisions.push(format!("{outcome:?}"));
        let reserved = self.allocator.stats().reserved_bytes.all().current as u64;
        assert!(
            reserved <= self.most_reserved,
            "{reserved} bytes reserved, more than allowed"
        );
        assert!(reserved <= self.allocator.driver().used());
        self.shadow.observe_stats(self.allocator.stats());
    }

    fn perform(&mut self, op: &TestOp) -> Result<u64, Error> {
        let allocator = &mut *self.allocator;
        match *op {
            TestOp::Malloc { bytes, stream } => {
                let result = allocator.malloc(bytes, stream);
                if let Ok(addr) = result {
                    // It may lie in memory that was released and allocated again.
                    self.shadow
                        .forget_released(allocator.driver_mut().take_log());
                    let device = allocator.driver();
                    self.shadow.malloc(addr, bytes, stream, self.pool, device);
                }
                result.map(|addr| addr.0)
            }
            TestOp::Free { victim } => {
                let Some(addr) = self.shadow.pick(victim) else {
                    return Ok(0);
                };
                self.shadow.free(addr, allocator.driver());
                allocator.free(addr).map(|()| addr.0)
            }
            TestOp::RecordStream { victim, stream } => {
                let Some(addr) = self.shadow.pick(victim) else {
                    return Ok(0);
                };
                let recorded = allocator.record_stream(addr, stream);
                if recorded.is_ok() {
                    self.shadow.record_stream(addr, stream);
                }
                recorded.map(|()| addr.0)
            }
            TestOp::EmptyCache => allocator.empty_cache().map(|()| 0),
            TestOp::EnterPool { pool } if self.pool.is_none() => {
                match allocator.pool_call(PoolCall::Begin(pool)) {
                    Ok(()) => self.pool = Some(pool),
                    Err(Error::Pool(PoolError::Released(_))) => return Ok(0),
                    Err(error) => return Err(error),
                }
                if pool.is_of_graphs() {
                    allocator.pool_call(PoolCall::BeginCapture)?;
                }
                Ok(0)
            }
            TestOp::LeavePool => self.leave_pool().map(|()| 0),
            TestOp::ReleasePool { pool } if self.pool != Some(pool) => {
                match allocator.pool_call(PoolCall::Release(pool)) {
                    Ok(()) => {
                        self.shadow.release_pool(pool);
                        self.checkpoints.retain(|(taken, _)| taken.pool() != pool);
                    }
                    Err(Error::Pool(PoolError::Unknown(_))) => {}
                    Err(error) => return Err(error),
                }
                Ok(0)
            }
            TestOp::Checkpoint { pool } => {
                let Some(pools) = allocator.private_pools() else {
                    return Ok(0);
                };
                if !pools.pool_use_count(pool).is_ok_and(|users| users > 0) {
                    return Ok(0);
                }
                match pools.checkpoint_pool(pool) {
                    Ok(taken) => self.checkpoints.push((taken, self.shadow.live_in(pool))),
                    // A freed block of the pool waits for other streams.
                    Err(Error::Policy(_)) => {}
                    Err(error) => return Err(error),
                }
                Ok(0)
            }
            TestOp::Restore { victim } if self.pool.is_none() => self.restore(victim),
            TestOp::EnterPool { .. } | TestOp::ReleasePool { .. } | TestOp::Restore { .. } => Ok(0),
            TestOp::CompleteEvents { stream, count } => {
                let streams = allocator.driver_mut().streams_mut();
                streams.complete(stream, count);
                Ok(0)
            }
            TestOp::FailCall { after, memory } => {
                let faults = allocator.driver_mut().faults_mut();
                faults.fail_after(after, injected(memory));
                self.failures_ordered = true;
                Ok(0)
            }
            TestOp::FailAgain { after, memory } => {
                let faults = allocator.driver_mut().faults_mut();
                faults.then_fail_after(after, injected(memory));
                Ok(0)
            }
            TestOp::BreakDevice { after } => {
                let error = DriverError::Failed("broken".to_owned());
                allocator
                    .driver_mut()
                    .faults_mut()
                    .break_after(after, error);
                self.failures_ordered = true;
                Ok(0)
            }
            TestOp::Limit { bytes } => {
                if allocator.set_memory_limit(bytes) {
                    // Memory reserved beyond the limit is kept.
                    let reserved = allocator.stats().reserved_bytes.all().current as u64;
                    self.most_reserved = self.subject.most_reserved(bytes).max(reserved);
                }
                Ok(0)
            }
            TestOp::RefuseMemory { count } => {
                allocator.driver_mut().faults_mut().refuse_next(count);
                Ok(0)
            }
        }
    }

    fn leave_pool(&mut self) -> Result<(), Error> {
        let Some(pool) = self.pool.take() else {
            return Ok(());
        };
        let ended = self.allocator.pool_call(PoolCall::End(pool));
        if pool.is_of_graphs() {
            self.allocator.pool_call(PoolCall::EndCapture)?;
        }
        ended
    }

    fn restore(&mut self, victim: usize) -> Result<u64, Error> {
        let count = self.checkpoints.len();
        let chosen = victim
            .checked_rem(count)
            .map(|index| &self.checkpoints[index]);
        let (Some((taken, live)), Some(pools)) = (chosen, self.allocator.private_pools()) else {
            return Ok(0);
        };
        let RestoredPool { freed, allocated } = pools.restore_pool(taken)?;
        let addresses = |live: &[Live]| live.iter().map(|live| live.addr).collect::<BTreeSet<_>>();
        let before = addresses(&self.shadow.live_in(taken.pool()));
        assert_eq!(freed.into_iter().collect::<BTreeSet<_>>(), before);
        let then = addresses(live);
        assert_eq!(allocated.into_iter().collect::<BTreeSet<_>>(), then);
        let are = pools.pool_live_allocations_are(taken.pool(), &then.into_iter().collect());
        assert_eq!(are, Ok(true));
        let calls = self.allocator.driver_mut().take_log();
        assert!(calls.contains(&Call::SynchronizeDevice));
        self.shadow.forget_released(calls);
        let device = self.allocator.driver();
        self.shadow.restore(taken.pool(), live, device);
        Ok(0)
    }

    /// Checks the whole state with the allocator's own invariants and the naive validator.
    pub fn check(&self) {
        self.allocator.check().unwrap();
        self.shadow.check_private(self.allocator.driver());
        let segments = self.allocator.segments();
        let stats = self.allocator.stats();
        let unmapped = self.allocator.driver().unmapped();
        validator::validate(&segments, stats, self.shadow.live(), unmapped);
    }

    /// Frees everything, completes all streams and empties the cache. Every byte must be returned.
    pub fn tear_down(&mut self) {
        let driver = self.allocator.driver_mut();
        driver.faults_mut().cancel();
        driver.faults_mut().set_sticky(None);
        driver.faults_mut().refuse_next(0);
        self.leave_pool().unwrap();
        for pool in ops::POOLS {
            let released = self.allocator.pool_call(PoolCall::Release(pool));
            let _was_never_used = released.is_err();
            self.shadow.release_pool(pool);
        }
        while let Some(addr) = self.shadow.pick(0) {
            self.shadow.free(addr, self.allocator.driver());
            self.allocator.free(addr).unwrap();
        }
        // The first call frees what a failed free left behind, which may wait for streams again.
        for _ in 0..2 {
            self.allocator.driver_mut().streams_mut().complete_all();
            self.allocator.empty_cache().unwrap();
        }
        let calls = self.allocator.driver_mut().take_log();
        self.shadow.forget_released(calls);
        self.check();
        assert_eq!(self.allocator.stats().reserved_bytes.all().current, 0);
        assert_eq!(self.allocator.driver().used(), 0, "memory left behind");
        if self.subject.policy != "pytorch" {
            let addresses = self.allocator.driver().reserved_addresses();
            assert_eq!(addresses, 0, "addresses left behind");
        }
        assert_eq!(self.allocator.segments(), []);
    }
}

/// The error of a call that is made to fail.
fn injected(memory: bool) -> DriverError {
    if memory {
        DriverError::OutOfMemory
    } else {
        DriverError::Failed("injected".to_owned())
    }
}

/// Whether a call would end the capture of a graph with an error.
fn is_illegal_in_captures(call: &Call) -> bool {
    matches!(
        call,
        Call::RecordEvent { .. }
            | Call::WaitEvent { .. }
            | Call::SynchronizeEvent { .. }
            | Call::SynchronizeStream { .. }
            | Call::SynchronizeDevice
    )
}

/// Whether a policy for one stream may refuse the operation.
fn asks_for_streams(op: &TestOp) -> bool {
    match *op {
        TestOp::Malloc { stream, .. } => stream != StreamId::DEFAULT,
        TestOp::RecordStream { .. } => true,
        _ => false,
    }
}

/// Runs operations and checks the state every 16.
pub fn run(subject: &Subject, ops: &[TestOp]) -> Bench {
    let mut bench = Bench::new(subject, ops);
    for (number, op) in ops.iter().enumerate() {
        bench.step(op);
        if number % 16 == 0 {
            bench.check();
        }
    }
    bench.check();
    bench
}

/// Cases of each property: enough to find the planted faults, few enough for every `cargo test`.
/// `PROPTEST_CASES` overrides it.
pub fn cases() -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(64)
}
