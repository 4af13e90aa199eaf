//! Settings that were changed while the program ran, and live tensors that lost their memory.
//!
//! **Criterion.** In the recording a segment that came from `cudaMalloc` is returned with another size
//! than it was taken with.
//!
//! **Why so.** To make room, PyTorch 2.11 returns free blocks of `max_split_size_mb` or more without
//! asking whether they are whole segments (`release_available_cached_blocks`). Such a block is part of a
//! segment only if the limit was changed after it was cut, or expandable segments were switched on.
//! `cudaFree` of a segment's first part takes the memory of the tensors behind it.

use std::collections::HashMap;

use coalesce_alloc::history::Action;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, size};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut taken = HashMap::new();
    let mut parts = Vec::new();
    for entry in &evidence.subject.recording?.entries {
        match entry.action {
            Action::SegmentAlloc => {
                taken.insert(entry.addr, entry.size);
            }
            Action::SegmentFree => {
                let whole = taken.remove(&entry.addr);
                parts.extend(
                    whole
                        .filter(|&whole| whole > entry.size)
                        .map(|whole| (entry, whole)),
                );
            }
            _ => {}
        }
    }
    let lost: u64 = parts.iter().map(|(entry, whole)| whole - entry.size).sum();
    let (first, whole) = parts.first()?;
    Some(Finding {
        rule: "max_split_at_run_time",
        headline: format!(
            "{} returned in part while the rest, {}, was in use: its tensors lost their memory",
            match parts.len() {
                1 => "A segment was".to_owned(),
                several => format!("{several} segments were"),
            },
            size(lost)
        ),
        evidence: vec![format!(
            "the segment at {} was taken with {} and returned with {}; {} in all",
            first.addr,
            size(*whole),
            size(first.size),
            count(parts.len() as u64, "such return"),
        )],
        remedy: "set max_split_size_mb and expandable_segments before the first tensor, in \
                 PYTORCH_CUDA_ALLOC_CONF; do not change them with torch.cuda.memory._set_allocator_settings"
            .to_owned(),
        bytes: lost,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::Action::{SegmentAlloc, SegmentFree};

    use super::super::super::testing::{MIB, ROOMY, Scene, recording};
    use super::rule;

    #[test]
    fn a_segment_goes_back_smaller_than_it_came() {
        let find = |returned: u64| {
            let recording = recording(&[
                (SegmentAlloc, 2 * MIB, 100 * MIB),
                (SegmentFree, 2 * MIB, returned),
            ]);
            let scene = Scene("", ROOMY.1, Some(&recording));
            scene.find(rule, |program| program.scratch(MIB, ""))
        };
        assert_eq!(find(60 * MIB).unwrap().bytes, 40 * MIB);
        assert_eq!(find(100 * MIB), None);
    }
}
