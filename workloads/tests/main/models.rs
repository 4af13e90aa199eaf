//! Families of models: members free all their allocations, features change the peak, and invalid
//! parameters are refused.

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

use crate::common::{assert_frees_all, assert_refused, measured, operations};

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
    for recompute in [false, true] {
        members.push(Box::new(Transformer {
            shape: Shape::Llama,
            kv_heads: 2,
            lora_rank: 4,
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

#[test]
fn invalid_parameters_are_refused() {
    let good = small_transformer;
    let most = (1 << 24) - 1;
    for (wrong, expected) in [
        (
            Transformer {
                layers: 0,
                ..good()
            },
            "layers is 0",
        ),
        (
            Transformer {
                layers: 1 << 16,
                ..good()
            },
            "layers is 65536; it must be at most 65535",
        ),
        (
            Transformer { heads: 3, ..good() },
            "hidden is 64, not a multiple of heads, 3",
        ),
        (
            Transformer {
                sequence: Lengths::Uniform { min: 9, max: 8 },
                ..good()
            },
            "from 9 to 8",
        ),
        (
            Transformer {
                sequence: Lengths::Fixed(most),
                batch: most,
                vocabulary: most,
                ..good()
            },
            "2^60 bytes",
        ),
    ] {
        assert_refused(&wrong, expected);
    }
}

#[test]
fn invalid_transformers_are_refused() {
    let with = |change: &dyn Fn(&mut Transformer), expected: &str| {
        let mut wrong = small_transformer();
        change(&mut wrong);
        assert_refused(&wrong, expected);
    };
    with(&|t| t.kv_heads = 2, "only llama");
    with(&|t| t.tied = false, "only llama");
    with(&|t| t.lora_rank = 4, "only llama");
    with(&|t| t.padded = true, "takes no mask");
    with(&|t| t.shards = 2, "bucket_mib is 0");
    with(&|t| t.shards = 0, "shards is 0");
    with(&|t| t.positions = 10, "positions is 10");
    with(&|t| t.sequence = Lengths::List(vec![]), "sequence is 0");
    with(
        &|t| (t.shape, t.kv_heads) = (Shape::Llama, 3),
        "heads is 4, not a multiple of kv_heads, 3",
    );
    with(
        &|t| {
            (t.mistake, t.micro_batches) = (transformer::Mistake::LossesKept, 1 << 20);
        },
        "live at once",
    );
    with(
        &|t| {
            t.sequence = Lengths::Sorted {
                min: 1,
                max: 2,
                count: 0,
            }
        },
        "count is 0",
    );
    // One token of one number per head: only the size that kernels round it up to is too large.
    with(
        &|t| {
            (t.batch, t.hidden, t.heads) = ((1 << 24) - 1, 1 << 23, 1 << 23);
            (t.sequence, t.vocabulary) = (Lengths::Fixed(1), 1);
        },
        "2^60",
    );
}

#[test]
fn other_invalid_models_are_refused() {
    for (experts, top_k, skew, expected) in [
        (0, 1, 1, "experts is 0"),
        (4, 5, 1, "top_k is 5"),
        (4, 2, 0, "skew is 0"),
        (
            (1 << 16) - 1,
            1,
            1,
            "layers times experts is 524280; it must be at most 262143",
        ),
    ] {
        let wrong = Moe {
            layers: 8,
            experts,
            top_k,
            skew,
            ..Moe::default()
        };
        assert_refused(&wrong, expected);
    }
    let generation = Inference::default;
    let request = |prompt: u64, new_tokens: u64| Request {
        batch: 1,
        prompt,
        new_tokens,
    };
    for (wrong, expected) in [
        (
            Inference {
                requests: vec![request(0, 1)],
                ..generation()
            },
            "prompt is 0",
        ),
        (
            Inference {
                requests: vec![request(1, 1 << 24)],
                ..generation()
            },
            "new_tokens is 16777216",
        ),
        (
            Inference {
                requests: vec![request(1, 1 << 20)],
                gradients: true,
                ..generation()
            },
            "with gradients, live times layers",
        ),
        (
            Inference {
                cache: CacheLayout::Pages { tokens: 0 },
                ..generation()
            },
            "tokens is 0; it must be at least 1",
        ),
        (
            Inference {
                live: 0,
                ..generation()
            },
            "live is 0; it must be at least 1",
        ),
    ] {
        assert_refused(&wrong, expected);
    }
    for (wrong, expected) in [
        (
            Cnn {
                depths: vec![],
                ..Cnn::default()
            },
            "the number of depths is 0; it must be at least 1",
        ),
        (
            Cnn {
                depths: vec![1, 0],
                ..Cnn::default()
            },
            "depths is 0",
        ),
        (
            Cnn {
                image: Lengths::Fixed(1 << 14),
                ..Cnn::default()
            },
            "image is",
        ),
        (
            Cnn {
                batch: (1 << 20) - 1,
                width: (1 << 14) - 1,
                image: Lengths::Fixed((1 << 14) - 1),
                ..Cnn::default()
            },
            "2^60",
        ),
    ] {
        assert_refused(&wrong, expected);
    }
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
