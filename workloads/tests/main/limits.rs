//! Limits on the memory of the process that change during a program.

use std::collections::BTreeMap;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
use coalesce_alloc::registry::{self, POLICIES};
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::{Allocator, PyTorch};
use coalesce_workloads::lifetimes;
use coalesce_workloads::limited::Limited;
use coalesce_workloads::op::{Op, Sink, Workload, WorkloadError};
use coalesce_workloads::replay::{Outcome, Step, replay};
use proptest::prelude::*;

use crate::common::{EXPANDABLE, GIB, MIB};

/// Policies that take memory as it is requested, however large the device is.
const AS_REQUESTED: [&str; 6] = [
    "cuda_async",
    "cupy",
    "direct",
    "gmlake",
    "paddle_auto_growth",
    "vpmm",
];

/// A power of two, so that fractions of it are exact.
const CAPACITY: u64 = 16 * GIB;

/// An operation of a program; frees name the request by its number.
#[derive(Clone, Copy, Debug)]
enum Do {
    Malloc(u64),
    Free(usize),
    Limit(Option<u64>),
    EmptyCache,
}

#[derive(Debug)]
struct Program(Vec<Do>);

impl Workload for Program {
    fn name(&self) -> &'static str {
        "program"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut next = 0;
        for &choice in &self.0 {
            sink.op(match choice {
                Do::Malloc(bytes) => {
                    next += 1;
                    Op::Malloc {
                        id: next - 1,
                        bytes,
                        stream: 0,
                        tag: "",
                    }
                }
                Do::Free(request) => Op::Free { id: request as u64 },
                Do::Limit(bytes) => Op::Limit { bytes },
                Do::EmptyCache => Op::EmptyCache,
            })?;
        }
        Ok(())
    }
}

/// Programs that free each request at most once.
fn programs() -> impl Strategy<Value = Program> {
    let limit = prop_oneof![3 => (0..400 * MIB).prop_map(Some), 1 => Just(None)];
    let bytes = prop_oneof![1..MIB, MIB..64 * MIB];
    let step = (0..16_u8, bytes, limit, any::<prop::sample::Index>());
    prop::collection::vec(step, 1..150).prop_map(|steps| {
        let (mut live, mut requests, mut program) = (Vec::new(), 0, Vec::new());
        for (choice, bytes, limit, which) in steps {
            program.push(match choice {
                0..=8 => {
                    live.push(requests);
                    requests += 1;
                    Do::Malloc(bytes)
                }
                9..=12 if !live.is_empty() => Do::Free(live.swap_remove(which.index(live.len()))),
                13 => Do::EmptyCache,
                _ => Do::Limit(limit),
            });
        }
        Program(program)
    })
}

/// The bytes in use on the device after each operation, and the outcomes.
#[derive(Default, PartialEq, Debug)]
struct Watch {
    reserved: Vec<u64>,
    outcomes: Vec<Outcome>,
}

impl Watch {
    fn failures(&self) -> usize {
        let failed = |outcome: &&Outcome| **outcome == Outcome::OutOfMemory;
        self.outcomes.iter().filter(failed).count()
    }
}

type Boxed = Box<dyn Allocator<Driver = SimDevice>>;

/// An allocator of a policy on a device of `capacity` bytes.
fn build(name: &str, workload: &dyn Workload, capacity: u64) -> Boxed {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    let known = lifetimes::of(workload).unwrap();
    match registry::plan_offline(name, "", &known).unwrap() {
        Some(plan) => plan.build(device),
        None => registry::build(name, device, "").unwrap(),
    }
}

fn watched(workload: &dyn Workload, allocator: &mut impl Allocator<Driver = SimDevice>) -> Watch {
    let mut watch = Watch::default();
    let mut note = |step: &Step<'_>| {
        let reserved = step.stats.reserved_bytes.all().current;
        watch.reserved.push(reserved.cast_unsigned());
        watch.outcomes.push(step.outcome);
        Ok(())
    };
    replay(workload, allocator, &mut note).unwrap();
    allocator.check().unwrap();
    watch
}

