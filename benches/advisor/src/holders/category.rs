//! Purposes of memory.

use schemars::JsonSchema;
use serde::Serialize;

/// What memory is for.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema, Serialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Parameters and buffers of the model, including gathered shards.
    Parameters,
    /// Gradients of parameters, which the optimizer reads.
    Gradients,
    /// State that the optimizer keeps.
    OptimizerState,
    /// Results of the forward pass, including those recomputed for the backward pass.
    Activations,
    /// Inputs of the model.
    Inputs,
    /// Intermediate results of the backward pass and of the optimizer, freed before the step ends.
    Temporaries,
    /// Workspace of cuBLAS, cuDNN and others.
    Workspace,
    /// Not shown by the evidence, or another purpose.
    #[default]
    Unknown,
}

impl Category {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::Activations,
        Self::Inputs,
        Self::Temporaries,
        Self::Workspace,
        Self::Unknown,
    ];

    /// The name in a sentence: `optimizer state`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer state",
            Self::Activations => "activations",
            Self::Inputs => "inputs",
            Self::Temporaries => "temporaries",
            Self::Workspace => "workspace",
            Self::Unknown => "unknown",
        }
    }
}
