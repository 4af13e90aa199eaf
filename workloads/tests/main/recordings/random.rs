//! Random programs that use everything: several streams and pools, failed requests, limits, snapshots.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{MempoolId, PyTorch};
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::{Annotation, Frame, Recording, Stack, StackId};

use crate::common::MIB;

/// What the programs of a test have in common.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub release: Release,
    pub addresses: AddressPolicy,
    pub conf: &'static str,
    /// Device memory.
    pub memory: u64,
    pub largest: u64,
    pub streams: u32,
    /// Whether there are private pools.
    pub pools: bool,
    /// Whether the program limits its memory on the way.
    pub limits: bool,
    /// Whether the program takes snapshots of itself on the way.
    pub snapshots: bool,
    /// Whether the stacks of entries are recorded.
    pub stacks: bool,
}

pub const PLAIN: Kind = Kind {
    release: Release::DEFAULT,
    addresses: AddressPolicy::FirstFit,
    conf: "",
    memory: 1 << 40,
    largest: 30 * MIB,
    streams: 1,
    pools: false,
    limits: false,
    snapshots: true,
    stacks: true,
};

pub struct Program {
    kind: Kind,
    allocator: PyTorch<SimDevice>,
    pub rng: Rng,
    /// The blocks in use, with their pools.
    live: Vec<(DeviceAddr, MempoolId)>,
    /// The private pools in use.
    pools: Vec<MempoolId>,
    pools_made: u64,
    entry_stacks: Vec<StackId>,
    /// The stack of each entry if `empty_cache` has one of its own.
    callers: Vec<StackId>,
}

impl Program {
    pub fn new(kind: Kind, seed: u64) -> Self {
        let config = SimConfig {
            hold_events: kind.streams > 1,
            addresses: kind.addresses,
            ..SimConfig::with_capacity(kind.memory)
        };
        let settings = Settings::of_release(kind.release)
            .started_with(kind.conf)
            .unwrap();
        let mut allocator = PyTorch::new(SimDevice::new(&config), settings);
        allocator.record_history(Some(HistoryOptions::default()));
        Self {
            kind,
            allocator,
            rng: Rng::new(seed),
            live: Vec::new(),
            pools: Vec::new(),
            pools_made: 0,
            entry_stacks: Vec::new(),
            callers: Vec::new(),
        }
    }

