//! Variations of a workload, as between two runs of the same program.
//!
//! Two properties vary between runs: the order of a burst of frees, such as the activations of a step,
//! which a hash table or a garbage collector determines; and sizes, if lengths or batches differ.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::cached::Cached;
use crate::families::rng::Rng;
use crate::ops::KeptOp;

/// Sizes up to 1 MiB do not change. They share segments.
const SMALL: u64 = 1 << 20;
/// The maximum change of a size in either direction: 2 %, in parts of 10,000.
const JITTER: u64 = 200;

/// Another run of the same program, determined by `seed`.
///
/// Consecutive frees are shuffled. Sizes above 1 MiB change by up to 2 %, all requests of one size by the
/// same factor, so equal sizes stay equal. Another run does not begin with the recorded segments: it
/// begins with the live blocks alone.
#[must_use]
pub fn perturbed(workload: &Cached, seed: u64) -> Cached {
    let mut rng = Rng::new(seed);
    let mut other = workload.clone();
    other.start = None;
    let is_free = |op: &KeptOp| matches!(op, KeptOp::Free { .. });
    for burst in other.ops.kept.chunk_by_mut(|a, b| is_free(a) && is_free(b)) {
        rng.shuffle(burst);
    }
    let mut sizes: HashMap<u64, u64, FixedState> = HashMap::default();
    for op in &mut other.ops.kept {
        if let KeptOp::Malloc { bytes, .. } = op {
            *bytes = *sizes
                .entry(*bytes)
                .or_insert_with(|| jittered(*bytes, &mut rng));
        }
    }
    other
}

fn jittered(bytes: u64, rng: &mut Rng) -> u64 {
    if bytes <= SMALL {
        return bytes;
    }
    let factor = rng.between(10_000 - JITTER, 10_000 + JITTER);
    let jittered = u128::from(bytes) * u128::from(factor) / 10_000;
    u64::try_from(jittered).map_or(bytes, |jittered| jittered.max(SMALL + 1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::op::{Answer, Op, Workload};
    use crate::written::listed;

    fn program() -> impl Workload {
        let size = |id| if id % 2 == 0 { 100 << 20 } else { 4096 };
        let mut ops: Vec<_> = (0..40).map(|id| Op::malloc(id, size(id))).collect();
        ops.extend((0..20).map(|id| Op::Free { id }));
        ops.push(Op::Mark { tag: "step" });
        ops.extend((20..40).map(|id| Op::Free { id }));
        listed("program", ops)
    }

    fn run(seed: u64) -> (BTreeSet<u64>, Vec<u64>) {
        let (mut sizes, mut frees) = (BTreeSet::new(), Vec::new());
        let program = perturbed(&Cached::of(&program()).unwrap(), seed);
        program
            .emit(&mut |op: Op<'_>| {
                match op {
                    Op::Malloc { bytes, .. } => {
                        sizes.insert(bytes);
                    }
                    Op::Free { id } => frees.push(id),
                    _ => {}
                }
                Ok(Answer::Done)
            })
            .unwrap();
        (sizes, frees)
    }

    #[test]
    fn frees_stay_in_their_burst_and_equal_sizes_stay_equal() {
        let (sizes, frees) = run(1);
        assert_eq!(sizes.len(), 2);
        assert!(sizes.contains(&4096) && !sizes.contains(&(100 << 20)));
        assert!(sizes.iter().all(|&bytes| bytes < 103 << 20));
        assert!(!frees.is_sorted());
        let first: BTreeSet<u64> = frees[..20].iter().copied().collect();
        assert!(first.into_iter().eq(0..20));
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
