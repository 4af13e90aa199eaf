//! Blocks are larger than their requests because their remainders are not split off.
//!
//! **Criterion.** At the peak, the allocated blocks exceed their rounded requests by [`TAIL_PERCENT`] % of
//! reserved memory.
//!
//! **Reason.** Except in expandable segments, a large block is split only if more than 1 MiB remains, and a
//! block of `max_split_size_mb` or more is never split (PyTorch's `should_split`). The remainder counts
//! as allocated; only *allocated − requested* shows it.

use coalesce_bench::text::{Unit, amount, count, percent_of, quoted};

use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::{Finding, SEE_ADVISE};

/// Below this share, other remedies save more.
const TAIL_PERCENT: u64 = 3;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let tail_of = |index: usize| {
        let a = evidence.log.allocations.get(index)?;
        let tail = a.block.checked_sub(evidence.block_size(a.bytes)?)?;
        (tail > 0).then_some((index, tail))
    };
    let live = evidence.peak.live.values().copied();
    let tails: Vec<(usize, u64)> = live.filter_map(tail_of).collect();
    let bytes = total(&tails);
    let reserved = evidence.measures.peak_reserved_bytes;
    if bytes < reserved / 100 * TAIL_PERCENT || !evidence.is_significant(bytes) {
        return None;
    }
    let expandable = evidence.expandable();
    let trial = evidence.with_conf(&expandable)?;
    let unit = Unit::of(reserved);
    Some(Finding {
        rule: "tails",
        headline: format!(
            "{} is allocated but not requested: remainders of blocks that are not split",
            amount(bytes)
        ),
        evidence: vec![
            format!(
                "At the peak, {} are larger than their requests, by {} on average; together that is {} of \
                 reserved memory",
                count(tails.len() as u64, "block"),
                amount(bytes / tails.len() as u64),
                percent_of(bytes, reserved),
            ),
            format!(
                "With {}, which splits blocks down to 512 bytes, {} is reserved at the peak instead of {}",
                quoted(&expandable),
                unit.amount(trial.measures.peak_reserved_bytes),
                unit.amount(reserved),
            ),
        ],
        remedy: SEE_ADVISE.to_owned(),
        conf: Some(expandable),
        bytes,
        stacks: evidence.call_sites(tails),
    })
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::diagnose::testing::{MIB, ROOMY, Scene, hold, lines};

    #[test]
    fn remainders_of_less_than_a_mib() {
        let found = ROOMY.find(rule, |program| hold(program, 20, 11 * MIB + MIB / 4));
        assert_eq!(found.unwrap().bytes, 20 * (MIB / 4 * 3));
    }

    #[test]
    fn no_remainders() {
        let found = ROOMY.find(rule, |program| hold(program, 20, 12 * MIB));
        assert_eq!(found, None);
        let expandable = Scene::with_conf("expandable_segments:True");
        let found = expandable.find(rule, |program| hold(program, 20, 11 * MIB + MIB / 4));
        assert_eq!(found, None);
    }

    #[test]
    fn three_percent_of_reserved_memory() {
        let find = |held: u64| {
            ROOMY.find(rule, move |program| {
                hold(program, 1, held * MIB);
                // Six remainders of half a MiB.
                hold(program, 6, 11 * MIB + MIB / 2);
            })
        };
        assert_eq!(
            lines(find(28)),
            [
                "1. 3.0 MiB is allocated but not requested: remainders of blocks that are not split [tails]",
                "- At the peak, 6 blocks are larger than their requests, by 512.0 KiB on average; together that \
                 is 3.0 % of reserved memory",
                "- With 'expandable_segments:True', which splits blocks down to 512 bytes, 100.0 MiB is reserved \
                 at the peak instead of 100.0 MiB",
                "6 × several: 3.0 MiB",
                "> `coalesce advise` ranks these settings among others",
                "3145728 bytes, with 'expandable_segments:True'",
            ]
        );
        assert_eq!(find(30), None, "of 102 MiB");
    }
}
