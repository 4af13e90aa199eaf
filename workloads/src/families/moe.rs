//! Training of a mixture of experts: a transformer that routes each token to a few of many feed-forward
//! networks.
//!
//! This fragments memory even with batches of one size: the number of tokens routed to an expert varies
//! by expert, layer and step, and so do its activations. Experts on several devices and fused kernels for
//! all experts are not covered.
//!
//! Modelled on Hugging Face's Mixtral with a list of experts, in 2 bytes per element.

use crate::families::lengths::Lengths;
use crate::families::parameters::{below, refuse_if, within};
use crate::families::transformer::{Optimizer, Precision, Routing, Shape, Transformer};
use crate::op::{Sink, WorkloadError};

family! {
    /// Training of a transformer that routes each token to a few of many experts.
    ///
    /// Default: eight small experts.
    pub struct Moe as "moe" {
        /// Layers, each with attention and experts.
        pub layers: u64 = 4,
        /// Width of the residual stream.
        pub hidden: u64 = 512,
        /// Attention heads.
        pub heads: u64 = 8,
        /// Key-value heads, each shared by a group of attention heads; 0 for one per attention head.
        pub kv_heads: u64 = 0,
        /// Width of an expert; 0 for four times `hidden`.
        pub intermediate: u64 = 1792,
        /// Tokens in the vocabulary.
        pub vocabulary: u64 = 32_000,
        /// Sequences in a batch.
        pub batch: u64 = 2,
        /// Tokens in a sequence.
        pub sequence: Lengths = Lengths::Fixed(1024),
        /// Experts in each layer.
        pub experts: u64 = 8,
        /// Experts per token.
        pub top_k: u64 = 2,
        /// Imbalance of the routing: the most tokens of an expert relative to the fewest. With 1 all are
        /// equal.
        pub skew: u64 = 4,
        /// Optimizer: `adamw`, `adamw_fused`, `momentum` or `sgd`.
        pub optimizer: Optimizer = Optimizer::AdamW,
        /// Whether activation checkpointing keeps only the input of each layer and recomputes the rest.
        pub recompute: bool = false,
        /// Training steps.
        pub steps: u64 = 4,
        /// Seed of the lengths and of the routing.
        pub seed: u64 = 1,
    }
}

impl Moe {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let transformer = self.transformer();
        transformer.validate(FAMILY)?;
        self.validate()?;
        let routing = Routing {
            experts: self.experts,
            top_k: self.top_k,
            skew: self.skew,
            seed: self.seed.wrapping_add(2),
        };
        transformer.train(Some(routing), sink)
    }
}

const FAMILY: &str = "moe";

impl Moe {
    fn validate(&self) -> Result<(), WorkloadError> {
        within(
            FAMILY,
            [
                ("experts", self.experts, 1..=below(16)),
                ("top_k", self.top_k, 1..=self.experts),
                ("skew", self.skew, 1..=below(16)),
                (
                    "layers times experts",
                    self.layers.saturating_mul(self.experts),
                    1..=below(18),
                ),
            ],
        )?;
        let tokens = u128::from(self.batch) * u128::from(self.sequence.longest());
        let masks = tokens * u128::from(self.experts) * u128::from(self.top_k) * 8;
        refuse_if(
            FAMILY,
            [(masks >= 1 << 60, "a tensor would have 2^60 bytes or more")],
        )
    }

    /// The transformer around the experts.
    fn transformer(&self) -> Transformer {
        Transformer {
            name: self.name.clone(),
            shape: Shape::Llama,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads: self.kv_heads,
            intermediate: self.intermediate,
            vocabulary: self.vocabulary,
            tied: false,
            batch: self.batch,
            sequence: self.sequence.clone(),
            precision: Precision::Half,
            optimizer: self.optimizer,
            recompute: self.recompute,
            steps: self.steps,
            seed: self.seed,
            ..Transformer::default()
        }
    }
}
