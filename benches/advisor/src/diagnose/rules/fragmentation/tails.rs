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
use crate::diagnose::finding::{AT_PEAK, Finding, SEE_ADVISE};

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
        headline: format!(
            "{} is allocated but not requested: remainders of blocks that are not split",
            amount(bytes)
        ),
        evidence: vec![
            format!(
                "{AT_PEAK}, {} were larger than their requests, by {} on average; together that is {} of \
                 reserved memory",
                count(tails.len() as u64, "block"),
                amount(bytes / tails.len() as u64),
                percent_of(bytes, reserved),
            ),
            format!(
                "With {}, which splits blocks down to 512 bytes, the peak of reserved memory is {} instead of {}",
                quoted(&expandable),
                unit.amount(trial.measures.peak_reserved_bytes),
                unit.amount(reserved),
            ),
        ],
        remedy: SEE_ADVISE.to_owned(),
        conf: Some(expandable),
        bytes,
        stacks: evidence.call_sites(tails),
        ..Finding::default()
    })
}
