//! Random programs on every policy for as long as one likes: `scripts/soak`.
//!
//! Policies, settings, releases of PyTorch, devices, streams, private pools, limits and failures at once, each program
//! checked with the shadow heap. The memory of the process must not grow.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::Settings;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::harness::ops::{self, TestOp};
use crate::harness::{self, Subject};
use crate::properties::{WITH_POOLS, subjects};

/// How much the process may grow after the first tenth, in KiB.
const GROWTH: u64 = 64 << 10;

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// KiB of memory that the process holds.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// The number-th subject and its program. The same seed and number give the same.
fn draw(seed: u64, number: u64) -> (Subject, Vec<TestOp>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut choose = |count: usize| {
        let chosen = (0..count).new_tree(&mut runner);
        chosen.unwrap().current()
    };
    let mut all = subjects();
    let mut subject = all.swap_remove(choose(all.len()));
    subject.device = SimConfig {
        addresses: AddressPolicy::ALL[choose(AddressPolicy::ALL.len())],
        hold_events: choose(4) > 0,
        ..subject.device
    };
    if subject.policy == "pytorch" {
        let release = Release::REPRODUCED[choose(Release::REPRODUCED.len())];
        let knows = Settings::of_release(release).started_with(subject.conf);
        subject.release = knows.is_ok().then_some(release);
    }
    // Before 2.13, what a pool serves counts as captured, so streams that it used are forgotten. With expandable segments,
    // PyTorch loses count of the memory of pools.
    let is_apart = subject.release.is_none_or(|release| release >= v2(13))
        && !subject.conf.contains("expandable_segments");
    let with_pools = WITH_POOLS.contains(&subject.policy) && is_apart;
    let ops = ops::of_all_kinds(with_pools).new_tree(&mut runner);
    (subject, ops.unwrap().current())
}

#[test]
#[ignore = "takes as long as SOAK_MINUTES says"]
fn random_programs_on_every_policy() {
    let minutes = number("SOAK_MINUTES").unwrap_or(1);
    let seed = number("SOAK_SEED").unwrap_or_else(rand_seed);
    let first = number("SOAK_FIRST").unwrap_or(0);
    println!("seed {seed}");
    let (begun, length) = (Instant::now(), Duration::from_secs(60 * minutes));
    let (mut operations, mut tenth, mut early) = (0, 0, 0);
    for program in first.. {
        let (subject, ops) = draw(seed, program);
        operations += ops.len();
        let run = catch_unwind(AssertUnwindSafe(|| {
            harness::run(&subject, &ops).tear_down()
        }));
        if let Err(panic) = run {
            println!("{subject:?}\nSOAK_SEED={seed} SOAK_FIRST={program} repeats it");
            resume_unwind(panic);
        }
        let now = (10 * begun.elapsed().as_secs() / length.as_secs().max(1)).min(10);
        if now > tenth {
            tenth = now;
            let kib = resident();
            early = if tenth == 1 { kib } else { early };
            let programs = program - first + 1;
            println!("{tenth}/10: {programs} programs, {operations} operations, {kib} KiB");
            assert!(kib <= early + GROWTH, "the process grows");
        }
        if tenth == 10 {
            return;
        }
    }
}

fn rand_seed() -> u64 {
    let mut runner = TestRunner::default();
    any::<u32>().new_tree(&mut runner).unwrap().current().into()
}