    fn request(&mut self, pool: MempoolId) {
        let bytes = match self.rng.below(4) {
            // The same sizes again and again, so that blocks are reused.
            0 => MIB << self.rng.below(5),
            _ => self.rng.log_uniform(1, self.kind.largest),
        };
        let stream = StreamId::nth(self.rng.below(u64::from(self.kind.streams)) as u32);
        match self.allocator.malloc(bytes, stream) {
            Ok(addr) => self.live.push((addr, pool)),
            Err(Error::OutOfMemory(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn free_any(&mut self) {
        if !self.live.is_empty() {
            let index = self.rng.below(self.live.len() as u64) as usize;
            let (addr, _) = self.live.swap_remove(index);
            if self.kind.streams > 1 && self.rng.happens(1, 4) {
                self.allocator
                    .record_stream(addr, StreamId::nth(2))
                    .unwrap();
            }
            self.allocator.free(addr).unwrap();
        }
    }

    fn work_in_pool(&mut self) {
        let pool = if self.pools.is_empty() || self.rng.happens(1, 2) {
            self.pools_made += 1;
            let pool = MempoolId(0, self.pools_made);
            self.pools.push(pool);
            pool
        } else {
            self.pools[self.rng.below(self.pools.len() as u64) as usize]
        };
        if self.rng.happens(1, 3) {
            self.allocator.empty_cache().unwrap();
        }
        let all = Box::new(|_| true);
        self.allocator.begin_allocate_to_pool(pool, all).unwrap();
        for _ in 0..self.rng.between(1, 8) {
            self.request(pool);
            if self.rng.happens(1, 3) {
                self.free_any();
            }
        }
        self.allocator.end_allocate_to_pool(pool).unwrap();
    }

    fn release_a_pool(&mut self) {
        if self.pools.is_empty() {
            return;
        }
        let index = self.rng.below(self.pools.len() as u64) as usize;
        let pool = self.pools.swap_remove(index);
        let (in_pool, others): (Vec<_>, Vec<_>) =
            self.live.drain(..).partition(|(_, of)| *of == pool);
        self.live = others;
        for (addr, _) in in_pool {
            self.allocator.free(addr).unwrap();
        }
        for _ in 0..self.allocator.pool_use_count(pool).unwrap() {
            self.allocator.release_pool(pool).unwrap();
        }
        if self.rng.happens(1, 2) {
            self.allocator.empty_pool(pool).unwrap()
        } else {
            self.allocator.empty_cache().unwrap()
        }
    }

    fn step(&mut self) -> [StackId; 2] {
        let choice = self.rng.below(100);
        match choice {
            0 => self.allocator.empty_cache().unwrap(),
            1 if self.kind.snapshots => _ = self.allocator.observed_segments(MempoolId::DEFAULT),
            2..5 if self.kind.pools => self.work_in_pool(),
            5..8 if self.kind.pools => self.release_a_pool(),
            8 if self.kind.limits => {
                let reserved = self.allocator.stats().reserved_bytes.all().current;
                let limit = reserved as u64 + self.rng.below(64 * MIB);
                let fraction = limit as f64 / self.kind.memory as f64;
                self.allocator
                    .set_memory_fraction(fraction.min(1.0))
                    .unwrap();
            }
            9..15 if self.kind.streams > 1 => {
                for stream in 0..=self.kind.streams.max(2) {
                    let count = self.rng.below(3);
                    let streams = self.allocator.driver_mut().streams_mut();
                    streams.complete(StreamId::nth(stream), count);
                }
            }
            15..60 => self.request(MempoolId::DEFAULT),
            _ => self.free_any(),
        }
        let any = self.rng.below(STACKS as u64) as u32;
        [any, 1 + u32::from(choice == 0)].map(StackId)
    }

    pub fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            let [stack, caller] = self.step();
            let entries = self.allocator.history().count();
            self.entry_stacks.resize(entries, stack);
            self.callers.resize(entries, caller);
        }
    }

    /// What is recorded by default.
    pub fn recorded(&self) -> Recording {
        let mut recording = Recording {
            conf: Some(self.kind.conf.to_owned()),
            entries: self.allocator.history().copied().collect(),
            segments: self.allocator.segments(),
            ..Recording::default()
        };
        if self.kind.stacks {
            recording.stacks = stacks();
            recording.entry_stacks = self.callers.clone();
        }
        recording
    }

    /// What is recorded, with or without what only some releases and options record.
    pub fn recording(&mut self) -> Recording {
        let mut recording = self.recorded();
        let mut has = || self.rng.happens(1, 2);
        let (has_stacks, has_pools) = (has(), has());
        let (has_steps, has_conf) = (has(), has() || has() || !self.kind.conf.is_empty());
        recording.conf = recording.conf.filter(|_| has_conf);
        recording.entry_stacks = self.entry_stacks.clone();
        if !has_stacks {
            recording.stacks.clear();
            recording.entry_stacks.clear();
        }
        if has_pools {
            let pools = self.allocator.snapshot().entry_pools.remove(0);
            let pool = |entry| pools.get(&entry).copied().unwrap_or_default();
            recording.entry_pools = (0..recording.entries.len()).map(pool).collect();
        }
        for (index, entry) in recording.entries.iter_mut().enumerate() {
            entry.time_us = 10 * index as u64;
        }
        if has_steps {
            let name = ["Optimizer.step#SGD.step", "ProfilerStep#3"][usize::from(has_stacks)];
            let annotation = |time_us| Annotation {
                name: name.to_owned(),
                is_start: time_us % 20 == 0,
                time_us,
            };
            recording.annotations = [500, 90, 210, 330].map(annotation).to_vec();
        }
        recording
    }
}

const STACKS: usize = 3;

/// The empty stack, and those of some callers.
fn stacks() -> Vec<Stack> {
    let stack = |number: usize| Stack {
        frames: (1..=number)
            .map(|line| {
                Frame {
                    name: "work".to_owned(),
                    filename: "program.py".to_owned(),
                    line: line as u64,
                }
                .into()
            })
            .collect(),
    };
    (0..STACKS).map(stack).collect()
}
