//! Training of transformers: permanent parameters and optimizer states, activations that are freed in
//! reverse order by the backward pass, gradients that live until the optimizer step, and many short-lived
//! temporaries.
//!
//! This is the pattern that allocators are tuned for: a stack of lifetimes with a peak at the loss.
//! Variable lengths cause fragmentation, because each step requests other sizes. Several streams and
//! compiled code are not covered.
//!
//! The models are composed of the operators of Hugging Face's and run as PyTorch 2.11 runs them;
//! [`realism`](crate::realism) compares them with recordings.

mod bert;
mod cache;
mod experts;
mod gpt2;
mod llama;
mod mask;
mod model;
mod parts;
mod self_attention;
mod training;
mod validate;

use serde::{Deserialize, Serialize};

pub(crate) use self::cache::Cache;
pub use self::cache::CacheLayout;
pub(crate) use self::experts::Routing;
pub(crate) use self::llama::Llama;
pub(crate) use self::parts::{Batch, Builder, Linear, Sequences};
use self::training::Training;
use crate::families::eager::Eager;
use crate::families::eager::ops::attention::Backend;
use crate::families::eager::optimizer::Rule;
use crate::families::eager::tensor::{DType, Tensor};
pub use crate::families::lengths::Lengths;
use crate::op::{Sink, WorkloadError};

family! {
    /// Training of a GPT-2, a BERT or a Llama.
    ///
    /// Default: GPT-2 small with one sequence of 1024 tokens per batch.
    pub struct Transformer as "transformer" {
        /// Model: `gpt2`, `bert` or `llama`.
        pub shape: Shape = Shape::Gpt2,
        /// Layers, each with attention and a feed-forward network.
        pub layers: u64 = 12,
        /// Width of the residual stream.
        pub hidden: u64 = 768,
        /// Attention heads.
        pub heads: u64 = 12,
        /// Key-value heads, each shared by a group of attention heads; 0 for one per attention head.
        pub kv_heads: u64 = 0,
        /// Width of the feed-forward network; 0 for four times `hidden`.
        pub intermediate: u64 = 0,
        /// Tokens in the vocabulary.
        pub vocabulary: u64 = 50_257,
        /// Whether the output layer shares its weight with the token embedding; only Llama may have a separate
        /// weight.
        pub tied: bool = true,
        /// Learned positions; 0 for the length of the longest sequence.
        pub positions: u64 = 0,
        /// Sequences in a batch.
        pub batch: u64 = 1,
        /// Tokens in a sequence.
        pub sequence: Lengths = Lengths::Fixed(1024),
        /// Data types: `mixed` computes products in 2 bytes, `half` stores everything in 2, `single` in 4.
        pub precision: Precision = Precision::Mixed,
        /// Optimizer: `adamw`, `adamw_fused`, `momentum` or `sgd`.
        pub optimizer: Optimizer = Optimizer::AdamW,
        /// Whether the optimizer keeps copies of the parameters in 4 bytes and computes with them.
        pub master_weights: bool = false,
        /// Devices that share gradients and optimizer states; this program runs on one of them.
        pub shards: u64 = 1,
        /// MiB of a bucket of gradients that devices exchange; 0 for a single device. With one shard buckets
        /// are permanent; with more they are temporary.
        pub bucket_mib: u64 = 0,
        /// Attention: `flash` without scores in memory, or `materialised` with all scores in memory.
        pub attention: Attention = Attention::Flash,
        /// Whether the sequences of a batch are padded to `sequence`, so that attention takes a mask; not for
        /// GPT-2.
        pub padded: bool = false,
        /// Rank of LoRA adapters of all linear layers, in 4 bytes, trained instead of the parameters; 0 for
        /// none. Only for Llama.
        pub lora_rank: u64 = 0,
        /// Whether activation checkpointing keeps only the input of each layer and recomputes the rest.
        pub recompute: bool = false,
        /// Batches per update, with gradient accumulation.
        pub micro_batches: u64 = 1,
        /// The programmer's mistake: `none`, `zeroed_in_place`, `never_cleared`, `losses_kept` or
        /// `outputs_kept`.
        pub mistake: Mistake = Mistake::None,
        /// Evaluation between training steps: `every`, `batches`, `batch` and `sequence`.
        pub evaluation: Option<Evaluation> = None,
        /// Training steps.
        pub steps: u64 = 3,
        /// Seed of the lengths.
        pub seed: u64 = 1,
    }
}

/// The model to train.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// GPT-2: learned positions, pre-norm.
    Gpt2,
    /// BERT: post-norm, with a classifier at the end.
    Bert,
    /// Llama: rotary positions, grouped-query attention, a gated feed-forward network.
    Llama,
}

/// The data types of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Parameters and residual stream in 4 bytes, matrix products in 2 (automatic mixed precision).
    Mixed,
    /// Everything in 2 bytes.
    Half,
    /// Everything in 4 bytes.
    Single,
}

impl Precision {
    /// The type of parameters.
    pub(crate) fn stored(self) -> DType {
        match self {
            Self::Mixed | Self::Single => DType::Single,
            Self::Half => DType::Half,
        }
    }
}

/// The optimizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// AdamW: two states per parameter, and scratch of the size of all parameters.
    #[serde(rename = "adamw")]
    AdamW,
    /// AdamW in one kernel, without scratch.
    #[serde(rename = "adamw_fused")]
    AdamWFused,
    /// SGD with momentum: one state per parameter.
    Momentum,
    /// SGD: no state.
    Sgd,
}

impl Optimizer {
    pub(crate) fn rule(self) -> Rule {
        match self {
            Self::AdamW => Rule::AdamW,
            Self::AdamWFused => Rule::AdamWFused,
            Self::Momentum => Rule::Momentum,
            Self::Sgd => Rule::Sgd,
        }
    }
}

/// The implementation of attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// A fused kernel that never stores the scores.
    Flash,
    /// Separate operators that keep the scores of all pairs of tokens for the backward pass.
    Materialised,
}

impl Attention {
    fn unmasked(self) -> Backend<'static> {
        match self {
            Self::Flash => Backend::Flash,
            Self::Materialised => Backend::Math,
        }
    }

    /// The backend for an optional mask.
    fn backend(self, mask: Option<&Tensor>) -> Backend<'_> {
        match (self, mask) {
            (Self::Flash, Some(mask)) => Backend::Efficient(mask),
            _ => self.unmasked(),
        }
    }
}

/// A mistake that costs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// None: gradients are freed after each update.
    None,
    /// Gradients are zeroed in place instead of being freed.
    ZeroedInPlace,
    /// Gradients are never cleared and keep accumulating.
    NeverCleared,
    /// Losses of micro-batches are summed as tensors, with one backward pass from the sum: the
    /// activations of all micro-batches stay live.
    LossesKept,
    /// The model's outputs are kept in a list.
    OutputsKept,
}

/// Evaluation without a backward pass, between training steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// Training steps between evaluations.
    pub every: u64,
    /// Batches per evaluation.
    pub batches: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// Tokens in a sequence.
    pub sequence: Lengths,
}

impl Transformer {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate("transformer")?;
        self.train(None, sink)
    }

    /// Runs the training, with experts instead of feed-forward networks if there is a routing.
    pub(crate) fn train(
        &self,
        routing: Option<Routing>,
        sink: &mut dyn Sink,
    ) -> Result<(), WorkloadError> {
        let eager = Eager::new(sink);
        let mut training = Training::new(self, routing, &eager);
        training.run();
        let alive = training.into_alive();
        eager.finish(alive)
    }
}
