//! Recordings of programs whose private pools are gone when the snapshot is written: graphs captured with
//! `torch.cuda.graph` that were deleted, and freed `MemPool`s.

use std::path::Path;

use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::{Error, PoolError};
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::release::v2;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::stats::DeviceStats;
use coalesce_alloc::{Allocator, MempoolId, PoolCall};
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::verify::{Known, Verdict, verify};
use coalesce_workloads::formats::snapshot::workload::RecordedWorkload;
use coalesce_workloads::formats::snapshot::{Recording, read};
use coalesce_workloads::op::{Answer, Op, Workload};
use coalesce_workloads::replay::replay;

const POOL: MempoolId = MempoolId(0, 7);

struct Program {
    allocator: PyTorch<SimDevice>,
    rng: Rng,
    /// The pool of each entry, as PyTorch 2.12 records them.
    pools: Vec<MempoolId>,
}

impl Program {
    fn new(seed: u64) -> Self {
        let settings = Settings::from_conf("").unwrap();
        let config = SimConfig {
            addresses: AddressPolicy::FirstFit,
            ..SimConfig::with_capacity(64 << 30)
        };
        let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
        allocator.record_history(Some(HistoryOptions::default()));
        Self {
            allocator,
            rng: Rng::new(seed),
            pools: Vec::new(),
        }
    }

    /// Notes the pool of the new entries.
    fn note(&mut self, pool: MempoolId) {
        self.pools.resize(self.allocator.history().count(), pool);
    }

    /// Allocates and frees at random; returns the blocks that stay live.
    fn work(&mut self, requests: u64, pool: MempoolId) -> Vec<DeviceAddr> {
        let mut live = Vec::new();
        for _ in 0..requests {
            let bytes = self.rng.log_uniform(512, 30 << 20);
            live.push(self.allocator.malloc(bytes, StreamId::DEFAULT).unwrap());
            if self.rng.happens(1, 2) {
                let index = self.rng.below(live.len() as u64) as usize;
                self.allocator.free(live.swap_remove(index)).unwrap();
            }
        }
        self.note(pool);
        live
    }

    fn free(&mut self, blocks: Vec<DeviceAddr>, pool: MempoolId) {
        for addr in blocks {
            self.allocator.free(addr).unwrap();
        }
        self.note(pool);
    }

    fn work_in_pool(&mut self, requests: u64) -> Vec<DeviceAddr> {
        let all = Box::new(|_| true);
        self.allocator.begin_allocate_to_pool(POOL, all).unwrap();
        let live = self.work(requests, POOL);
        self.allocator.end_allocate_to_pool(POOL).unwrap();
        live
    }

    fn recording(&self) -> Recording {
        Recording {
            conf: Some(String::new()),
            entries: self.allocator.history().copied().collect(),
            segments: self.allocator.segments(),
            ..Recording::default()
        }
    }
}

/// A program that captures a graph or uses a pool between its other work, and releases it.
fn program(seed: u64, is_graph: bool) -> Program {
    let mut program = Program::new(seed);
    let kept = program.work(60, MempoolId::DEFAULT);
    let in_pool = program.work_in_pool(20);
    let more = program.work(60, MempoolId::DEFAULT);
    program.free(in_pool, POOL);
    let allocator = &mut program.allocator;
    allocator.release_pool(POOL).unwrap();
    if is_graph {
        allocator.empty_cache().unwrap();
        // The pool is emptied last; the test of recorded pools does not use graphs.
        program.note(MempoolId::DEFAULT);
    } else {
        allocator.empty_pool(POOL).unwrap();
        program.note(POOL);
    }
    program.free(more, MempoolId::DEFAULT);
    program.work(60, MempoolId::DEFAULT);
    program.free(kept, MempoolId::DEFAULT);
    program
}

#[test]
fn released_pools_are_found_by_trial() {
    for is_graph in [true, false] {
        for seed in 0..12 {
            let verdict = verify(&program(seed, is_graph).recording(), Known::default()).unwrap();
            let what = format!("seed {seed}, graph: {is_graph}: {verdict:#?}");
            assert_eq!(verdict.verdict(), Verdict::Exact, "{what}");
            assert_eq!(verdict.exact, verdict.allocations, "{what}");
            let mut remarks = verdict.remarks.iter();
            let is_told = remarks.any(|remark| remark.contains("found by trial: 1, with"));
            assert!(is_told, "{what}");
        }
    }
}

