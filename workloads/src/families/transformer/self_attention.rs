//! Grouped-query self-attention with rotary positions.

use std::rc::Rc;

use super::cache::Cache;
use super::parts::{Builder, Linear, Sequences};
use super::{Attention, Transformer};
use crate::families::eager::Eager;
use crate::families::eager::ops::attention::{Backend, Heads};
use crate::families::eager::tensor::{DType, Tensor};

/// Grouped-query attention with rotary positions.
#[derive(Clone)]
pub(super) struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    layer: usize,
    heads: u64,
    kv_heads: u64,
    attention: Attention,
}

/// Tensors shared by all layers of a pass.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) shape: Sequences,
    /// Positions of the tokens, passed to every layer.
    pub(super) _positions: Tensor,
    pub(super) cosine: Tensor,
    pub(super) sine: Tensor,
    pub(super) mask: Option<Tensor>,
    pub(super) cache: Option<Rc<Cache>>,
}

impl SelfAttention {
    pub(super) fn new(config: &Transformer, layer: usize, build: &mut Builder<'_, '_>) -> Self {
        let hidden = config.hidden;
        let shared = hidden / config.heads * config.kv_heads();
        Self {
            query: build.linear(hidden, hidden, false),
            key: build.linear(hidden, shared, false),
            value: build.linear(hidden, shared, false),
            output: build.linear(hidden, hidden, false),
            layer,
            heads: config.heads,
            kv_heads: config.kv_heads(),
            attention: config.attention,
        }
    }

    /// The linear layers that can have an adapter.
    pub(super) fn linears(&mut self) -> [&mut Linear; 4] {
        [
            &mut self.query,
            &mut self.key,
            &mut self.value,
            &mut self.output,
        ]
    }

    pub(super) fn is_adapted(&self) -> bool {
        self.query.is_adapted()
    }

    pub(super) fn run(&self, eager: &Eager<'_>, x: &Tensor, context: &Context) -> Tensor {
        let size = x.width() / self.heads;
        let shape = context.shape;
        let mut query = eager.per_head(&self.query.run(eager, x), size);
        let mut key = eager.per_head(&self.key.run(eager, x), size);
        let mut value = self.value.run(eager, x);
        let rotated = (
            rotated(eager, &query, context),
            rotated(eager, &key, context),
        );
        (query, key) = rotated;
        let mut past = 0;
        if let Some(cache) = &context.cache {
            past = cache.tokens();
            let width = shape.batch * self.kv_heads * size;
            [key, value] = cache.extended(eager, self.layer, [key, value], width);
        }
        let mut heads = Heads {
            batch: shape.batch,
            heads: self.heads,
            kv_heads: self.kv_heads,
            size,
            queries: shape.length,
            keys: past + shape.length,
            dropout: false,
        };
        let backend = self.attention.backend(context.mask.as_ref());
        let groups = self.heads / self.kv_heads;
        let is_masked = matches!(backend, Backend::Efficient(_)) && groups > 1;
        let mut output = if is_masked && shape.length > 1 {
            // The kernel does not support groups: keys and values are repeated for each head.
            let [key, value] = [&key, &value].map(|shared| eager.repeat(shared, groups));
            heads.kv_heads = self.heads;
            eager.attention([&query, &key, &value], heads, &backend)
        } else if is_masked {
            // The heads of a group become queries of one head.
            (heads.heads, heads.queries) = (self.kv_heads, groups);
            eager.contiguous(&eager.attention([&query, &key, &value], heads, &backend))
        } else {
            eager.attention([&query, &key, &value], heads, &backend)
        };
        output = self.output.run(eager, output.reshaped(x.width()));
        drop(query);
        drop(key);
        output
    }
}

/// Rotates pairs of elements by the position of their token.
pub(super) fn rotated(eager: &Eager<'_>, x: &Tensor, context: &Context) -> Tensor {
    let straight = eager.mul(x, &context.cosine);
    let across = eager.mul(eager.rotate_half(x), &context.sine);
    eager.add(straight, across)
}

/// Keeps the frequencies of the rotations and their original values.
pub(super) fn keep_frequencies(eager: &Eager<'_>, head_size: u64) {
    for _ in 0..2 {
        eager.keep(eager.alloc(head_size / 2, 1, DType::Single, "_to_copy"));
    }
}

/// Computes cosines and sines for all positions.
pub(super) fn rotations(
    eager: &Eager<'_>,
    length: u64,
    head_size: u64,
    dtype: DType,
) -> [Tensor; 2] {
    let elements = length * head_size;
    let new =
        |part: u64, tag: &str| eager.alloc(elements / part, head_size / part, DType::Single, tag);
    let positions = eager.alloc(length, 1, DType::Single, "_to_copy");
    let angles = new(2, "mul");
    drop(positions);
    let doubled = new(1, "cat");
    let scaled = ["cos", "sin"].map(|function| {
        let values = new(1, function);
        let scaled = new(1, "mul");
        drop(values);
        scaled
    });
    let lowered = scaled.each_ref().map(|scaled| eager.to(scaled, dtype));
    drop(angles);
    drop(doubled);
    drop(scaled);
    lowered
}
