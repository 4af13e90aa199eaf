//! Training of transformers: parameters and optimizer state that stay, activations that are kept for
//! the way back and go in reverse, gradients that live until the optimizer has used them, and many
//! short-lived temporaries.
//!
//! It shows what allocators are tuned for: a stack of lifetimes with a bump at the loss. With
//! variable lengths it shows fragmentation, since each step asks for other sizes. It does not show
//! several streams or compiled code.
//!
//! Models are composed of operators as those of Hugging Face are, and run as PyTorch 2.11 runs them;
//! [`realism`](crate::realism) compares them with recordings.

mod bert;
mod experts;
mod gpt2;
mod llama;
mod mask;
mod model;
mod parts;
mod self_attention;
mod training;
mod validate;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

pub(crate) use self::experts::Routing;
pub(crate) use self::llama::Llama;
pub(crate) use self::parts::{Batch, Builder, Linear, Sequences};
use self::training::Training;
use crate::families::eager::Eager;
use crate::families::eager::ops::attention::Way;
use crate::families::eager::optimizer::Rule;
use crate::families::eager::tensor::{DType, Tensor};
pub use crate::families::lengths::Lengths;
use crate::op::{Sink, Workload, WorkloadError};

/// Training of a GPT-2, a BERT or a Llama.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Transformer {
    /// What it is called in results.
    pub name: String,
    /// Which model.
    pub shape: Shape,
    /// Blocks of attention and feed-forward network.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Heads of keys and values, which groups of heads share; 0 for as many as there are heads.
    pub kv_heads: u64,
    /// Width of the feed-forward network; 0 for four times that of the residual stream.
    pub intermediate: u64,
    /// Tokens in the vocabulary.
    pub vocabulary: u64,
    /// Whether logits are products with the table of tokens, as in GPT-2; BERT has none. Llama may
    /// have a parameter of its own for them.
    pub tied: bool,
    /// Positions that can be learned; 0 for as many as the longest sequence has.
    pub positions: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// Tokens in a sequence.
    pub sequence: Lengths,
    /// What numbers are stored as.
    pub precision: Precision,
    /// What updates the parameters.
    pub optimizer: Optimizer,
    /// Whether the optimizer has copies of the parameters in 4 bytes, and computes with those.
    pub master_weights: bool,
    /// Devices that divide gradients and optimizer state among them; this is one of them.
    pub shards: u64,
    /// MiB of gradients that devices exchange at a time; 0 if there is only one device. With one
    /// shard all devices have everything, and buckets stay; with more they come and go.
    pub bucket_mib: u64,
    /// How attention is computed.
    pub attention: Attention,
    /// Whether sequences of a batch are of several lengths, the longest of which is given: attention
    /// then takes a mask. GPT-2 is not trained like that.
    pub padded: bool,
    /// Rank of the adapters of all products in layers, in 4 bytes, which are trained in place of the
    /// parameters; 0 for none. Only for Llama.
    pub lora_rank: u64,
    /// Whether only the input of each layer is kept, and the rest computed again when it is needed.
    pub recompute: bool,
    /// Batches whose gradients are added up before each update.
    pub micro_batches: u64,
    /// What the programmer got wrong.
    pub mistake: Mistake,
    /// Batches without a way back, between the steps.
    pub evaluation: Option<Evaluation>,
    /// Training steps.
    pub steps: u64,
    /// Determines the lengths.
    pub seed: u64,
}

/// Which model is trained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// GPT-2: learned positions, norms before each part.
    Gpt2,
    /// BERT: norms after each part, a classifier at the end.
    Bert,
    /// Llama: rotated positions, grouped heads, a gated feed-forward network.
    Llama,
}

/// What numbers are stored as.
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
    /// What parameters are stored as.
    pub(crate) fn stored(self) -> DType {
        match self {
            Self::Mixed | Self::Single => DType::Single,
            Self::Half => DType::Half,
        }
    }
}

/// What updates the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// Two numbers of state for each parameter, and as much scratch as there are parameters.
    #[serde(rename = "adamw")]
    AdamW,
    /// The same in one kernel, without scratch.
    #[serde(rename = "adamw_fused")]
    AdamWFused,
    /// One number of state for each parameter.
    Momentum,
    /// No state.
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

/// How attention is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// Scores are never in memory.
    Flash,
    /// Scores of all pairs of tokens are kept for the way back.
    Materialised,
}

impl Attention {
    fn unmasked(self) -> Way<'static> {
        match self {
            Self::Flash => Way::Flash,
            Self::Materialised => Way::Materialised,
        }
    }

    /// With a mask, if there is one.
    fn way(self, mask: Option<&Tensor>) -> Way<'_> {
        match (self, mask) {
            (Self::Flash, Some(mask)) => Way::Masked(mask),
            _ => self.unmasked(),
        }
    }
}

/// A mistake that costs memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mistake {
    /// None: gradients are given back after each update.
    None,
    /// Gradients are set to zero where they are, and stay.
    ZeroedInPlace,
    /// Gradients are never cleared. They stay where they are, and go on being added to.
    NeverCleared,
    /// Losses of micro-batches are added up as tensors and the way back is taken from the sum: the
    /// activations of all of them stay until then.
    LossesKept,
    /// What the model returns is kept in a list.
    OutputsKept,
}

/// Batches without a way back, between the steps.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// After how many training steps.
    pub every: u64,
    /// Batches each time.
    pub batches: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// Tokens in a sequence.
    pub sequence: Lengths,
}

impl Default for Transformer {
    /// GPT-2 small, one sequence of 1024 tokens a batch.
    fn default() -> Self {
        Self {
            name: "transformer".to_owned(),
            shape: Shape::Gpt2,
            layers: 12,
            hidden: 768,
            heads: 12,
            kv_heads: 0,
            intermediate: 0,
            vocabulary: 50_257,
            tied: true,
            positions: 0,
            batch: 1,
            sequence: Lengths::Fixed(1024),
            precision: Precision::Mixed,
            optimizer: Optimizer::AdamW,
            master_weights: false,
            shards: 1,
            bucket_mib: 0,
            attention: Attention::Flash,
            padded: false,
            lora_rank: 0,
            recompute: false,
            micro_batches: 1,
            mistake: Mistake::None,
            evaluation: None,
            steps: 3,
            seed: 1,
        }
    }
}

impl Workload for Transformer {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate("transformer")?;
        self.train(None, sink)
    }
}

impl Transformer {
    /// Runs it, perhaps with experts in place of feed-forward networks.
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
