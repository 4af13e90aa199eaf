//! Recorded traces and the family members that model them.
//!
//! Each member has the parameters in the header of its trace, including the sequence lengths in their order.
//! The comparison covers what an allocator sees: the peak of requested memory, the number of events, and
//! the efficiency under PyTorch's default settings and with expandable segments. Some values are random in
//! both: the number of tokens per expert and the scratch memory of convolutions.

use crate::families::cnn::Cnn;
use crate::families::inference::{CacheLayout, Inference, Request};
use crate::families::lengths::Lengths;
use crate::families::moe::Moe;
use crate::families::transformer::{Evaluation, Mistake, Precision, Shape, Transformer};
use crate::op::Workload;

/// The names of traces, each with a family member that has its parameters.
#[must_use]
pub fn pairs() -> Vec<(&'static str, Box<dyn Workload>)> {
    let mut pairs: Vec<(&'static str, Box<dyn Workload>)> = Vec::new();
    for transformer in transformers() {
        let (name, mut transformer) = transformer;
        name.clone_into(&mut transformer.name);
        pairs.push((name, Box::new(transformer)));
    }
    pairs.push(("moe8x_modulelist", Box::new(moe())));
    pairs.push(("gen_llama1b_grad_bug", Box::new(generation())));
    for (name, mut cnn) in cnns() {
        name.clone_into(&mut cnn.name);
        pairs.push((name, Box::new(cnn)));
    }
    pairs
}

/// The scratch memory of convolutions is random in both.
fn cnns() -> [(&'static str, Cnn); 3] {
    let varying = Cnn {
        image: Lengths::List(vec![
            160, 160, 160, 224, 192, 320, 320, 224, 224, 288, 192, 288,
        ]),
        precision: Precision::Mixed,
        steps: 12,
        ..Cnn::default()
    };
    let prefetched = Cnn {
        prefetch: true,
        ..varying.clone()
    };
    [
        ("resnet50_fp32_fixed224", Cnn::default()),
        ("resnet50_amp_varsize", varying),
        ("resnet50_amp_varsize_prefetch_stream", prefetched),
    ]
}

fn generation() -> Inference {
    Inference {
        name: "gen_llama1b_grad_bug".to_owned(),
        layers: 16,
        hidden: 2048,
        heads: 32,
        kv_heads: 8,
        intermediate: 8192,
        vocabulary: 128_256,
        cache: CacheLayout::Whole,
        requests: vec![Request {
            batch: 4,
            prompt: 376,
            new_tokens: 48,
        }],
        random_requests: 0,
        live: 1,
        gradients: true,
        ..Inference::default()
    }
}

fn moe() -> Moe {
    Moe {
        name: "moe8x_modulelist".to_owned(),
        layers: 12,
        hidden: 1024,
        heads: 16,
        kv_heads: 4,
        intermediate: 3584,
        vocabulary: 32_000,
        batch: 4,
        sequence: Lengths::Fixed(1024),
        experts: 8,
        top_k: 2,
        skew: 4,
        steps: 10,
        ..Moe::default()
    }
}

fn transformers() -> Vec<(&'static str, Transformer)> {
    let small = Transformer {
        positions: 1024,
        batch: 8,
        steps: 5,
        ..Transformer::default()
    };
    let medium = Transformer {
        layers: 24,
        hidden: 1024,
        heads: 16,
        ..small.clone()
    };
    let evaluated = Transformer {
        steps: 6,
        evaluation: Some(Evaluation {
            every: 2,
            batches: 3,
            batch: 16,
            sequence: Lengths::List(vec![305, 374, 169, 802, 469, 554, 222, 156, 132]),
        }),
        ..small.clone()
    };
    let accumulated = |mistake: Mistake| Transformer {
        batch: 4,
        sequence: Lengths::Fixed(512),
        micro_batches: 8,
        mistake,
        steps: 4,
        ..small.clone()
    };
    let bert = |lengths: &[u64]| Transformer {
        shape: Shape::Bert,
        vocabulary: 30_522,
        positions: 512,
        batch: 32,
        sequence: Lengths::List(lengths.to_vec()),
        steps: lengths.len() as u64,
        ..Transformer::default()
    };
    let llama = Transformer {
        shape: Shape::Llama,
        layers: 16,
        hidden: 2048,
        heads: 32,
        kv_heads: 8,
        intermediate: 8192,
        vocabulary: 128_256,
        batch: 2,
        sequence: Lengths::Fixed(2048),
        precision: Precision::Half,
        steps: 5,
        ..Transformer::default()
    };
    let lora = |batch: u64, lengths: &[u64]| Transformer {
        shape: Shape::Llama,
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 32,
        intermediate: 11_008,
        vocabulary: 32_000,
        tied: false,
        padded: batch > 1,
        batch,
        sequence: Lengths::List(lengths.to_vec()),
        precision: Precision::Half,
        lora_rank: 16,
        recompute: true,
        steps: lengths.len() as u64,
        ..Transformer::default()
    };
    vec![
        ("bert_base_fixed512_amp", bert(&[512; 5])),
        (
            "bert_base_dynpad_amp",
            Transformer {
                padded: true,
                ..bert(&[
                    171, 202, 152, 237, 220, 213, 300, 259, 183, 323, 226, 363, 445, 380, 261, 256,
                    334, 271, 180, 302, 330, 279, 437, 239, 171, 211, 238, 342, 188, 223,
                ])
            },
        ),
        ("llama1b_bf16", llama.clone()),
        (
            "llama1b_bf16_ckpt",
            Transformer {
                recompute: true,
                ..llama
            },
        ),
        (
            "lora7b_varlen_ckpt_b1_short",
            lora(1, &[1674, 2355, 1213, 189, 2596, 843]),
        ),
        (
            "lora7b_varlen_ckpt_b4_uniform",
            lora(
                4,
                &[
                    606, 499, 2878, 531, 1097, 254, 1545, 2650, 736, 877, 3590, 2188,
                ],
            ),
        ),
        ("gpt2_small_amp_foreach", small.clone()),
        ("gpt2_medium_amp_foreach", medium),
        ("gpt2_small_amp_train_eval", evaluated),
        ("accum8_gpt2s_set_to_none", accumulated(Mistake::None)),
        (
            "accum8_gpt2s_forgot_zero_grad",
            accumulated(Mistake::NeverCleared),
        ),
        (
            "accum8_gpt2s_sum_losses_bug",
            accumulated(Mistake::LossesKept),
        ),
    ]
}
