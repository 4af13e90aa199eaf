//! Purposes of memory.

use schemars::JsonSchema;
use serde::Serialize;

coalesce_alloc::named! {
    /// What memory is for, with the name in a sentence.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Category {
        /// Parameters and buffers of the model, including gathered shards.
        Parameters = "parameters",
        /// Gradients of parameters, which the optimizer reads.
        Gradients = "gradients",
        /// State that the optimizer keeps.
        OptimizerState = "optimizer state",
        /// Results of the forward pass, including those recomputed for the backward pass.
        Activations = "activations",
        /// Inputs of the model.
        Inputs = "inputs",
        /// Intermediate results of the backward pass and of the optimizer, freed before the step ends.
        Temporaries = "temporaries",
        /// Workspace of cuBLAS, cuDNN and others.
        Workspace = "workspace",
        /// Not shown by the evidence, or another purpose.
        #[default]
        Unknown = "unknown",
    }
}
