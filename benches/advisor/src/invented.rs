//! Answers about invented programs, in full: `snapshots/`.
//!
//! Each program trains or generates, with mistakes, settings and conditions that its seed chooses.
//! `INSTA_UPDATE=always cargo test -p coalesce-advisor --lib invented` writes the answers anew; read the difference
//! before it is committed.

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::{Program, Tensor};
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::op::{Answer, Op, Sink, Workload, WorkloadError};

use crate::advise::tests::request;
use crate::advise::{AdviceRequest, Aim, advise, report};
use crate::diagnose::testing::MIB;
use crate::diagnose::{self, Evidence, Subject};
use crate::difference::{Compared, Difference};

const SETTINGS: [&str; 9] = [
    "",
    "",
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:2",
    "garbage_collection_threshold:0.6",
    "per_process_memory_fraction:0.7",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,max_split_size_mb:64",
];

/// A program, and the conditions it runs under.
struct Invented {
    seed: u64,
    name: String,
    conf: &'static str,
    mib: u64,
    limit: Option<u64>,
    release: Release,
    addresses: AddressPolicy,
    /// The number of operations after which the program dies, if it dies before its end.
    dies_after: Option<u64>,
}

/// What a program does apart from computing.
#[derive(Debug)]
struct Habits {
    layers: u64,
    steps: u64,
    mib: u64,
    has_phases: bool,
    has_steps: bool,
    varies: bool,
    trains: bool,
    keeps_gradients: bool,
    keeps_losses: bool,
    keeps_activations: bool,
    grows: bool,
    peaks: bool,
    prefetches: bool,
    hoards: bool,
    empties: bool,
}

impl Invented {
    fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mib = rng.log_uniform(48, 10_000);
        let releases = Release::REPRODUCED;
        Self {
            seed,
            name: format!("invented {seed}"),
            conf: SETTINGS[rng.below(SETTINGS.len() as u64) as usize],
            mib,
            limit: rng.happens(1, 4).then(|| rng.between(mib / 2, mib) * MIB),
            release: releases[rng.below(releases.len() as u64) as usize],
            addresses: AddressPolicy::ALL[rng.below(4) as usize],
            dies_after: rng.happens(1, 3).then(|| rng.log_uniform(16, 2_000)),
        }
    }

    fn conditions(&self) -> ReplayConditions {
        ReplayConditions {
            release: self.release,
            capacity: self.mib * MIB,
            others: 0,
            limit: self.limit,
            addresses: self.addresses,
        }
    }

    fn subject<'a>(&'a self, workload: &'a dyn Workload) -> Subject<'a> {
        Subject {
            workload,
            recording: None,
            conf: self.conf,
            conditions: self.conditions(),
        }
    }
}

impl Workload for Invented {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut rng = Rng::new(self.seed + 1_000);
        let habits = Habits::of(&mut rng);
        let mut left = self.dies_after.unwrap_or(u64::MAX);
        let mut sink = |op: Op<'_>| {
            // Operations of a dead program do not reach the device.
            if left == 0 {
                return Ok(Answer::Done);
            }
            left -= 1;
            sink.op(op)
        };
        let mut program = Program::new(&mut sink);
        habits.run(&mut program, &mut rng);
        program.finish()
    }
}

impl Habits {
    fn of(rng: &mut Rng) -> Self {
        Self {
            layers: rng.between(1, 16),
            steps: rng.between(1, 24),
            mib: rng.log_uniform(1, 64),
            has_phases: rng.happens(1, 2),
            has_steps: rng.happens(1, 2),
            varies: rng.happens(1, 3),
            trains: rng.happens(2, 3),
            keeps_gradients: rng.happens(1, 4),
            keeps_losses: rng.happens(1, 6),
            keeps_activations: rng.happens(1, 4),
            grows: rng.happens(1, 6),
            peaks: rng.happens(1, 4),
            prefetches: rng.happens(1, 4),
            hoards: rng.happens(1, 4),
            empties: rng.happens(1, 6),
        }
    }

    fn run(&self, program: &mut Program<'_>, rng: &mut Rng) {
        self.mark(program, "init");
        for layer in 0..self.layers {
            let tensor = program.alloc((layer % 3 + 1) * self.mib * MIB, "weight");
            program.hold(tensor);
        }
        let mut gradients = Vec::new();
        let mut kept = Vec::new();
        for step in 0..self.steps {
            if self.has_steps {
                program.mark(&format!("step {step}"));
            }
            self.step(program, rng, step, &mut gradients, &mut kept);
            if self.empties {
                program.empty_cache();
            }
            if !self.keeps_gradients || rng.happens(1, 4) {
                program.free_all(gradients.drain(..));
            }
        }
        program.mark("end");
        program.free_all(kept);
        program.free_all(gradients);
    }

