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
use coalesce_workloads::op::{Op, Workload};
use coalesce_workloads::replay::{Outcome, Step, replay};
use coalesce_workloads::written::listed;
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

/// Operations whose requests have the ids 0, 1, ….
type Program = Vec<Op<'static>>;

/// Requests of these sizes, the first with this id.
fn mallocs(first: u64, sizes: &[u64]) -> Program {
    let requests = (first..).zip(sizes);
    requests.map(|(id, &bytes)| Op::malloc(id, bytes)).collect()
}

const fn limit(bytes: u64) -> Op<'static> {
    Op::Limit { bytes: Some(bytes) }
}

const NO_LIMIT: Op<'_> = Op::Limit { bytes: None };

/// Programs that free each request at most once.
fn programs() -> impl Strategy<Value = Program> {
    let limit = prop_oneof![3 => (0..400 * MIB).prop_map(Some), 1 => Just(None)];
    let bytes = prop_oneof![1..MIB, MIB..64 * MIB];
    let step = (0..16_u8, bytes, limit, any::<prop::sample::Index>());
    prop::collection::vec(step, 1..150).prop_map(|steps| {
        let (mut live, mut requests, mut program) = (Vec::new(), 0, Program::new());
        for (choice, bytes, limit, which) in steps {
            program.push(match choice {
                0..=8 => {
                    live.push(requests);
                    requests += 1;
                    Op::malloc(requests - 1, bytes)
                }
                9..=12 if !live.is_empty() => Op::Free {
                    id: live.swap_remove(which.index(live.len())),
                },
                13 => Op::EmptyCache,
                _ => Op::Limit { bytes: limit },
            });
        }
        program
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
fn build(name: &str, program: &Program, capacity: u64) -> Boxed {
    let device = SimDevice::new(&SimConfig::with_capacity(capacity));
    let known = lifetimes::of(&listed("program", program.clone())).unwrap();
    match registry::plan_offline(name, "", &known).unwrap() {
        Some(plan) => plan.build(device),
        None => registry::build(name, device, "").unwrap(),
    }
}

fn watched(program: &Program, allocator: &mut impl Allocator<Driver = SimDevice>) -> Watch {
    watched_workload(&listed("program", program.clone()), allocator)
}

fn watched_workload(
    workload: &dyn Workload,
    allocator: &mut impl Allocator<Driver = SimDevice>,
) -> Watch {
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
    [
        vec![limit(256 * MIB)],
        mallocs(0, &[60 * MIB; 4]),
        vec![limit(64 * MIB)],
        mallocs(4, &[40 * MIB; 2]),
        vec![limit(512 * MIB)],
        mallocs(6, &[60 * MIB; 2]),
        vec![NO_LIMIT],
        mallocs(8, &[300 * MIB; 2]),
    ]
    .concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_policy_reserves_beyond_the_limit(program in programs()) {
        for policy in POLICIES {
            let watch = watched(&program, &mut build(policy.name, &program, CAPACITY));
            let (mut limit, mut before) = (u64::MAX, 0);
            for (step, &reserved) in program.iter().zip(&watch.reserved) {
                if let Op::Limit { bytes } = step {
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
                let (mut direct, mut live) = (new(), BTreeMap::new());
                for (step, outcome) in program.iter().zip(&watch.outcomes) {
                    match *step {
                        Op::Malloc { id, bytes, .. } => {
                            let placed = direct.malloc(bytes, StreamId::DEFAULT);
                            let expected = match placed {
                                Ok(addr) => Outcome::Placed(addr),
                                Err(_) => Outcome::OutOfMemory,
                            };
                            prop_assert_eq!(*outcome, expected);
                            placed.ok().and_then(|addr| live.insert(id, addr));
                        }
                        Op::Free { id } => {
                            live.remove(&id).map(|addr| direct.free(addr)).transpose().unwrap();
                        }
                        Op::Limit { bytes } => {
                            let share = |bytes| bytes as f64 / CAPACITY as f64;
                            direct.set_memory_fraction(bytes.map_or(1.0, share)).unwrap();
                        }
                        _ => direct.empty_cache().unwrap(),
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
        let lowered = program.iter().map(|&op| match op {
            Op::Limit { bytes } => limit(bytes.map_or(most, |bytes| bytes.min(most))),
            op => op,
        });
        let lowered = [vec![limit(most)], lowered.collect()].concat();
        let program = [vec![NO_LIMIT], program].concat();
        let inner = listed("program", program.clone());
        let limited = Limited { workload: &inner, limit: Some(most) };
        for policy in ["pytorch", "cupy", "gmlake"] {
            let expected = watched(&lowered, &mut build(policy, &lowered, CAPACITY));
            let shown = watched_workload(&limited, &mut build(policy, &program, CAPACITY));
            prop_assert_eq!(shown, expected);
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
        let is_limit = |op: &Op<'_>| matches!(op, Op::Limit { .. });
        let without: Program = program.iter().copied().filter(|op| !is_limit(op)).collect();
        let watch = watched(&without, &mut build(policy.name, &without, CAPACITY));
        assert_eq!(watch.failures(), 0, "{}", policy.name);
    }
}

#[test]
fn a_limit_from_the_start_is_a_smaller_device() {
    let bytes = 300 * MIB;
    let plain = [mallocs(0, &[30 * MIB; 12]), vec![Op::Free { id: 3 }]].concat();
    let limited = [vec![limit(bytes)], plain.clone()].concat();
    for policy in AS_REQUESTED {
        let watch = watched(&limited, &mut build(policy, &limited, CAPACITY));
        let smaller = watched(&plain, &mut build(policy, &plain, bytes));
        assert_eq!(watch.outcomes[1..], smaller.outcomes, "{policy}");
        assert_eq!(watch.reserved[1..], smaller.reserved, "{policy}");
        assert!(smaller.failures() > 0, "{policy}");
    }
}
