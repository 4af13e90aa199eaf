//! BERT: a post-norm encoder with a classifier of whole sequences.

use super::model::Model;
use super::parts::{Batch, Builder, LayerNorm, Linear, Output, Sequences};
use super::{Attention, Transformer, mask};
use crate::families::eager::Eager;
use crate::families::eager::ops::attention::Heads;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

/// Segments of a sequence, and classes of sequences.
const SEGMENTS: u64 = 2;
const CLASSES: u64 = 2;

pub(super) struct Bert {
    words: Parameter,
    positions: Parameter,
    segments: Parameter,
    norm: LayerNorm,
    layers: Vec<Layer>,
    pooler: Linear,
    classifier: Linear,
    /// Buffers of positions and segments, for the longest sequence.
    buffers: [Tensor; 2],
    padded: bool,
    recompute: bool,
}

#[derive(Clone)]
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: LinearAndNorm,
    up: Linear,
    down: LinearAndNorm,
    heads: u64,
    attention: Attention,
}

/// A linear layer, the sum with the residual, and a norm.
#[derive(Clone)]
struct LinearAndNorm(Linear, LayerNorm);

impl Bert {
    pub(super) fn new(config: &Transformer, build: &mut Builder<'_, '_>) -> Self {
        let hidden = config.hidden;
        let wide = config.intermediate();
        let positions = config.positions();
        let words = build.table(config.vocabulary, hidden);
        let of_positions = build.table(positions, hidden);
        let segments = build.table(SEGMENTS, hidden);
        let norm = build.layer_norm(hidden);
        let and_norm = |build: &mut Builder<'_, '_>, narrow: u64| {
            LinearAndNorm(build.linear(narrow, hidden, true), build.layer_norm(hidden))
        };
        let layers = (0..config.layers)
            .map(|_| Layer {
                query: build.linear(hidden, hidden, true),
                key: build.linear(hidden, hidden, true),
                value: build.linear(hidden, hidden, true),
                output: and_norm(build, hidden),
                up: build.linear(hidden, wide, true),
                down: and_norm(build, wide),
                heads: config.heads,
                attention: config.attention,
            })
            .collect();
        let pooler = build.linear(hidden, hidden, true);
        let classifier = build.linear(hidden, CLASSES, true);
        let eager = build.eager;
        let buffer = |()| eager.alloc(positions, positions, DType::Long, "_to_copy");
        Self {
            words,
            positions: of_positions,
            segments,
            norm,
            layers,
            pooler,
            classifier,
            buffers: [(); 2].map(buffer),
            padded: config.padded,
            recompute: config.recompute,
        }
    }

    fn embeddings(&self, eager: &Eager<'_>, batch: &Batch, train: bool) -> Tensor {
        let (ids, segments) = (&batch.tokens, &batch.segments);
        let words = eager.embedding(ids, &self.words);
        let of_segments = eager.embedding(segments, &self.segments);
        let mut hidden = eager.add(&words, &of_segments);
        let length = ids.width();
        let positions = self.buffers[0].part(length, length);
        let of_positions = eager.embedding(&positions, &self.positions);
        hidden = eager.add(&hidden, &of_positions);
        hidden = self.norm.run(eager, &hidden);
        if train {
            hidden = eager.dropout(hidden);
        }
        drop(words);
        drop(of_segments);
        drop(of_positions);
        hidden
    }

    fn encoded(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Tensor {
        let embedded = self.embeddings(eager, batch, train);
        let mask = mask::bidirectional(eager, &batch.padding_mask, shape, self.padded);
        let mut hidden = embedded.clone();
        for layer in &self.layers {
            hidden = if self.recompute && train {
                let (layer, mask) = (layer.clone(), mask.clone());
                eager.checkpoint(&hidden, move |eager, hidden| {
                    layer.run(eager, hidden, mask.as_ref(), shape, train)
                })
            } else {
                layer.run(eager, &hidden, mask.as_ref(), shape, train)
            };
        }
        let first = eager.slice(&hidden, shape.batch * hidden.width(), hidden.width());
        let mut pooled = self.pooler.run(eager, first);
        pooled = eager.tanh(&pooled);
        drop(mask);
        drop(embedded);
        if train {
            pooled = eager.dropout(&pooled);
        }
        let logits = self.classifier.run(eager, &pooled);
        drop(pooled);
        drop(hidden);
        logits
    }
}

impl Model for Bert {
    /// One label per sequence.
    fn batch(&self, eager: &Eager<'_>, shape: Sequences) -> Batch {
        Batch {
            tokens: shape.ids(eager),
            segments: shape.ids(eager),
            padding_mask: shape.ids(eager),
            labels: eager.alloc(shape.batch, 1, DType::Long, "_to_copy"),
        }
    }

    fn run(&self, eager: &Eager<'_>, batch: &Batch, shape: Sequences, train: bool) -> Output {
        let logits = self.encoded(eager, batch, shape, train);
        let loss = eager.cross_entropy(&logits, &batch.labels);
        Output { loss, logits }
    }
}

impl Layer {
    fn run(
        &self,
        eager: &Eager<'_>,
        x: &Tensor,
        mask: Option<&Tensor>,
        shape: Sequences,
        train: bool,
    ) -> Tensor {
        let attended = self.attend(eager, x, mask, shape, train);
        let attended = self.output.run(eager, attended, x, train);
        let up = eager.gelu(self.up.run(eager, &attended));
        self.down.run(eager, up, &attended, train)
    }

    fn attend(
        &self,
        eager: &Eager<'_>,
        x: &Tensor,
        mask: Option<&Tensor>,
        shape: Sequences,
        train: bool,
    ) -> Tensor {
        let query = self.query.run(eager, x);
        let key = self.key.run(eager, x);
        let value = self.value.run(eager, x);
        let heads = Heads {
            batch: shape.batch,
            heads: self.heads,
            kv_heads: self.heads,
            size: x.width() / self.heads,
            queries: shape.length,
            keys: shape.length,
            dropout: train,
        };
        let backend = self.attention.backend(mask);
        eager.attention([&query, &key, &value], heads, &backend)
    }
}

impl LinearAndNorm {
    fn run(&self, eager: &Eager<'_>, x: Tensor, residual: &Tensor, train: bool) -> Tensor {
        let mut hidden = self.0.run(eager, x);
        if train {
            hidden = eager.dropout(&hidden);
        }
        self.1.run(eager, eager.add(&hidden, residual))
    }
}
