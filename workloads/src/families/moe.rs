//! Training of a mixture of experts: a transformer whose feed-forward networks are many, of which
//! each token is sent to a few.
//!
//! It shows fragmentation that a fixed batch does not spare a program: how many tokens an expert is
//! sent differs by expert, layer and step, and so do its activations. It does not show experts on
//! several devices, nor kernels that compute all experts at once.
//!
//! It is modelled on Hugging Face's Mixtral with a list of experts, in 2 bytes a number.

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use crate::families::lengths::Lengths;
use crate::families::transformer::{Optimizer, Precision, Routing, Shape, Transformer};
use crate::op::{Sink, Workload, WorkloadError};

/// Training of a transformer in which each token is sent to a few of many experts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Moe {
    /// What it is called in results.
    pub name: String,
    /// Blocks of attention and experts.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Heads of keys and values, which groups of heads share; 0 for as many as there are heads.
    pub kv_heads: u64,
    /// Width of an expert; 0 for four times that of the residual stream.
    pub intermediate: u64,
    /// Tokens in the vocabulary.
    pub vocabulary: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// Tokens in a sequence.
    pub sequence: Lengths,
    /// Experts in each layer.
    pub experts: u64,
    /// Experts that each token is sent to.
    pub top_k: u64,
    /// How uneven tokens are spread: how many times as busy as another an expert may be. With 1 all
    /// are sent the same.
    pub skew: u64,
    /// What updates the parameters.
    pub optimizer: Optimizer,
    /// Whether only the input of each layer is kept, and the rest computed again when it is needed.
    pub recompute: bool,
    /// Training steps.
    pub steps: u64,
    /// Determines the lengths, and who is sent what.
    pub seed: u64,
}

impl Default for Moe {
    /// Eight small experts.
    fn default() -> Self {
        Self {
            name: "moe".to_owned(),
            layers: 4,
            hidden: 512,
            heads: 8,
            kv_heads: 0,
            intermediate: 1792,
            vocabulary: 32_000,
            batch: 2,
            sequence: Lengths::Fixed(1024),
            experts: 8,
            top_k: 2,
            skew: 4,
            optimizer: Optimizer::AdamW,
            recompute: false,
            steps: 4,
            seed: 1,
        }
    }
}

impl Workload for Moe {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
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
        let tokens = u128::from(self.batch) * u128::from(self.sequence.longest());
        let reason = if !(1..1 << 16).contains(&self.experts) {
            format!(
                "experts is {}; it must be at least 1 and below 2^16",
                self.experts
            )
        } else if !(1..=self.experts).contains(&self.top_k) {
            format!(
                "top_k is {}; there are {} experts",
                self.top_k, self.experts
            )
        } else if !(1..1 << 16).contains(&self.skew) {
            format!(
                "skew is {}; it must be at least 1 and below 2^16",
                self.skew
            )
        } else if self.layers * self.experts >= 1 << 18 {
            "layers times experts must be below 2^18".to_owned()
        } else if tokens * u128::from(self.experts) * u128::from(self.top_k) * 8 >= 1 << 60 {
            "a tensor would have 2^60 bytes or more".to_owned()
        } else {
            return Ok(());
        };
        Err(WorkloadError::Parameter {
            family: FAMILY,
            reason,
        })
    }

    /// The same without experts.
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
