//! Answers about invented programs: `tests/golden/invented_*.txt`.
//!
//! Each program trains or generates, with mistakes and settings that its seed chooses. Of each answer, the files have
//! the main sentences and a digest of the rest, and at the end the digests of many more answers, a hundred a line.
//! `COALESCE_RECORD=1 cargo test -p coalesce-advisor --lib invented` writes
//! them anew; read the difference before it is committed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::release::Release;
use coalesce_bench::measure::profile::{PUBLISHED, Profile};
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::{Program, Tensor};
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::formats::snapshot::release::Releases;
use coalesce_workloads::op::{Answer, Op, Sink, Workload, WorkloadError};
use serde::Serialize;

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

/// Programs of these and higher seeds differ more.
const MANY: u64 = 10_000;

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
        let conf = SETTINGS[rng.below(SETTINGS.len() as u64) as usize];
        let mib = rng.log_uniform(48, 1_000);
        let invented = Self {
            seed,
            name: format!("invented {seed}"),
            conf,
            mib,
            limit: None,
            release: Release::DEFAULT,
            addresses: AddressPolicy::Up,
            dies_after: None,
        };
        if seed < MANY {
            return invented;
        }
        let mib = rng.log_uniform(48, 10_000);
        let limit = rng.happens(1, 4).then(|| rng.between(mib / 2, mib) * MIB);
        let releases = Release::REPRODUCED;
        Self {
            mib,
            limit,
            release: releases[rng.below(releases.len() as u64) as usize],
            addresses: AddressPolicy::ALL[rng.below(4) as usize],
            dies_after: rng.happens(1, 3).then(|| rng.log_uniform(16, 2_000)),
            ..invented
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
        let mut habits = Habits::of(&mut rng);
        if self.seed >= MANY {
            habits.layers = rng.between(1, 16);
            habits.steps = rng.between(1, 24);
            habits.mib = rng.log_uniform(1, 64);
        }
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
            layers: rng.between(2, 9),
            steps: rng.between(2, 12),
            mib: rng.log_uniform(1, 24),
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

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn diagnosed(text: &mut String, invented: &Invented) {
    let evidence = match Evidence::gather(invented.subject(invented)) {
        Ok(evidence) => evidence,
        Err(error) => return writeln!(text, "{error:#}").unwrap(),
    };
    let findings = diagnose::diagnose(&evidence);
    for finding in &findings {
        writeln!(text, "{} [{}]", finding.headline, finding.rule).unwrap();
    }
    let whole = diagnose::text(&findings) + &json(&findings);
    writeln!(text, "{:016x}", digest(&whole)).unwrap();
}

/// Compares a program with that of the next seed.
fn compared(text: &mut String, before: &Invented) {
    let after = &Invented::of(before.seed + 1);
    let side = |invented| Compared {
        name: "invented",
        subject: Invented::subject(invented, invented),
    };
    match Difference::between(&side(before), &side(after)) {
        Ok(difference) => {
            let whole = difference.text() + &json(&difference);
            writeln!(text, "{} {:016x}", difference.verdict, digest(&whole)).unwrap();
        }
        Err(error) => writeln!(text, "{error:#}").unwrap(),
    }
}

fn advised(text: &mut String, invented: &Invented) {
    let workload = Cached::of(invented).unwrap();
    let profile = Profile::load(PUBLISHED, Path::new("")).unwrap();
    let aim = Aim::ALL[invented.seed as usize % Aim::ALL.len()];
    let mut rng = Rng::new(invented.seed + 2_000);
    let mut up_to = |mib: u64| {
        let is_some = rng.happens(1, 2) && invented.seed >= MANY;
        let bytes = rng.between(1, mib.max(1)) * MIB;
        if is_some { bytes } else { 0 }
    };
    let (others, more) = (up_to(invented.mib / 8), up_to(invented.mib));
    let advice = advise(&AdviceRequest {
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
        aim,
        copies: invented.seed % 3,
        ..request(&workload, &profile)
    });
    let mut advice = match advice {
        Ok(advice) => advice,
        Err(error) => return writeln!(text, "{error:#}").unwrap(),
    };
    advice.search.seconds = 0.0;
    for sentence in &advice.answer.sentences {
        writeln!(text, "{sentence}").unwrap();
    }
    let whole = report::text::page(&advice) + &json(&advice);
    writeln!(text, "{:016x}", digest(&whole)).unwrap();
}

/// Compares what `answer` writes with the recorded text: in full for the first seeds, as digests for many more.
fn check(file: &str, seeds: u64, hundreds: u64, answer: fn(&mut String, &Invented)) {
    let mut text = String::new();
    for invented in (0..seeds).map(Invented::of) {
        let (name, conf, mib) = (&invented.name, invented.conf, invented.mib);
        writeln!(text, "\n{name}: '{conf}', {mib} MiB").unwrap();
        answer(&mut text, &invented);
    }
    writeln!(text).unwrap();
    for hundred in 0..hundreds {
        let first = MANY + 100 * hundred;
        let mut answers = String::new();
        for invented in (first..first + 100).map(Invented::of) {
            answer(&mut answers, &invented);
        }
        writeln!(text, "from {first} on: {:016x}", digest(&answers)).unwrap();
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(file);
    if std::env::var_os("COALESCE_RECORD").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    let differs = text.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None);
    assert_eq!(text.len(), expected.len());
}

#[test]
fn findings_are_as_recorded() {
    check("invented_findings.txt", 160, 15, diagnosed);
}

#[test]
fn differences_are_as_recorded() {
    check("invented_differences.txt", 60, 5, compared);
}

#[test]
fn advice_is_as_recorded() {
    check("invented_advice.txt", 30, 1, advised);
}
