//! Memory that was given back but waits for other streams, and is called "reserved but unallocated".
//!
//! **Criterion.** With some request [`PENDING_PERCENT`] % or more of what is held was asked to be freed
//! and not free yet: in the recording, between `free_requested` and `free_completed`; without one,
//! *active − allocated*. Only requests count, for only they look whether a stream is done.
//!
//! **Why so.** A tensor with `record_stream` is not free before the other stream is done with all it had
//! to do when the tensor went (PyTorch 2.11, `insert_events`). The text of an out-of-memory error counts
//! it with the cache (`reserved − allocated`), as if it could be used.

use std::collections::HashMap;

use coalesce_alloc::history::Action;
use coalesce_workloads::formats::snapshot::Recording;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, percent, size};

/// Less is in flight in any program that loads data meanwhile.
const PENDING_PERCENT: u64 = 5;

/// The most that waited at one time.
#[derive(Clone, Copy, Default)]
struct Most {
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
                most = Most {
                    at_failure,
                    ..larger
                };
            }
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::Action::{Alloc, FreeCompleted, FreeRequested, Oom};
    use coalesce_workloads::families::program::Program;
    use coalesce_workloads::surroundings::Change;

    use super::super::super::testing::{GIB, MIB, ROOMY, Scene, hold, recording};
    use super::rule;

    fn prefetch(program: &mut Program<'_>, late: bool) {
        program.around(Change::HoldEvents(late));
        hold(program, 1, 100 * MIB);
        for _ in 0..5 {
            let batch = program.alloc_on(1, 20 * MIB, "batch");
            program.record_stream(&batch, 0);
            program.free(batch);
        }
    }

    #[test]
    fn a_device_that_is_behind() {
        let found = ROOMY.find(rule, |program| prefetch(program, true)).unwrap();
        assert_eq!(found.bytes, 4 * 20 * MIB, "those before the last");
    }

    #[test]
    fn a_device_that_keeps_up() {
        assert_eq!(ROOMY.find(rule, |program| prefetch(program, false)), None);
    }

    #[test]
    fn frees_that_a_recording_saw_waiting() {
        let of_program = |program: &mut Program<'_>| program.scratch(64 * MIB, "");
        let waiting = recording(&[
            (Alloc, MIB, 64 * MIB),
            (FreeRequested, MIB, 64 * MIB),
            (Oom, 0, GIB),
            (FreeCompleted, MIB, 64 * MIB),
        ]);
        let found = Scene("", 80 * GIB, Some(&waiting))
            .find(rule, of_program)
            .unwrap();
        assert_eq!(found.bytes, 64 * MIB);
        let said = found.evidence.join("\n");
        assert!(said.contains("reserved but unallocated"), "{said}");
        let at_once = recording(&[
            (Alloc, MIB, 64 * MIB),
            (FreeRequested, MIB, 64 * MIB),
            (FreeCompleted, MIB, 64 * MIB),
        ]);
        let scene = Scene("", 80 * GIB, Some(&at_once));
        assert_eq!(scene.find(rule, of_program), None);
    }
}
