//! The limit of the process rejects a request although the device has room.
//!
//! **Criterion.** A request failed, the process has a limit (`per_process_memory_fraction`, or one that the
//! recording shows), and reserved memory together with the segment for the request exceeds the limit but
//! not the device.
//!
//! **Reason.** The limit is compared with the size of a whole segment: 20 MiB for a request of 1 to 10 MiB,
//! even with expandable segments, where the request may need one page or none (PyTorch's
//! `alloc_block`). The error message reports how much is free, which is misleading.

use coalesce_bench::text::amount;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.failure.as_ref()?;
    let limit = evidence.limit()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let segment = evidence.segment_size(request.bytes)?;
    let reserved = evidence.log.level(moment.event).reserved;
    let capacity = evidence.subject.conditions.capacity;
    let needed = reserved.saturating_add(segment);
    if needed <= limit || needed > capacity {
        return None;
    }
    let mut facts = vec![format!(
        "{} is reserved and the limit is {}; a segment of {} for the request of {} would exceed it",
        amount(reserved),
        amount(limit),
        amount(segment),
        amount(request.bytes),
    )];
    if evidence.settings.expandable_segments() && segment > request.bytes {
        facts.push(format!(
            "Expandable segments are enabled: the request needs less than the {} that is checked against \
             the limit",
            amount(segment)
        ));
    }
    const KEY: &str = "per_process_memory_fraction";
    let is_set = evidence.subject.conf.contains(KEY);
    let name = if is_set {
        KEY
    } else {
        "The limit of the process"
    };
    Some(Finding {
        headline: format!(
            "{name} rejects a request for {} while {} of the device is free",
            amount(request.bytes),
            amount(capacity - reserved)
        ),
        evidence: facts,
        remedy: format!("Raise {KEY} (torch.cuda.set_{KEY} if the program calls it), or remove it"),
        conf: is_set.then(|| evidence.conf_without(KEY)),
        bytes: capacity - limit,
        stacks: evidence.call_sites([(index, request.bytes)]),
        ..Finding::default()
    })
}
