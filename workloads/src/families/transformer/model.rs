//! The interface of models.

use super::parts::{Batch, Output, Sequences};
use crate::families::eager::Eager;

/// A model that can be trained.
pub(super) trait Model {
    /// Copies a batch from the host.
    fn batch(&self, eager: &Eager<'_>, shape: Sequences) -> Batch {
        Batch::of(shape.ids(eager))
    }

    /// Runs the forward pass on a batch.
    fn run(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Output;
}
