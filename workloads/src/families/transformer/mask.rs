//! Which token may attend to which, made by a dozen small operators.

use super::parts::Sequences;
use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

/// Tokens attend to those before them that are not padding.
pub(super) fn causal(eager: &Eager<'_>, counting: &Tensor, shape: Sequences, keys: u64) -> Tensor {
    let counting = eager.to(counting, DType::Bool);
    let times = if shape.length > 1 { 2 } else { 1 };
    for _ in 0..times {
        let sum = longs(eager, 1, "sum");
        drop(longs(eager, shape.batch * keys, "_to_copy"));
        let equal = flags(eager, 1, "eq");
        drop(sum);
        drop(equal);
    }
    combined(eager, shape, keys, ("le", shape.length * keys), counting)
}

/// Tokens attend to all that are not padding. None if there is no padding, which is looked up.
pub(super) fn both_ways(
    eager: &Eager<'_>,
    counting: &Tensor,
    shape: Sequences,
    padded: bool,
) -> Option<Tensor> {
    let keys = shape.length;
    let counting = eager.to(counting, DType::Bool);
    drop(flags(eager, 1, "all"));
    padded.then(|| combined(eager, shape, keys, ("ge", keys), counting))
}

fn flags(eager: &Eager<'_>, numbers: u64, tag: &str) -> Tensor {
    eager.alloc(numbers, 1, DType::Bool, tag)
}

fn longs(eager: &Eager<'_>, numbers: u64, tag: &str) -> Tensor {
    eager.alloc(numbers, 1, DType::Long, tag)
}

/// A rule on positions, and which tokens count, for all pairs.
fn combined(
    eager: &Eager<'_>,
    shape: Sequences,
    keys: u64,
    (rule, pairs): (&str, u64),
    counting: Tensor,
) -> Tensor {
    let shifted = |numbers: u64| eager.shift(longs(eager, numbers, "arange"));
    let sequences = longs(eager, shape.batch, "arange");
    let heads = longs(eager, 1, "arange");
    let queries = shifted(shape.length);
    let asked = shifted(keys);
    let allowed = {
        let ones = flags(eager, 1, "new_ones");
        let rule = flags(eager, pairs, rule);
        let allowed = flags(eager, pairs, "bitwise_and");
        drop(rule);
        drop(ones);
        allowed
    };
    let found = {
        let places = [(); 2].map(|()| longs(eager, shape.batch * keys, "clone"));
        let found = flags(eager, shape.batch * keys, "index");
        places.into_iter().rev().for_each(drop);
        found
    };
    let numbers = shape.tokens() * keys;
    let mask = eager.alloc(numbers, keys, DType::Bool, "bitwise_and");
    drop(found);
    drop(allowed);
    drop(sequences);
    drop(heads);
    drop(queries);
    drop(asked);
    drop(counting);
    mask
}