#[test]
fn recorded_pools_need_no_trial() {
    for seed in 0..12 {
        let program = program(seed, false);
        let recording = Recording {
            entry_pools: program.pools.clone(),
            ..program.recording()
        };
        let verdict = verify(&recording, Known::default()).unwrap();
        let found = verdict.verdict();
        assert_eq!(found, Verdict::Exact, "seed {seed}: {verdict:#?}");
        assert!(verdict.remarks.is_empty(), "{:?}", verdict.remarks);
    }
}

/// A segment at the end may lie where an earlier segment of another pool lay.
#[test]
fn a_pool_at_the_end_does_not_own_what_lay_there_before() {
    let mut program = Program::new(1);
    let before = program.work(40, MempoolId::DEFAULT);
    program.free(before, MempoolId::DEFAULT);
    program.allocator.empty_cache().unwrap();
    program.work_in_pool(40);
    program.work(40, MempoolId::DEFAULT);
    let recording = program.recording();
    let returned = recording
        .entries
        .iter()
        .filter(|e| e.action.returns_memory());
    let is_reused = returned.clone().any(|entry| {
        let mut segments = recording.segments.iter();
        segments.any(|it| it.pool == POOL && it.address == entry.addr)
    });
    assert!(is_reused, "the simulated device reuses addresses");
    let verdict = verify(&recording, Known::default()).unwrap();
    assert_eq!(verdict.verdict(), Verdict::Exact, "{verdict:#?}");
    let mut remarks = verdict.remarks.iter();
    let is_guessed = remarks.any(|remark| remark.contains("found by trial"));
    assert!(!is_guessed, "{:?}", verdict.remarks);
}

/// A second, contradictory difference keeps the trial from ending exact.
#[test]
fn a_pool_that_cannot_be_found_is_named_as_the_likely_cause() {
    let mut recording = program(0, true).recording();
    let last = recording.segments.iter_mut().flat_map(|it| &mut it.blocks);
    let in_use = last.filter(|block| block.is_active()).last().unwrap();
    in_use.state = coalesce_alloc::snapshot::BlockState::ActivePendingFree;
    let mut entries = recording.entries.clone();
    let index = entries
        .iter()
        .rposition(|entry| entry.size > 1 << 20)
        .unwrap();
    entries[index].stream = StreamId::nth(1);
    recording.entries = entries;
    let difference = verify(&recording, Known::default()).unwrap().difference;
    let reason = difference.unwrap().reason;
    let is_told =
        reason.contains("this looks like memory of a private pool (torch.cuda.graph or MemPool)");
    assert!(is_told, "{reason}");
}

/// The statistics, but for those by the ids of pools.
fn figures(allocator: &PyTorch<SimDevice>) -> DeviceStats {
    DeviceStats {
        reserved_bytes_by_private_pools: Default::default(),
        ..allocator.stats().clone()
    }
}

/// The calls about private pools of a workload.
fn pool_calls(workload: &RecordedWorkload) -> Vec<PoolCall> {
    let mut calls = Vec::new();
    let mut note = |op: Op<'_>| {
        if let Op::Pool(call) = op {
            calls.push(call);
        }
        Ok(Answer::Done)
    };
    workload.emit(&mut note).unwrap();
    calls
}

#[test]
fn replays_direct_requests_to_recorded_pools_and_to_those_found_by_trial() {
    let found = MempoolId(0, 1);
    for (seed, pool) in (0..12).flat_map(|seed| [(seed, POOL), (seed, found)]) {
        let program = program(seed, false);
        let recorded = [Vec::new(), program.pools.clone()];
        let recording = Recording {
            entry_pools: recorded[usize::from(pool == POOL)].clone(),
            ..program.recording()
        };
        let workload = RecordedWorkload::new("pools", &recording).unwrap();
        let expected = [
            PoolCall::Begin,
            PoolCall::End,
            PoolCall::Release,
            PoolCall::Empty,
        ];
        let shown = pool_calls(&workload);
        assert_eq!(shown, expected.map(|call| call(pool)), "seed {seed}");
        let mut replayed = Program::new(seed).allocator;
        replay(&workload, &mut replayed, &mut ()).unwrap();
        assert_eq!(figures(&replayed), figures(&program.allocator), "{seed}");
        assert_eq!(replayed.segments(), program.allocator.segments());
    }
}

