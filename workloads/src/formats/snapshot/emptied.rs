//! Finds the private pools from which a recording returns cached segments to the device.

use std::ops::Range;

use coalesce_alloc::MempoolId;
use coalesce_alloc::history::TraceEntry;

/// The private pools from which these entries return segments, in the order of the entries. `pool_of` is the pool of an entry.
pub(super) fn emptied_pools(
    entries: &[TraceEntry],
    range: Range<usize>,
    pool_of: impl Fn(usize) -> MempoolId,
) -> Vec<MempoolId> {
    let mut pools = Vec::new();
    for index in range {
        let returns = |entry: &TraceEntry| entry.action.returns_memory();
        if entries.get(index).is_some_and(returns) {
            let pool = pool_of(index);
            if pool != MempoolId::DEFAULT && !pools.contains(&pool) {
                pools.push(pool);
            }
        }
    }
    pools
}

/// The first entries of an `empty_cache`, up to the first entry of a default pool. Empty if one of them belongs to a private
/// pool that returns no memory.
///
/// The destructor of a `MemPool` writes such entries, because it waits only for the blocks of its own pool. A call of
/// `empty_cache` by the program waits for all blocks, and empties the default pools first.
pub(super) fn emptied_alone(
    entries: &[TraceEntry],
    range: Range<usize>,
    pool_of: impl Fn(usize) -> MempoolId,
) -> Range<usize> {
    let Range { start, end } = range;
    let is_default = |&index: &usize| pool_of(index) == MempoolId::DEFAULT;
    let alone = start..(start..end).find(is_default).unwrap_or(end);
    let returned = emptied_pools(entries, alone.clone(), &pool_of);
    match alone
        .clone()
        .all(|index| returned.contains(&pool_of(index)))
    {
        true => alone,
        false => start..start,
    }
}

#[cfg(test)]
mod tests {
    use Action::{FreeCompleted, SegmentFree, SegmentUnmap};
    use coalesce_alloc::history::Action;

    use super::super::calls::tests::entry;
    use super::*;

    /// The pools from which entries return memory, and how many of them are about pools that are emptied alone. Pool 0 is
    /// the default pool.
    fn emptied(of: &[(Action, u64)]) -> (Vec<u64>, usize) {
        let entries: Vec<_> = of.iter().map(|&(action, _)| entry(action, 0, 0)).collect();
        let pool_of = |index: usize| MempoolId(0, of[index].1);
        let all = 0..entries.len();
        let pools = emptied_pools(&entries, all.clone(), pool_of);
        let alone = emptied_alone(&entries, all, pool_of);
        assert_eq!(alone.start, 0);
        (pools.iter().map(|pool| pool.1).collect(), alone.end)
    }

    #[test]
    fn pools_are_emptied_alone_before_the_default_pools_are() {
        let free = |pool| (SegmentFree, pool);
        assert_eq!(emptied(&[]), (vec![], 0));
        assert_eq!(emptied(&[free(3)]), (vec![3], 1));
        assert_eq!(emptied(&[free(3), free(0), free(2)]), (vec![3, 2], 1));
        assert_eq!(emptied(&[free(0), free(3)]), (vec![3], 0));
        let pages = (SegmentUnmap, 2);
        assert_eq!(emptied(&[free(3), pages, free(3)]), (vec![3, 2], 3));
    }

    #[test]
    fn a_pool_that_is_emptied_waits_for_its_own_blocks() {
        let (free, completed) = (|pool| (SegmentFree, pool), |pool| (FreeCompleted, pool));
        assert_eq!(emptied(&[completed(3), free(3)]), (vec![3], 2));
        // Blocks of another pool complete, too.
        assert_eq!(emptied(&[completed(2), free(3)]), (vec![3], 0));
        assert_eq!(
            emptied(&[completed(3), completed(0), free(3)]),
            (vec![3], 0)
        );
        assert_eq!(emptied(&[completed(3)]), (vec![], 0));
        assert_eq!(emptied(&[free(3), completed(2), free(2)]), (vec![3, 2], 3));
    }
}
