//! The ends of large blocks that are handed out without anybody having asked for them.
//!
//! **Criterion.** When the most was held, blocks in use are larger than their requests, rounded, by
//! [`TAIL_PERCENT`] % of all that is held.
//!
//! **Why so.** Unless in expandable segments, a large block is cut only if more than 1 MiB would be left
//! of it; and one of `max_split_size_mb` or more never (PyTorch 2.11, `should_split`). What is not cut
//! off counts as allocated, and no figure but *allocated − requested* shows it.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, percent, size};

/// Below this, other remedies bring more.
const TAIL_PERCENT: u64 = 3;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let tail_of = |index: usize| {
        let a = evidence.log.allocations.get(index)?;
        a.block.checked_sub(evidence.block_size(a.bytes)?)
    };
    let live = evidence.peak.live.values().copied();
    let tails = live.filter_map(|index| Some((index, tail_of(index)?)));
    let tails: Vec<(usize, u64)> = tails.filter(|&(_, tail)| tail > 0).collect();
    let bytes: u64 = tails.iter().map(|&(_, tail)| tail).sum();
    let held = evidence.measures.peak_reserved_bytes;
    if bytes < held / 100 * TAIL_PERCENT || !evidence.is_worth_a_word(bytes) {
        return None;
    }
    let expandable = evidence.expandable();
    let trial = evidence.with_conf(&expandable)?;
    let mut numbers: Vec<usize> = tails.iter().map(|&(index, _)| index).collect();
    numbers.sort_unstable();
    Some(Finding {
        rule: "tails",
        headline: format!(
            "{} is handed out that nobody asked for: ends of blocks that are not cut off",
            size(bytes)
        ),
        evidence: vec![
            format!(
                "when the most is held, {} in use are larger than their requests, by {} on average; together that \
                 is {} of what is held",
                count(tails.len() as u64, "block"),
                size(bytes / tails.len() as u64),
                percent(bytes, held),
            ),
            format!(
                "with {expandable}, where blocks are cut to 512 bytes, it holds {} in place of {}",
                size(trial.measures.peak_reserved_bytes),
                size(held),
            ),
        ],
        remedy: format!("PYTORCH_CUDA_ALLOC_CONF={expandable}"),
        bytes,
        stacks: evidence.places(numbers, |index, _| tail_of(index).unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, ROOMY, Scene, hold};
    use super::rule;

    #[test]
    fn ends_of_less_than_a_mib() {
        let found = ROOMY
            .find(rule, |program| hold(program, 20, 11 * MIB + MIB / 4))
            .unwrap();
        assert_eq!(found.bytes, 20 * (MIB / 4 * 3));
    }

    #[test]
    fn requests_of_the_size_of_segments() {
        assert_eq!(
            ROOMY.find(rule, |program| hold(program, 20, 12 * MIB)),
            None
        );
        let expandable = Scene("expandable_segments:True", ROOMY.1, None);
        assert_eq!(
            expandable.find(rule, |program| hold(program, 20, 11 * MIB + MIB / 4)),
            None
        );
    }
}
