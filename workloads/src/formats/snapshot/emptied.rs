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
    if alone
        .clone()
        .all(|index| returned.contains(&pool_of(index)))
    {
        alone
    } else {
        start..start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{entries, number};

    #[test]
    fn pools_are_emptied_alone_before_the_default_pools_are() {
        cases::check("src/formats/snapshot/cases/emptied.txt", |text| {
            let of: Vec<&str> = text.split(", ").filter(|entry| *entry != "none").collect();
            let entries = entries(
                &of.iter()
                    .map(|entry| format!("{entry} 0\n"))
                    .collect::<String>(),
            );
            let pool_of = |index: usize| MempoolId(0, number(of[index].split_once(' ').unwrap().1));
            let all = 0..entries.len();
            let pools = emptied_pools(&entries, all.clone(), pool_of);
            let alone = emptied_alone(&entries, all, pool_of);
            assert_eq!(alone.start, 0);
            let pools: Vec<u64> = pools.iter().map(|pool| pool.1).collect();
            format!("{pools:?}, {} alone", alone.end)
        });
    }
}
