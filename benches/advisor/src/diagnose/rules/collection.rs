//! `garbage_collection_threshold` without a memory limit: it does nothing.
//!
//! **Criterion.** The threshold is set, `per_process_memory_fraction` is not.
//!
//! **Why so.** The threshold is a share of the limit that `per_process_memory_fraction` or
//! `torch.cuda.set_per_process_memory_fraction` sets; without one, and with one of 1.0, nothing is ever
//! collected (PyTorch 2.11; pytorch/pytorch#106660, #150917). A limit that the program sets itself is
//! not in its settings: hence the condition in the remedy.

use super::super::evidence::Evidence;
use super::super::words::size;
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let threshold = evidence.settings.garbage_collection_threshold();
    if threshold <= 0.0 || evidence.limit().is_some() {
        return None;
    }
    let peak = evidence.log.level(evidence.peak.event);
    let limited = conf::with(
        evidence.subject.conf,
        "per_process_memory_fraction",
        Some("0.95"),
    );
    Some(Finding {
        rule: "collection",
        headline: format!(
            "garbage_collection_threshold:{threshold} does nothing without a memory limit"
        ),
        evidence: vec![format!(
            "{} of cached memory is held when the most is, and none is ever collected",
            size(peak.reserved - peak.active)
        )],
        remedy: format!(
            "PYTORCH_CUDA_ALLOC_CONF={limited}; or torch.cuda.set_per_process_memory_fraction, unless the program \
             calls it already with less than 1.0"
        ),
        bytes: peak.reserved - peak.active,
        stacks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{GIB, MIB, Scene};
    use super::rule;

    #[test]
    fn a_threshold_needs_a_limit() {
        let find = |conf| {
            let scene = Scene(conf, 80 * GIB, None);
            scene.find(rule, |program| {
                program.scratch(30 * MIB, "");
                program.scratch(60 * MIB, "");
            })
        };
        assert_eq!(
            find("garbage_collection_threshold:0.8").unwrap().bytes,
            30 * MIB
        );
        assert!(find("garbage_collection_threshold:0.8,per_process_memory_fraction:1.0").is_some());
        assert_eq!(
            find("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9"),
            None
        );
        assert_eq!(find(""), None);
    }
}
