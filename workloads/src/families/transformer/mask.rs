//! Attention masks, computed by a dozen small operators.

use super::parts::Sequences;
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

/// A causal mask: tokens attend to earlier tokens that are not padding.
pub(super) fn causal(
    eager: &Eager<'_>,
    padding_mask: &Tensor,
    shape: Sequences,
    keys: u64,
) -> Tensor {
    let padding_mask = eager.to(padding_mask, DType::Bool);
    let times = if shape.length > 1 { 2 } else { 1 };
    for _ in 0..times {
        let sum = longs(eager, 1, "sum");
        drop(longs(eager, shape.batch * keys, "_to_copy"));
        let equal = flags(eager, 1, "eq");
        drop(sum);
        drop(equal);
    }
    combined(
        eager,
        shape,
        keys,
        ("le", shape.length * keys),
        padding_mask,
    )
}

/// A bidirectional mask: tokens attend to all that are not padding. Checks for padding first; `None` if
/// there is none.
pub(super) fn bidirectional(
    eager: &Eager<'_>,
    padding_mask: &Tensor,
    shape: Sequences,
    padded: bool,
) -> Option<Tensor> {
    let keys = shape.length;
    let padding_mask = eager.to(padding_mask, DType::Bool);
    drop(flags(eager, 1, "all"));
    padded.then(|| combined(eager, shape, keys, ("ge", keys), padding_mask))
}

fn flags(eager: &Eager<'_>, elements: u64, tag: &str) -> Tensor {
    eager.alloc(elements, 1, DType::Bool, tag)
}

fn longs(eager: &Eager<'_>, elements: u64, tag: &str) -> Tensor {
    eager.alloc(elements, 1, DType::Long, tag)
}

/// Combines a rule on positions with the padding mask, for all pairs of tokens.
fn combined(
    eager: &Eager<'_>,
    shape: Sequences,
    keys: u64,
    (rule, pairs): (&str, u64),
    padding_mask: Tensor,
) -> Tensor {
    let shifted = |elements: u64| eager.shift(longs(eager, elements, "arange"));
    let sequences = longs(eager, shape.batch, "arange");
    let heads = longs(eager, 1, "arange");
    let query_positions = shifted(shape.length);
    let key_positions = shifted(keys);
    let allowed = {
        let ones = flags(eager, 1, "new_ones");
        let rule = flags(eager, pairs, rule);
        let allowed = flags(eager, pairs, "bitwise_and");
        drop(rule);
        drop(ones);
        allowed
    };
    let padding = {
        let places = [(); 2].map(|()| longs(eager, shape.batch * keys, "clone"));
        let padding = flags(eager, shape.batch * keys, "index");
        places.into_iter().rev().for_each(drop);
        padding
    };
    let elements = shape.tokens() * keys;
    let mask = eager.alloc(elements, keys, DType::Bool, "bitwise_and");
    drop(padding);
    drop(allowed);
    drop(sequences);
    drop(heads);
    drop(query_positions);
    drop(key_positions);
    drop(padding_mask);
    mask
}
