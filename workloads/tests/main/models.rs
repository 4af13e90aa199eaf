//! Families of models: members free all their allocations, and features change the peak.

use coalesce_workloads::families::cnn::Cnn;
use coalesce_workloads::families::inference::{CacheLayout, Inference, Request};
use coalesce_workloads::families::lengths::Lengths;
use coalesce_workloads::families::moe::Moe;
use coalesce_workloads::families::rng::Rng;
use coalesce_workloads::families::transformer::{
    self, Attention, Evaluation, Optimizer, Precision, Shape, Transformer,
};
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::common::{Fingerprint, assert_frees_all, measured, operations};
use crate::digests::digest;

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

/// Small members that cover all features.
fn small_members() -> Vec<Box<dyn Workload>> {
    let mut members: Vec<Box<dyn Workload>> = Vec::new();
    for shape in [Shape::Gpt2, Shape::Bert, Shape::Llama] {
        let transformer = Transformer {
            shape,
            ..small_transformer()
        };
        for attention in [Attention::Flash, Attention::Materialised] {
            for precision in [Precision::Mixed, Precision::Half, Precision::Single] {
                for recompute in [false, true] {
                    members.push(Box::new(Transformer {
                        attention,
                        precision,
                        recompute,
                        sequence: Lengths::Uniform { min: 1, max: 16 },
                        padded: shape != Shape::Gpt2 && attention == Attention::Flash,
                        ..transformer.clone()
                    }));
                }
            }
        }
        for mistake in [
            transformer::Mistake::None,
            transformer::Mistake::ZeroedInPlace,
            transformer::Mistake::NeverCleared,
            transformer::Mistake::LossesKept,
            transformer::Mistake::OutputsKept,
        ] {
            members.push(Box::new(Transformer {
                mistake,
                micro_batches: 2,
                evaluation: Some(Evaluation {
                    every: 1,
                    batches: 2,
                    batch: 3,
                    sequence: Lengths::List(vec![5, 7]),
                }),
                ..transformer.clone()
            }));
        }
        for optimizer in [
            Optimizer::AdamW,
            Optimizer::AdamWFused,
            Optimizer::Momentum,
            Optimizer::Sgd,
        ] {
            for (shards, bucket_mib) in [(1, 0), (1, 1), (4, 1)] {
                members.push(Box::new(Transformer {
                    optimizer,
                    shards,
                    bucket_mib,
                    master_weights: true,
                    precision: Precision::Half,
                    micro_batches: 2,
                    ..transformer.clone()
                }));
            }
        }
    }
    members.push(Box::new(Transformer {
        precision: Precision::Half,
        evaluation: Some(Evaluation {
            every: 1,
            batches: 2,
            batch: 3,
            sequence: Lengths::Fixed(6),
        }),
        ..small_transformer()
    }));
    for recompute in [false, true] {
        members.push(Box::new(Transformer {
            shape: Shape::Llama,
            kv_heads: 2,
            lora_rank: 1,
            precision: Precision::Half,
            recompute,
            ..small_transformer()
        }));
        members.push(Box::new(Moe {
            layers: 2,
            hidden: 64,
            heads: 4,
            vocabulary: 100,
            sequence: Lengths::Sorted {
                min: 1,
                max: 16,
                count: 3,
            },
            recompute,
            ..Moe::default()
        }));
    }
    for cache in [CacheLayout::Whole, CacheLayout::Pages { tokens: 4 }] {
        for gradients in [false, true] {
            members.push(Box::new(Inference {
                layers: 2,
                hidden: 64,
                heads: 4,
                kv_heads: 2,
                vocabulary: 100,
                cache,
                gradients,
                requests: vec![Request {
                    batch: 2,
                    prompt: 3,
                    new_tokens: 0,
                }],
                random_requests: 4,
                prompt: Lengths::LogUniform { min: 1, max: 16 },
                new_tokens: Lengths::Uniform { min: 1, max: 6 },
                live: 2,
                ..Inference::default()
            }));
        }
    }
    for prefetch in [false, true] {
        for precision in [Precision::Mixed, Precision::Half, Precision::Single] {
            members.push(Box::new(Cnn {
                depths: vec![1, 2],
                width: 8,
                batch: 2,
                image: Lengths::Uniform { min: 1, max: 40 },
                precision,
                prefetch,
                ..Cnn::default()
            }));
        }
    }
    members
}

#[test]
fn all_members_free_all_allocations() {
    for member in small_members() {
        assert_frees_all(member.as_ref());
    }
}

#[test]
fn all_members_emit_the_same_operations_each_time() {
    let operations = |member: &dyn Workload| operations(member).unwrap();
    for member in small_members() {
        assert_eq!(operations(member.as_ref()), operations(member.as_ref()));
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

/// A change here changes what these members do, so results of the family cannot be compared with earlier ones.
#[test]
fn all_members_emit_the_recorded_operations() {
    let mut fingerprint = Fingerprint::new();
    for member in small_members() {
        let (events, digest) = digest(member.as_ref());
        fingerprint.add(&format!("{} {events} {digest}\n", member.name()));
    }
    assert_eq!(fingerprint.text(), "6a443a5b2e7a33f7");
}

/// Parameters of every magnitude are refused or run: no arithmetic overflows.
#[test]
fn parameters_of_every_magnitude_are_refused_or_run() {
    let mut rng = Rng::new(1);
    let mut ran = 0;
    let mut outcomes = Fingerprint::new();
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
            let (mut events, mut requested) = (0, 0_u64);
            let ended = member.emit(&mut |op: Op<'_>| {
                if let Op::Malloc { bytes, .. } = op {
                    assert!(bytes < 1 << 60);
                    requested = requested.wrapping_mul(3).wrapping_add(bytes);
                }
                events += 1;
                if events == 500 {
                    return Err(WorkloadError::Stopped("enough".to_owned()));
                }
                Ok(Answer::Done)
            });
            let reason = ended.as_ref().err().map(ToString::to_string);
            outcomes.add(&format!("{events} {requested} {reason:?}\n"));
            if !matches!(ended, Err(WorkloadError::Parameter { .. })) {
                ran += 1;
            }
        }
    }
    assert!(ran > 1000, "only {ran} ran");
    assert_eq!(outcomes.text(), "b25d669d750a5443");
}
