//! Families of models: members free all their allocations, and features change the peak.

use std::fs;

use coalesce_workloads::catalog;
use coalesce_workloads::families::cnn::Cnn;
use coalesce_workloads::families::inference::{Inference, Request};
use coalesce_workloads::families::lengths::Lengths;
use coalesce_workloads::families::moe::Moe;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::families::transformer::{
    self, Attention, Optimizer, Precision, Shape, Transformer,
};
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cases;
use crate::common::{assert_frees_all, measured, operations, table};

fn small_transformer() -> Transformer {
    Transformer {
        name: "small".to_owned(),
        layers: 2,
        hidden: 64,
        heads: 4,
        vocabulary: 100,
        batch: 2,
        steps: 2,
        ..Transformer::default()
    }
}

const MEMBERS: &str = "tests/cases/members.txt";

/// A line of the list of small members.
fn member(line: &str) -> Box<dyn Workload> {
    let (family, parameters) = line.split_once(": ").unwrap();
    let small = match family {
        "cnn" => "",
        _ => "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100\n",
    };
    let parameters = small.to_owned() + &parameters.replace("; ", "\n");
    catalog::build(family, family, table(&parameters)).unwrap()
}

fn small_members() -> Vec<Box<dyn Workload>> {
    let list = fs::read_to_string(MEMBERS).unwrap();
    let lines = list.lines().filter_map(|line| line.split_once(" => "));
    lines.map(|(line, _)| member(line)).collect()
}

/// A change here changes what these members do, so results of the family cannot be compared with earlier ones.
#[test]
fn members_request_the_recorded_memory() {
    cases::check(MEMBERS, |line| {
        let member = member(line);
        let operations = operations(member.as_ref()).unwrap().len();
        let measures = measured(member.as_ref(), "");
        format!(
            "{operations} operations, {} allocations of {} bytes at most",
            measures.allocations, measures.peak_requested_bytes
        )
    });
}

#[test]
fn all_members_free_all_allocations_and_repeat_themselves() {
    for member in small_members() {
        assert_frees_all(member.as_ref());
        let [once, again] = [(); 2].map(|()| operations(member.as_ref()).unwrap());
        assert!(once == again, "{}", member.name());
    }
}

/// A sink may stop the workload at any operation; `emit` then returns its error.
#[test]
fn all_members_stop_when_the_sink_stops_them() {
    for member in small_members() {
        for most in [0, 1, 40, 300, 700, 1500] {
            let mut events = 0;
            let ended = member.emit(&mut |_: Op<'_>| {
                if events == most {
                    return Err(WorkloadError::Stopped("enough".to_owned()));
                }
                events += 1;
                Ok(Answer::Done)
            });
            let was_stopped = matches!(ended, Err(WorkloadError::Stopped(_)));
            assert!(was_stopped || (ended.is_ok() && events < most));
            assert!(events <= most, "{events} sent, {most} accepted");
        }
    }
}

/// Features have the effect on memory that programmers expect.
#[test]
fn features_change_the_peak_in_the_expected_direction() {
    let peak = |transformer: &Transformer| measured(transformer, "").peak_requested_bytes as f64;
    let plain = Transformer {
        layers: 6,
        hidden: 256,
        batch: 4,
        sequence: Lengths::Fixed(256),
        micro_batches: 3,
        ..small_transformer()
    };
    let with = |change: &dyn Fn(&mut Transformer)| {
        let mut changed = plain.clone();
        change(&mut changed);
        peak(&changed)
    };
    let plain_peak = peak(&plain);
    assert!(with(&|t| t.recompute = true) < plain_peak);
    assert!(with(&|t| t.optimizer = Optimizer::Sgd) < plain_peak);
    assert!(with(&|t| t.precision = Precision::Half) < plain_peak);
    assert!(with(&|t| (t.shards, t.bucket_mib) = (8, 1)) < plain_peak);
    assert!(with(&|t| t.attention = Attention::Materialised) > plain_peak);
    assert!(with(&|t| t.bucket_mib = 1) > plain_peak);
    assert!(with(&|t| t.mistake = transformer::Mistake::OutputsKept) > plain_peak);
    let losses_kept = with(&|t| t.mistake = transformer::Mistake::LossesKept);
    assert!(losses_kept > 1.5 * plain_peak, "{losses_kept} {plain_peak}");
}

#[test]
fn parameters_round_trip_through_json() {
    fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(member: &T) {
        let text = serde_json::to_string(member).unwrap();
        assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *member);
        assert!(serde_json::from_str::<T>(r#"{"layer": 1}"#).is_err());
        let nothing: T = serde_json::from_str("{}").unwrap();
        assert_eq!(nothing, *member, "missing parameters have their defaults");
    }
    survives(&Transformer::default());
    survives(&Moe::default());
    survives(&Inference::default());
    survives(&Cnn::default());
}

/// Parameters of every magnitude are refused or run: no arithmetic overflows.
#[test]
fn parameters_of_every_magnitude_are_refused_or_run() {
    let mut rng = Rng::new(1);
    let mut ran = 0;
    for _ in 0..20_000 {
        let mut any = |bits: u32| rng.of_any_magnitude(bits) - u64::from(bits == 1);
        let heads = any(20);
        let (prompt, new_tokens) = (any(25), any(25));
        let members: [Box<dyn Workload>; 4] = [
            Box::new(Transformer {
                shape: [Shape::Gpt2, Shape::Bert, Shape::Llama][any(2) as usize - 1],
                layers: any(3),
                hidden: heads.saturating_mul(any(20)),
                heads,
                intermediate: any(30),
                vocabulary: any(25),
                batch: any(25),
                sequence: Lengths::Fixed(any(25)),
                attention: [Attention::Flash, Attention::Materialised][any(2) as usize % 2],
                padded: any(2) == 1,
                recompute: any(2) == 1,
                shards: any(30),
                bucket_mib: any(64),
                micro_batches: any(3),
                steps: any(64),
                seed: any(64),
                ..Transformer::default()
            }),
            Box::new(Moe {
                layers: any(3),
                hidden: 4 * any(30),
                heads: 4,
                intermediate: any(30),
                batch: any(25),
                sequence: Lengths::Fixed(any(25)),
                experts: any(5),
                top_k: any(3),
                skew: any(64),
                ..Moe::default()
            }),
            Box::new(Inference {
                layers: any(3),
                hidden: 32 * any(30),
                requests: vec![Request {
                    batch: any(25),
                    prompt,
                    new_tokens,
                }],
                random_requests: any(64),
                live: any(64),
                ..Inference::default()
            }),
            Box::new(Cnn {
                depths: vec![any(3), any(3)],
                width: any(15),
                classes: any(25),
                batch: any(21),
                image: Lengths::Fixed(any(15)),
                workspace_mib: any(64),
                ..Cnn::default()
            }),
        ];
        for member in members {
            let mut events = 0;
            let ended = member.emit(&mut |op: Op<'_>| {
                if let Op::Malloc { bytes, .. } = op {
                    assert!(bytes < 1 << 60);
                }
                events += 1;
                if events == 500 {
                    return Err(WorkloadError::Stopped("enough".to_owned()));
                }
                Ok(Answer::Done)
            });
            if !matches!(ended, Err(WorkloadError::Parameter { .. })) {
                ran += 1;
            }
        }
    }
    assert!(ran > 1000, "only {ran} ran");
}
