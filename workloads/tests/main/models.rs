//! Families of models: members free all their allocations, and features change the peak.

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

use crate::common::{Fingerprint, assert_frees_all, measured, operations, table};
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
    const SMALL: &str = "layers = 2\nhidden = 64\nheads = 4\nvocabulary = 100";
    let mut members = Vec::new();
    let mut add = |family: &str, parameters: &str| {
        let name = if family == "transformer" {
            "small"
        } else {
            family
        };
        members.push(catalog::build(name, family, table(parameters)).unwrap());
    };
    let transformer = format!("{SMALL}\nbatch = 2\nsteps = 2");
    for shape in ["gpt2", "bert", "llama"] {
        let of_shape = format!("{transformer}\nshape = '{shape}'");
        for attention in ["flash", "materialised"] {
            for precision in ["mixed", "half", "single"] {
                for recompute in [false, true] {
                    let padded = shape != "gpt2" && attention == "flash";
                    add(
                        "transformer",
                        &format!(
                            "{of_shape}\nattention = '{attention}'\nprecision = '{precision}'\nrecompute = {recompute}\n\
                         padded = {padded}\nsequence = {{ uniform = {{ min = 1, max = 16 }} }}"
                        ),
                    );
                }
            }
        }
        for mistake in [
            "none",
            "zeroed_in_place",
            "never_cleared",
            "losses_kept",
            "outputs_kept",
        ] {
            add(
                "transformer",
                &format!(
                    "{of_shape}\nmistake = '{mistake}'\nmicro_batches = 2\n\
                 evaluation = {{ every = 1, batches = 2, batch = 3, sequence = {{ list = [5, 7] }} }}"
                ),
            );
        }
        for optimizer in ["adamw", "adamw_fused", "momentum", "sgd"] {
            for (shards, bucket_mib) in [(1, 0), (1, 1), (4, 1)] {
                add(
                    "transformer",
                    &format!(
                        "{of_shape}\noptimizer = '{optimizer}'\nshards = {shards}\nbucket_mib = {bucket_mib}\n\
                     master_weights = true\nprecision = 'half'\nmicro_batches = 2"
                    ),
                );
            }
        }
    }
    add(
        "transformer",
        &format!(
            "{transformer}\nprecision = 'half'\nevaluation = {{ every = 1, batches = 2, batch = 3, sequence = 6 }}"
        ),
    );
    for recompute in [false, true] {
        add(
            "transformer",
            &format!(
                "{transformer}\nshape = 'llama'\nkv_heads = 2\nlora_rank = 1\nprecision = 'half'\nrecompute = {recompute}"
            ),
        );
        let sequence = "sequence = { sorted = { min = 1, max = 16, count = 3 } }";
        add(
            "moe",
            &format!("{SMALL}\n{sequence}\nrecompute = {recompute}"),
        );
    }
    for cache in ["'whole'", "{ pages = { tokens = 4 } }"] {
        for gradients in [false, true] {
            add(
                "inference",
                &format!(
                    "{SMALL}\nkv_heads = 2\ncache = {cache}\ngradients = {gradients}\nrandom_requests = 4\nlive = 2\n\
                 requests = [{{ batch = 2, prompt = 3, new_tokens = 0 }}]\n\
                 prompt = {{ log_uniform = {{ min = 1, max = 16 }} }}\nnew_tokens = {{ uniform = {{ min = 1, max = 6 }} }}"
                ),
            );
        }
    }
    for prefetch in [false, true] {
        for precision in ["mixed", "half", "single"] {
            add(
                "cnn",
                &format!(
                    "depths = [1, 2]\nwidth = 8\nbatch = 2\nimage = {{ uniform = {{ min = 1, max = 40 }} }}\n\
                 precision = '{precision}'\nprefetch = {prefetch}"
                ),
            );
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
