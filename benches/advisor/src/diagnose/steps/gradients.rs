//! Whether repeated requests are training steps: each repetition allocates a gradient for every parameter.
//!
//! The tensors that live from before the first repetition to the last are the parameters, with up to
//! [`COPIES`] − 1 copies of each for the optimizer, the average or another precision. A layer allocates
//! gradients for its own parameters only, and these stay live until the optimizer step. Tensors that the
//! forward pass allocates are not gradients, whatever their size.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::diagnose::log::Log;

/// A parameter, its gradient and two tensors of optimizer state.
const COPIES: u64 = 4;
/// The share of the parameters' bytes that must have gradients. Some parameters may be frozen.
const COVERED_PERCENT: u64 = 90;

/// Whether each repetition but the last two allocates gradients of all parameters, which are freed before
/// the second next repetition begins. `may_be_gradient` tells, by its index in the log, whether a request can
/// be one of a backward pass.
pub fn are_allocated_in_each(
    log: &Log,
    repeats: &[Range<u64>],
    may_be_gradient: impl Fn(usize) -> bool,
) -> bool {
    let (Some(first), Some(last)) = (repeats.first(), repeats.last()) else {
        return false;
    };
    let mut lasting: BTreeMap<u64, u64> = BTreeMap::new();
    for a in log.born_in(&(0..first.start)) {
        if a.is_live_after(last.start) {
            *lasting.entry(a.bytes).or_default() += 1;
        }
    }
    let parameters: BTreeMap<u64, u64> = lasting
        .into_iter()
        .map(|(bytes, number)| (bytes, number.div_ceil(COPIES)))
        .collect();
    let total: u64 = parameters
        .iter()
        .map(|(bytes, number)| bytes * number)
        .sum();
    let complete = repeats.iter().zip(repeats.iter().skip(2));
    total > 0
        && complete.len() > 0
        && complete.into_iter().all(|(repeat, second_next)| {
            let mut missing = parameters.clone();
            let mut covered = 0;
            for (index, a) in (log.index_from(repeat.start)..).zip(log.born_in(repeat)) {
                if let Some(missing) = missing.get_mut(&a.bytes).filter(|missing| **missing > 0)
                    && !a.is_live_after(second_next.start)
                    && may_be_gradient(index)
                {
                    *missing -= 1;
                    covered += a.bytes;
                }
            }
            covered >= total / 100 * COVERED_PERCENT
        })
}
