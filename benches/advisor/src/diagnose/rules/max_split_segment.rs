//! `max_split_size_mb` as large as a segment for small tensors: free segments serve nobody.
//!
//! **Criterion.** The limit is the size of segments for requests of 1 to 10 MiB (20 MiB, or
//! `large_segment_size_mb`), such segments were taken, and with a limit that is 2 MiB higher the
//! program does better.
//!
//! **Why so.** Once all of such a segment is free it is oversize and serves no request below the limit
//! (PyTorch 2.11, `get_free_block`): each burst of requests takes new ones.

use super::super::evidence::Evidence;
use super::super::relief::Relief;
use super::super::words::{count, size};
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let segment = evidence.settings.large_segment_size();
    let limit = evidence.settings.max_split_size()?;
    if evidence.settings.expandable_segments() || limit != segment {
        return None;
    }
    let allocations = evidence.log.allocations.iter().enumerate();
    let shares = |bytes: u64| evidence.segment_size(bytes) == Some(segment);
    let taking = allocations.filter(|(_, a)| a.taken > 0 && !a.failed && shares(a.bytes));
    let numbers: Vec<usize> = taking.map(|(index, _)| index).collect();
    if numbers.len() < 2 {
        return None;
    }
    let higher = ((limit >> 20) + 2).to_string();
    let conf = conf::with(evidence.subject.conf, "max_split_size_mb", Some(&higher));
    let relief = Relief::of(evidence, &conf)?;
    Some(Finding {
        rule: "max_split_segment",
        headline: format!(
            "max_split_size_mb is the size of a segment, {}: free segments of that size serve no request below it",
            size(segment)
        ),
        evidence: vec![
            format!(
                "{} of 1 to 10 MiB took a segment of their own",
                count(numbers.len() as u64, "request")
            ),
            relief.sentence,
        ],
        remedy: format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
        bytes: relief.saved,
        stacks: evidence.places(numbers, |_, a| a.taken),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{GIB, MIB, Scene, burst};
    use super::rule;

    fn bursts(program: &mut Program<'_>) {
        (0..5).for_each(|_| burst(program, 8, 5 * MIB));
    }

    #[test]
    fn each_burst_takes_new_segments() {
        let found = Scene("max_split_size_mb:20", 80 * GIB, None)
            .find(rule, bursts)
            .unwrap();
        assert_eq!(found.bytes, 4 * 40 * MIB);
        assert!(
            found.remedy.contains("max_split_size_mb:22"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn a_limit_above_the_segments() {
        assert_eq!(
            Scene("max_split_size_mb:22", 80 * GIB, None).find(rule, bursts),
            None
        );
    }
}
