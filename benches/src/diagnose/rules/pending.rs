//! Memory that was given back but waits for other streams, and is called "reserved but unallocated".
//!
//! **Criterion.** At some time [`PENDING_PERCENT`] % or more of what is held was asked to be freed and not free yet:
//! in the recording, between `free_requested` and `free_completed`; without one, *active − allocated*.
//!
//! **Why so.** A tensor with `record_stream` is not free before the other stream is done with all it had to
//! do when the tensor went (PyTorch 2.11, `insert_events`). The text of an out-of-memory error counts it
//! with the cache (`reserved − allocated`), as if it could be used.

use std::collections::HashMap;

use allocator::history::Action;
use workloads::recording::Recording;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, percent, size};

/// Less is in flight in any program that loads data meanwhile.
const PENDING_PERCENT: u64 = 10;

/// The most that waited at one time.
#[derive(Clone, Copy, Default)]
struct Most {
    bytes: u64,
    blocks: u64,
    /// Bytes that waited when a request failed.
    at_failure: u64,
}

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let replayed = evidence.log.peak(&(0..evidence.log.end()), |level| {
        level.active - level.allocated
    });
    let replayed = replayed.map_or(0, |(_, bytes)| bytes);
    let recorded = evidence
        .subject
        .recording
        .map(most_pending)
        .unwrap_or_default();
    let bytes = recorded.bytes.max(replayed);
    let held = evidence.measures.peak_reserved_bytes;
    if bytes < held / 100 * PENDING_PERCENT || !evidence.is_worth_a_word(bytes) {
        return None;
    }
    let mut seen = vec![format!(
        "{} of what is held at the peak, {}",
        percent(bytes, held),
        size(held)
    )];
    if recorded.bytes >= replayed {
        seen.push(format!(
            "{} waited at once",
            count(recorded.blocks, "tensor")
        ));
    }
    if recorded.at_failure > 0 {
        seen.push(format!(
            "{} of it waited when a request failed, which the error's text calls \"reserved but unallocated\"",
            size(recorded.at_failure)
        ));
    }
    Some(Finding {
        rule: "pending",
        headline: format!("{} was given back but waits for other streams", size(bytes)),
        evidence: seen,
        remedy: "let the stream that made a tensor wait for the one that uses it \
                 (torch.cuda.current_stream().wait_stream(side)) and drop the tensor after that, in place of \
                 tensor.record_stream(side); or load fewer batches ahead"
            .to_owned(),
        bytes,
        stacks: Vec::new(),
    })
}

fn most_pending(recording: &Recording) -> Most {
    let mut waiting = HashMap::new();
    let mut now = Most::default();
    let mut most = Most::default();
    for (entry, next) in recording
        .entries
        .iter()
        .zip(recording.entries.iter().skip(1))
    {
        match entry.action {
            // One that does not wait is completed at once.
            Action::FreeRequested
                if (next.action, next.addr) != (Action::FreeCompleted, entry.addr) =>
            {
                waiting.insert(entry.addr, entry.size);
                now.bytes += entry.size;
                now.blocks += 1;
                if now.bytes > most.bytes {
                    most = Most {
                        at_failure: most.at_failure,
                        ..now
                    };
                }
            }
            Action::FreeCompleted => {
                if let Some(bytes) = waiting.remove(&entry.addr) {
                    now.bytes -= bytes;
                    now.blocks -= 1;
                }
            }
            Action::Oom => most.at_failure = most.at_failure.max(now.bytes),
            _ => {}
        }
    }
    most
}
