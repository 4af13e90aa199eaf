//! A program that creates some of its tensors before anything else.

use std::collections::BTreeSet;

use crate::cached::Cached;
use crate::ops::KeptOp;

/// The workload with the requests of these ids first, in their order.
#[must_use]
pub fn created_first(workload: &Cached, ids: &BTreeSet<u64>) -> Cached {
    let mut other = workload.clone();
    let is_later = |op: &KeptOp| !matches!(op, KeptOp::Malloc { id, .. } if ids.contains(id));
    other.ops.kept.sort_by_key(is_later);
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Answer, Op, Workload};
    use crate::written::listed;

    #[test]
    fn all_else_stays_in_order() {
        let mut ops: Vec<_> = (0..4).map(|id| Op::malloc(id, 100)).collect();
        ops.insert(1, Op::Free { id: 0 });
        let program = Cached::of(&listed("program", ops)).unwrap();
        let mut found = Vec::new();
        let mut note = |op: Op<'_>| {
            if let Op::Malloc { id, .. } | Op::Free { id } = op {
                found.push(id);
            }
            Ok(Answer::Done)
        };
        created_first(&program, &BTreeSet::from([3, 1]))
            .emit(&mut note)
            .unwrap();
        assert_eq!(found, [1, 3, 0, 0, 2]);
    }
}
