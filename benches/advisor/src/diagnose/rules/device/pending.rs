//! Freed memory waits for other streams, and error messages count it as cached.
//!
//! **Criterion.** At some request, memory that was freed by the program but waits for other streams is at
//! least [`PENDING_PERCENT`] % of the peak of reserved memory. In a recording it waits between
//! `free_requested` and `free_completed`; in a replay it is *active − allocated*. Only requests count,
//! because only they check whether a stream has finished.
//!
//! **Reason.** A tensor with `record_stream` becomes free only when the other stream has finished the work
//! it had at the time of the free (PyTorch's `insert_events`). The out-of-memory message counts such
//! memory as cached (`reserved − allocated`), as if it could be used.

use std::collections::HashMap;

use coalesce_alloc::history::Action;
use coalesce_bench::text::{amount, count, percent_of};
use coalesce_workloads::formats::snapshot::Recording;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::Finding;

/// Any program that loads data in the background has less than this in flight.
const PENDING_PERCENT: u64 = 5;

/// The most memory that waited at one time.
#[derive(Clone, Copy, Default)]
struct PendingPeak {
    bytes: u64,
    blocks: u64,
    /// Bytes that waited when a request failed.
    at_failure: u64,
}

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let requests = evidence.log.allocations.iter();
    let levels = requests.map(|a| evidence.log.level(a.born));
    let replayed = levels
        .map(|level| level.active - level.allocated)
        .max()
        .unwrap_or(0);
    let recorded = evidence
        .subject
        .recording
        .map(most_pending)
        .unwrap_or_default();
    let bytes = recorded.bytes.max(replayed);
    let reserved = evidence.measures.peak_reserved_bytes;
    if bytes < reserved / 100 * PENDING_PERCENT || !evidence.is_significant(bytes) {
        return None;
    }
    let mut facts = vec![format!(
        "That is {} of the peak of reserved memory, {}",
        percent_of(bytes, reserved),
        amount(reserved)
    )];
    if recorded.bytes >= replayed {
        facts.push(format!(
            "{} waited at once",
            count(recorded.blocks, "tensor")
        ));
    }
    if recorded.at_failure > 0 {
        facts.push(format!(
            "{} waited when a request failed; PyTorch's error message calls it \"reserved but unallocated\"",
            amount(recorded.at_failure)
        ));
    }
    Some(Finding {
        headline: format!("{} was freed but waits for other streams", amount(bytes)),
        evidence: facts,
        remedy: "Let the stream that allocated a tensor wait for the stream that uses it \
                 (torch.cuda.current_stream().wait_stream(side)) and drop the tensor after that, instead of \
                 calling tensor.record_stream(side); or prefetch fewer batches"
            .to_owned(),
        bytes,
        ..Finding::default()
    })
}

fn most_pending(recording: &Recording) -> PendingPeak {
    let mut waiting = HashMap::new();
    let mut now = PendingPeak::default();
    let mut most = PendingPeak::default();
    for entry in &recording.entries {
        match entry.action {
            Action::FreeRequested => {
                waiting.insert(entry.addr, entry.size);
                now.bytes += entry.size;
                now.blocks += 1;
            }
            Action::FreeCompleted => {
                if let Some(bytes) = waiting.remove(&entry.addr) {
                    now.bytes -= bytes;
                    now.blocks -= 1;
                }
            }
            Action::Alloc | Action::Oom => {
                let at_failure = match entry.action {
                    Action::Oom => most.at_failure.max(now.bytes),
                    _ => most.at_failure,
                };
                let larger = if now.bytes > most.bytes { now } else { most };
                most = PendingPeak {
                    at_failure,
                    ..larger
                };
            }
            _ => {}
        }
    }
    most
}