    fn mark(&self, program: &mut Program<'_>, phase: &str) {
        if self.has_phases {
            program.mark(phase);
        }
    }

    fn step(
        &self,
        program: &mut Program<'_>,
        rng: &mut Rng,
        step: u64,
        gradients: &mut Vec<Tensor>,
        kept: &mut Vec<Tensor>,
    ) {
        let length = if self.varies { rng.between(8, 24) } else { 16 };
        let bytes = |part: u64| self.mib * MIB * length * part / 16;
        self.mark(program, "forward");
        let input = if self.prefetches {
            let input = program.alloc_on(1, bytes(2), "input");
            program.record_stream(&input, 0);
            input
        } else {
            program.alloc(bytes(2), "input")
        };
        let mut activations = Vec::new();
        for layer in 0..self.layers {
            program.scratch(bytes(1), "softmax");
            activations.push(program.alloc(bytes(layer % 2 + 1), "linear"));
            if self.hoards {
                let small: Vec<_> = (0..50).map(|_| program.alloc(20_000, "mask")).collect();
                let mut small = small.into_iter();
                kept.extend(small.next());
                program.free_all(small);
            }
        }
        let loss = program.alloc(512, "loss");
        if self.trains {
            self.mark(program, "backward");
            if self.peaks {
                program.scratch(bytes(3 * self.layers), "log_softmax_backward");
            }
            while let Some(activation) = activations.pop() {
                let layer = activations.len() as u64;
                if gradients.len() < 2 * self.layers as usize {
                    let bytes = (layer % 3 + 1) * self.mib * MIB;
                    gradients.push(program.alloc(bytes, "linear_backward"));
                }
                program.free(activation);
            }
            self.mark(program, "optimizer");
            if step == 0 {
                for layer in 0..self.layers {
                    let tensor = program.alloc((layer % 3 + 1) * self.mib * MIB, "exp_avg");
                    program.hold(tensor);
                }
            }
            program.scratch(self.mib * MIB, "addcdiv");
        } else if self.keeps_activations {
            kept.append(&mut activations);
        }
        program.free_all(activations);
        if self.keeps_losses {
            kept.push(loss)
        } else {
            program.free(loss)
        }
        if self.grows {
            kept.push(program.alloc((step + 1) * MIB / 2, "cat"));
        }
        program.free(input);
    }
}

fn diagnosed(invented: &Invented) -> anyhow::Result<String> {
    let evidence = Evidence::gather(invented.subject(invented))?;
    Ok(diagnose::text(&diagnose::diagnose(&evidence)))
}

/// Compares a program with that of the next seed.
fn compared(before: &Invented) -> anyhow::Result<String> {
    let after = &Invented::of(before.seed + 1);
    let side = |invented| Compared {
        name: "invented",
        subject: Invented::subject(invented, invented),
    };
    Ok(Difference::between(&side(before), &side(after))?.text())
}

fn advised(invented: &Invented) -> anyhow::Result<String> {
    let workload = Cached::of(invented).unwrap();
    let mut rng = Rng::new(invented.seed + 2_000);
    let mut up_to = |mib: u64| {
        let bytes = rng.between(1, mib.max(1)) * MIB;
        if rng.happens(1, 2) { bytes } else { 0 }
    };
    let (others, more) = (up_to(invented.mib / 8), up_to(invented.mib));
    let mut advice = advise(&AdviceRequest {
        present: invented.conf,
        releases: Releases::given(invented.release),
        conditions: ReplayConditions {
            others,
            ..invented.conditions()
        },
        limit_below: invented
            .limit
            .filter(|_| more > 0)
            .map(|limit| limit + more),
        aim: Aim::ALL[invented.seed as usize % Aim::ALL.len()],
        schedules: invented.seed % 2 == 1,
        copies: invented.seed % 3,
        ..request(&workload)
    })?;
    advice.search.seconds = 0.0;
    Ok(report::text::page(&advice))
}

/// What `answer` writes about the first programs.
fn answers(seeds: u64, answer: fn(&Invented) -> anyhow::Result<String>) -> String {
    let answers = (0..seeds).map(Invented::of).map(|invented| {
        let (name, conf, mib) = (&invented.name, invented.conf, invented.mib);
        let answer = answer(&invented).unwrap_or_else(|error| format!("{error:#}\n"));
        format!("# {name}: '{conf}', {mib} MiB\n{answer}\n")
    });
    answers.collect()
}

#[test]
fn findings() {
    insta::assert_snapshot!(answers(80, diagnosed));
}

#[test]
fn differences() {
    insta::assert_snapshot!(answers(30, compared));
}

#[test]
fn advice() {
    insta::assert_snapshot!(answers(40, advised));
}
