//! Ready-made members of the families.

use crate::fragmentation::Fragmentation;
use crate::grad_accumulation::{GradAccumulation, Mistake};
use crate::op::Workload;
use crate::transformer::{Lengths, Optimizer, Precision, Transformer};

/// All presets, each under a name of its own.
#[must_use]
pub fn all() -> Vec<Box<dyn Workload>> {
    let mut presets: Vec<Box<dyn Workload>> = Vec::new();
    for transformer in transformers() {
        presets.push(Box::new(transformer));
    }
    for fragmentation in fragmentations() {
        presets.push(Box::new(fragmentation));
    }
    for accumulation in grad_accumulations() {
        presets.push(Box::new(accumulation));
    }
    presets
}

/// GPT-2 small as it is usually trained, the same with lengths that change at every step, and with
/// activations computed again.
fn transformers() -> [Transformer; 3] {
    let fixed = gpt2_small();
    let varying = Transformer {
        name: "transformer_varying_lengths".to_owned(),
        sequence: Lengths::Uniform {
            min: 128,
            max: 1024,
        },
        steps: 12,
        ..fixed.clone()
    };
    let recomputed = Transformer {
        name: "transformer_recomputed".to_owned(),
        recompute: true,
        ..fixed.clone()
    };
    [fixed, varying, recomputed]
}

/// GPT-2 small: 124 million parameters, batches of 8 × 1024 tokens, mixed precision, AdamW.
#[must_use]
pub fn gpt2_small() -> Transformer {
    Transformer {
        name: "transformer_gpt2_small".to_owned(),
        layers: 12,
        hidden: 768,
        heads: 12,
        vocabulary: 50_257,
        batch: 8,
        sequence: Lengths::Fixed(1024),
        precision: Precision::Mixed,
        optimizer: Optimizer::AdamW,
        recompute: false,
        steps: 5,
        seed: 1,
    }
}

fn fragmentations() -> [Fragmentation; 3] {
    let rounds = Fragmentation {
        name: "fragmentation_large".to_owned(),
        blocks: 64,
        bytes: 12 << 20,
        jitter: true,
        every: 2,
        large: 16,
        large_bytes: 16 << 20,
        small: 16,
        rounds: 20,
        seed: 2,
    };
    let small = Fragmentation {
        name: "fragmentation_small".to_owned(),
        blocks: 2000,
        bytes: 48 << 10,
        large_bytes: 96 << 10,
        large: 400,
        small: 600,
        ..rounds.clone()
    };
    [Fragmentation::article(), rounds, small]
}

fn grad_accumulations() -> [GradAccumulation; 3] {
    let correct = GradAccumulation {
        name: "grad_accumulation".to_owned(),
        layers: 24,
        parameter_bytes: 28 << 20,
        activation_bytes: 48 << 20,
        micro_batches: 4,
        steps: 4,
        mistake: Mistake::None,
    };
    let with = |name: &str, mistake: Mistake| GradAccumulation {
        name: name.to_owned(),
        mistake,
        ..correct.clone()
    };
    let never = with("grad_accumulation_never_cleared", Mistake::NeverCleared);
    let losses = with("grad_accumulation_losses_kept", Mistake::LossesKept);
    [correct, never, losses]
}