/// A program under a limit that falls below what it holds and rises again.
fn falling_and_rising() -> Program {
    let mut program = vec![Do::Limit(Some(256 * MIB))];
    program.extend([Do::Malloc(60 * MIB); 4]);
    program.push(Do::Limit(Some(64 * MIB)));
    program.extend([Do::Malloc(40 * MIB); 2]);
    program.push(Do::Limit(Some(512 * MIB)));
    program.extend([Do::Malloc(60 * MIB); 2]);
    program.push(Do::Limit(None));
    program.extend([Do::Malloc(300 * MIB); 2]);
    Program(program)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_policy_reserves_beyond_the_limit(program in programs()) {
        for policy in POLICIES {
            let watch = watched(&program, &mut build(policy.name, &program, CAPACITY));
            let (mut limit, mut before) = (u64::MAX, 0);
            for (step, &reserved) in program.0.iter().zip(&watch.reserved) {
                if let Do::Limit(bytes) = step {
                    limit = bytes.unwrap_or(u64::MAX);
                }
                prop_assert!(
                    reserved <= limit.max(before),
                    "{}: {} bytes after {}, the limit is {}", policy.name, reserved, before, limit
                );
                before = reserved;
            }
        }
    }

    /// The reference does what direct calls of PyTorch's function do, in all releases.
    #[test]
    fn limits_are_those_of_set_memory_fraction(program in programs()) {
        for conf in ["", EXPANDABLE, "garbage_collection_threshold:0.5"] {
            for release in Release::REPRODUCED {
                let new = || {
                    let settings = Settings::of_release(release).started_with(conf).unwrap();
                    PyTorch::new(SimDevice::new(&SimConfig::with_capacity(CAPACITY)), settings)
                };
                let mut replayed = new();
                let watch = watched(&program, &mut replayed);
                let (mut direct, mut live, mut requests) = (new(), BTreeMap::new(), 0);
                for (step, outcome) in program.0.iter().zip(&watch.outcomes) {
                    match *step {
                        Do::Malloc(bytes) => {
                            let placed = direct.malloc(bytes, StreamId::DEFAULT);
                            let expected = match placed {
                                Ok(addr) => Outcome::Placed(addr),
                                Err(_) => Outcome::OutOfMemory,
                            };
                            prop_assert_eq!(*outcome, expected);
                            placed.ok().and_then(|addr| live.insert(requests, addr));
                            requests += 1;
                        }
                        Do::Free(request) => {
                            live.remove(&request).map(|addr| direct.free(addr)).transpose().unwrap();
                        }
                        Do::Limit(bytes) => {
                            let share = |bytes| bytes as f64 / CAPACITY as f64;
                            direct.set_memory_fraction(bytes.map_or(1.0, share)).unwrap();
                        }
                        Do::EmptyCache => direct.empty_cache().unwrap(),
                    }
                }
                prop_assert_eq!(replayed.stats(), direct.stats());
                prop_assert_eq!(replayed.memory_fraction(), direct.memory_fraction());
                prop_assert_eq!(replayed.segments(), direct.segments());
            }
        }
    }

    /// Of a limit from outside and one of the program, the smaller applies.
    #[test]
    fn a_limit_from_outside_lowers_those_of_the_program(program in programs(), most in 0..400 * MIB) {
        let start = |steps: Vec<Do>| Program([vec![Do::Limit(None)], steps].concat());
        let lowered = program.0.iter().map(|&step| match step {
            Do::Limit(bytes) => Do::Limit(bytes.min(Some(most)).or(Some(most))),
            step => step,
        });
        let lowered = Program([vec![Do::Limit(Some(most))], lowered.collect()].concat());
        let program = start(program.0);
        let limited = Limited { workload: &program, limit: Some(most) };
        for policy in ["pytorch", "cupy", "gmlake"] {
            let expected = watched(&lowered, &mut build(policy, &lowered, CAPACITY));
            prop_assert_eq!(watched(&limited, &mut build(policy, &program, CAPACITY)), expected);
        }
    }
}

#[test]
fn a_limit_that_falls_and_rises_refuses_requests_in_between_only() {
    let program = falling_and_rising();
    for policy in POLICIES {
        let watch = watched(&program, &mut build(policy.name, &program, CAPACITY));
        let at = |outcome: Outcome| {
            let found = watch
                .outcomes
                .iter()
                .enumerate()
                .filter(|(_, other)| **other == outcome);
            found.map(|(event, _)| event).collect::<Vec<_>>()
        };
        if policy.name == "pytorch" {
            assert_eq!(at(Outcome::OutOfMemory), [6, 7], "{}", policy.name);
        }
        // Policies that reserve more at once may fail earlier.
        assert!(watch.failures() >= 2, "{}: {watch:?}", policy.name);
        let last = watch.outcomes.last().unwrap();
        let grows = policy.name == "pytorch" || AS_REQUESTED.contains(&policy.name);
        assert!(
            !grows || matches!(last, Outcome::Placed(_)),
            "{}: {watch:?}",
            policy.name
        );
        let without = Program(
            program
                .0
                .iter()
                .filter(|step| !matches!(step, Do::Limit(_)))
                .copied()
                .collect(),
        );
        let watch = watched(&without, &mut build(policy.name, &without, CAPACITY));
        assert_eq!(watch.failures(), 0, "{}", policy.name);
    }
}

#[test]
fn a_limit_from_the_start_is_a_smaller_device() {
    let bytes = 300 * MIB;
    let steps = [[Do::Malloc(30 * MIB); 12].to_vec(), vec![Do::Free(3)]].concat();
    let limited = Program([vec![Do::Limit(Some(bytes))], steps.clone()].concat());
    let plain = Program(steps);
    for policy in AS_REQUESTED {
        let watch = watched(&limited, &mut build(policy, &limited, CAPACITY));
        let smaller = watched(&plain, &mut build(policy, &plain, bytes));
        assert_eq!(watch.outcomes[1..], smaller.outcomes, "{policy}");
        assert_eq!(watch.reserved[1..], smaller.reserved, "{policy}");
        assert!(smaller.failures() > 0, "{policy}");
    }
}