/// A program whose memory goes to a pool that is deleted right before `empty_cache`, several times.
fn program_with_several_pools(seed: u64) -> Program {
    let mut program = Program::new(seed);
    let mut kept = Vec::new();
    for _ in 0..4 {
        kept.extend(program.work(40, MempoolId::DEFAULT));
        let in_pool = program.work_in_pool(20);
        let more = program.work(40, MempoolId::DEFAULT);
        program.free(in_pool, POOL);
        program.free(more, MempoolId::DEFAULT);
        program.allocator.release_pool(POOL).unwrap();
        program.allocator.empty_pool(POOL).unwrap();
        program.allocator.empty_cache().unwrap();
    }
    program.free(kept, MempoolId::DEFAULT);
    program
}

#[test]
fn pools_deleted_right_before_empty_cache_are_found_by_trial() {
    for seed in [1, 3, 4, 5, 10, 11] {
        let program = program_with_several_pools(seed);
        let recording = program.recording();
        let verification = verify(&recording, Known::default()).unwrap();
        assert!(verification.is_exact(), "seed {seed}: {verification:#?}");
        let mut remarks = verification.remarks.iter();
        assert!(remarks.any(|remark| remark.contains("found by trial: 4, with")));

        let workload = RecordedWorkload::new("pools", &recording).unwrap();
        let mut replayed = Program::new(seed).allocator;
        replay(&workload, &mut replayed, &mut ()).unwrap();
        let shown = figures(&replayed);
        assert_eq!(shown, figures(&program.allocator), "seed {seed}");
    }
}

/// A recording of PyTorch 2.11 on an H200: of twelve captured graphs, eight are deleted in another order, some while
/// their results live on, so that `empty_cache` returns the segments of a pool at different times.
#[test]
fn graphs_deleted_in_another_order_are_found_by_trial() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/graphs-deleted.pickle.gz");
    let recording = read(&file).unwrap().remove(0);
    let verification = verify(&recording, Known::default()).unwrap();
    assert!(verification.is_exact(), "{verification:#?}");
    let workload = RecordedWorkload::new("graphs", &recording).unwrap();
    let calls = pool_calls(&workload);
    let count = |is: fn(&PoolCall) -> bool| calls.iter().filter(|call| is(call)).count();
    assert_eq!(count(|call| matches!(call, PoolCall::BeginCapture)), 12);
    assert_eq!(count(|call| matches!(call, PoolCall::EndCapture)), 12);

    let mut replayed = Program::new(0).allocator;
    replay(&workload, &mut replayed, &mut ()).unwrap();
    let mut reserved = 0;
    let after = recording.entries.iter().map(|entry| {
        let taken = u64::from(entry.action.takes_memory()) * entry.size;
        let returned = u64::from(entry.action.returns_memory()) * entry.size;
        reserved = reserved + taken - returned;
        reserved
    });
    let peak = after.max().unwrap();
    let replayed = replayed.stats().reserved_bytes.all();
    assert_eq!(replayed.peak.cast_unsigned(), peak);
}

/// While a graph is captured, nothing is given back, not even for a request that would then fit.
#[test]
fn a_captured_request_fails_where_another_would_be_served() {
    const MIB: u64 = 1 << 20;
    for (is_captured, release) in [(true, 11), (true, 15), (false, 15)] {
        let settings = Settings::of_release(v2(release));
        let device = SimDevice::new(&SimConfig::with_capacity(100 * MIB));
        let mut allocator = PyTorch::new(device, settings);
        let cached = allocator.malloc(60 * MIB, StreamId::DEFAULT).unwrap();
        allocator.free(cached).unwrap();
        if is_captured {
            allocator.pool_call(PoolCall::BeginCapture).unwrap();
        }
        allocator.pool_call(PoolCall::Begin(POOL)).unwrap();
        let placed = allocator.malloc(60 * MIB, StreamId::DEFAULT);
        assert_eq!(placed.is_err(), is_captured, "PyTorch 2.{release}");
        allocator.pool_call(PoolCall::End(POOL)).unwrap();
        if is_captured {
            allocator.empty_cache().unwrap();
            let reserved = allocator.stats().reserved_bytes.all().current;
            assert_eq!(reserved, 60 << 20, "the capture is under way");
            allocator.pool_call(PoolCall::EndCapture).unwrap();
            let ended = allocator.pool_call(PoolCall::EndCapture).unwrap_err();
            assert_eq!(ended, Error::Pool(PoolError::NoCapture));
        }
        allocator.check().unwrap();
    }
}
