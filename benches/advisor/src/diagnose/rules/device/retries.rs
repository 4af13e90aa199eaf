//! Memory barely suffices: the cache is emptied to serve requests.
//!
//! **Criterion.** No request fails, and at least one is served only after the cache was emptied.
//!
//! **Reason.** When `cudaMalloc` fails, PyTorch synchronises all streams, returns all cached memory and
//! retries (`num_alloc_retries`). This is slow, and the program fails if it needs a little more.

use coalesce_bench::text::{Unit, count, quoted};

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{Finding, SEE_ADVISE};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let retries = evidence.measures.retries;
    if retries == 0 || evidence.tally.ooms > 0 {
        return None;
    }
    let retried = evidence.allocations().filter(|(_, a)| a.retried);
    let roomy = evidence.with_room()?.measures.peak_reserved_bytes;
    let missing = roomy.saturating_sub(evidence.available());
    let expandable = evidence.expandable();
    let trial = evidence.with_conf(&expandable)?;
    let helps = trial.ooms == 0 && trial.measures.retries < retries;
    let less = "Reduce the memory needed at one time: a smaller batch, or torch.utils.checkpoint"
        .to_owned();
    let remedy = if helps {
        format!("{less}. {SEE_ADVISE}")
    } else {
        less
    };
    let unit = Unit::of(roomy);
    Some(Finding {
        headline: format!(
            "Memory barely suffices: the cache is emptied {} to serve a request",
            count(retries, "time")
        ),
        evidence: vec![
            format!(
                "With more memory the program reserves {}, {} more than it can here",
                unit.amount(roomy),
                unit.amount(missing),
            ),
            format!(
                "With {}, the cache is emptied {} and the peak of reserved memory is {}",
                quoted(&expandable),
                count(trial.measures.retries, "time"),
                unit.amount(trial.measures.peak_reserved_bytes),
            ),
        ],
        remedy,
        conf: helps.then_some(expandable),
        bytes: missing,
        stacks: evidence.call_sites(retried.map(|(index, a)| (index, a.bytes))),
        ..Finding::default()
    })
}
