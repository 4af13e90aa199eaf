//! `garbage_collection_threshold` without a memory limit has no effect.
//!
//! **Criterion.** The threshold is set, and `per_process_memory_fraction` is not.
//!
//! **Reason.** The threshold is a fraction of the limit set by `per_process_memory_fraction` or by
//! `torch.cuda.set_per_process_memory_fraction`. Without a limit, or with one of 1.0, nothing is ever
//! collected (pytorch/pytorch#106660, #150917). A limit that the program sets at run time is
//! not in its settings; the remedy mentions this case.

use coalesce_bench::text::amount;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{AT_PEAK, Finding};
use crate::settings_string::with;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let threshold = evidence.settings.garbage_collection_threshold();
    if threshold <= 0.0 || evidence.limit().is_some() {
        return None;
    }
    let peak = evidence.peak_level();
    let cached = peak.reserved - peak.active;
    let limited = with(evidence.subject.conf, "per_process_memory_fraction", "0.95");
    Some(Finding {
        headline: format!(
            "garbage_collection_threshold:{threshold} has no effect without a memory limit"
        ),
        evidence: vec![format!(
            "{AT_PEAK}, {} was free and never collected",
            amount(cached)
        )],
        remedy: "Remove it, or set a limit: per_process_memory_fraction, or \
                 torch.cuda.set_per_process_memory_fraction, unless the program already calls it with less than \
                 1.0"
            .to_owned(),
        conf: Some(limited),
        bytes: cached,
        ..Finding::default()
    })
}
