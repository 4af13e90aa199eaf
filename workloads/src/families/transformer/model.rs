//! What all models have in common.

use super::Transformer;
use super::bert::Bert;
use super::experts::Routing;
use super::gpt2::Gpt2;
use super::llama::Llama;
use super::parts::{Batch, Builder, Output, Sequences};
use crate::families::eager::Eager;

pub(super) trait Model {
    /// The tensors of a batch, from the host.
    fn batch(&self, eager: &Eager<'_>, shape: Sequences) -> Batch {
        Batch::of(shape.ids(eager))
    }

    /// The loss of a batch and all that is returned with it.
    fn run(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Output;
}

/// The model that a run asks for.
pub(super) fn new(
    config: &Transformer,
    routing: Option<Routing>,
    build: &mut Builder<'_, '_>,
) -> Box<dyn Model> {
    match config.shape {
        super::Shape::Gpt2 => Box::new(Gpt2::new(config, build)),
        super::Shape::Bert => Box::new(Bert::new(config, build)),
        super::Shape::Llama => Box::new(Llama::new(config, routing, build)),
    }
}
