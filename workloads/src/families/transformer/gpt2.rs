//! GPT-2: learned positions, pre-norm, one linear layer for queries, keys and values.

use super::model::Model;
use super::parts::{
    Batch, Builder, LayerNorm, Linear, Output, Sequences, detect_packing, positions,
};
use super::{Attention, Transformer};
use crate::families::eager::Eager;
use crate::families::eager::ops::attention::Heads;
use crate::families::eager::tensor::{Parameter, Tensor};

pub(super) struct Gpt2 {
    tokens: Parameter,
    positions: Parameter,
    layers: Vec<Layer>,
    norm: LayerNorm,
    recompute: bool,
}

#[derive(Clone)]
struct Layer {
    norm_1: LayerNorm,
    attention: Linear,
    projection: Linear,
    norm_2: LayerNorm,
    up: Linear,
    down: Linear,
    hidden: u64,
    heads: u64,
    attention_kind: Attention,
}

impl Gpt2 {
    pub(super) fn new(config: &Transformer, build: &mut Builder<'_, '_>) -> Self {
        let hidden = config.hidden;
        let wide = config.intermediate();
        Self {
            tokens: build.table(config.vocabulary, hidden),
            positions: build.table(config.positions(), hidden),
            layers: (0..config.layers)
                .map(|_| Layer {
                    norm_1: build.layer_norm(hidden),
                    attention: build.linear(hidden, 3 * hidden, true),
                    projection: build.linear(hidden, hidden, true),
                    norm_2: build.layer_norm(hidden),
                    up: build.linear(hidden, wide, true),
                    down: build.linear(wide, hidden, true),
                    hidden,
                    heads: config.heads,
                    attention_kind: config.attention,
                })
                .collect(),
            norm: build.layer_norm(hidden),
            recompute: config.recompute,
        }
    }

    fn hidden_states(
        &self,
        eager: &Eager<'_>,
        ids: &Tensor,
        shape: Sequences,
        train: bool,
    ) -> Tensor {
        let embeddings = eager.embedding(ids, &self.tokens);
        let positions = positions(eager, shape.length);
        let of_positions = eager.embedding(&positions, &self.positions);
        let mut hidden = eager.add(&embeddings, &of_positions);
        detect_packing(eager, shape);
        if train {
            hidden = eager.dropout(hidden);
        }
        for layer in &self.layers {
            hidden = if self.recompute && train {
                let layer = layer.clone();
                eager.checkpoint(&hidden, move |eager, hidden| {
                    layer.run(eager, hidden, shape, train)
                })
            } else {
                layer.run(eager, &hidden, shape, train)
            };
        }
        hidden = self.norm.run(eager, &hidden);
        drop(positions);
        hidden
    }
}

impl Model for Gpt2 {
    fn run(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Output {
        let hidden = self.hidden_states(eager, &batch.tokens, shape, train);
        let logits = eager.linear(&hidden, self.tokens.tensor(), None);
        let loss = eager.language_model_loss(&logits, &batch.labels);
        Output { loss, logits }
    }
}

impl Layer {
    fn run(&self, eager: &Eager<'_>, x: &Tensor, shape: Sequences, train: bool) -> Tensor {
        let mut hidden = self.norm_1.run(eager, x);
        let attended = self.attend(eager, &hidden, shape, train);
        hidden = eager.add(&attended, x);
        let residual = hidden.clone();
        hidden = self.norm_2.run(eager, &hidden);
        let fed = self.feed_forward(eager, &hidden, train);
        hidden = eager.add(&residual, &fed);
        drop(residual);
        drop(attended);
        hidden
    }

    fn attend(&self, eager: &Eager<'_>, hidden: &Tensor, shape: Sequences, train: bool) -> Tensor {
        let width = self.hidden;
        let all = self.attention.run_transposed(eager, hidden);
        let parts = eager.split(&all, &[width; 3]);
        let heads = Heads {
            batch: shape.batch,
            heads: self.heads,
            kv_heads: self.heads,
            size: width / self.heads,
            queries: shape.length,
            keys: shape.length,
            dropout: train,
        };
        let mut output = match &parts[..] {
            [q, k, v] => eager.attention([q, k, v], heads, &self.attention_kind.unmasked()),
            _ => all.clone(),
        };
        output = self.projection.run_transposed(eager, &output);
        if train {
            output = eager.dropout(output);
        }
        output
    }

    fn feed_forward(&self, eager: &Eager<'_>, hidden: &Tensor, train: bool) -> Tensor {
        let mut hidden = self.up.run_transposed(eager, hidden);
        hidden = activation(eager, &hidden);
        hidden = self.down.run_transposed(eager, &hidden);
        if train {
            hidden = eager.dropout(hidden);
        }
        hidden
    }
}

/// GELU as separate operators: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))).
fn activation(eager: &Eager<'_>, x: &Tensor) -> Tensor {
    let half = eager.scale(x, "mul");
    let cubic = eager.add(x, eager.scale(eager.pow(x), "mul"));
    eager.mul(half, eager.shift(eager.tanh(eager.scale(cubic, "mul"))))
}
