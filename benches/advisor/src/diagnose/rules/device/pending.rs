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

use crate::diagnose::{Evidence, Finding};

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
        "That is {} of the {} reserved at the peak",
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
        rule: "pending",
        headline: format!("{} was freed but waits for other streams", amount(bytes)),
        evidence: facts,
        remedy: "Let the stream that allocated a tensor wait for the stream that uses it \
                 (torch.cuda.current_stream().wait_stream(side)) and drop the tensor after that, instead of \
                 calling tensor.record_stream(side); or prefetch fewer batches"
            .to_owned(),
        conf: None,
        bytes,
        stacks: Vec::new(),
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

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::Action::{Alloc, FreeCompleted, FreeRequested, Oom};
    use coalesce_workloads::families::program::Program;
    use coalesce_workloads::surroundings::Change;

    use super::rule;
    use crate::diagnose::testing::{GIB, MIB, ROOMY, Scene, hold, lines, recording};

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
    fn a_stream_that_lags_behind() {
        let found = ROOMY.find(rule, |program| prefetch(program, true)).unwrap();
        assert_eq!(found.bytes, 4 * 20 * MIB, "all batches before the last");
    }

    #[test]
    fn a_stream_that_keeps_up() {
        assert_eq!(ROOMY.find(rule, |program| prefetch(program, false)), None);
    }

    #[test]
    fn recorded_frees_that_wait() {
        let workload = |program: &mut Program<'_>| program.scratch(64 * MIB, "");
        let waiting = recording(&[
            (Alloc, MIB, 64 * MIB),
            (FreeRequested, MIB, 64 * MIB),
            (Oom, 0, GIB),
            (FreeCompleted, MIB, 64 * MIB),
        ]);
        let found = Scene::recorded(&waiting).find(rule, workload).unwrap();
        assert_eq!(found.bytes, 64 * MIB);
        let facts = found.evidence.join("\n");
        assert!(facts.contains("reserved but unallocated"), "{facts}");
        let immediate = recording(&[
            (Alloc, MIB, 64 * MIB),
            (FreeRequested, MIB, 64 * MIB),
            (FreeCompleted, MIB, 64 * MIB),
        ]);
        assert_eq!(Scene::recorded(&immediate).find(rule, workload), None);
    }

    /// A tensor of 10 MiB waits while the last request is made.
    #[test]
    fn five_percent_of_reserved_memory() {
        let find = |held: u64| {
            ROOMY.find(rule, move |program| {
                program.around(Change::HoldEvents(true));
                hold(program, 1, held * MIB);
                let batch = program.alloc_on(1, 10 * MIB, "batch");
                program.record_stream(&batch, 0);
                program.free(batch);
                hold(program, 1, 10 * MIB);
            })
        };
        assert_eq!(
            lines(find(180)),
            [
                "1. 10.0 MiB was freed but waits for other streams [pending]",
                "- That is 5.0 % of the 200.0 MiB reserved at the peak",
                "> Let the stream that allocated a tensor wait for the stream that uses it \
                 (torch.cuda.current_stream().wait_stream(side)) and drop the tensor after that, instead of \
                 calling tensor.record_stream(side); or prefetch fewer batches",
                "10485760 bytes",
            ]
        );
        assert_eq!(find(182), None);
    }

    #[test]
    fn the_most_recorded_memory_that_waits() {
        let all = [
            (FreeRequested, MIB, 30 * MIB),
            (FreeRequested, 2 * MIB, 40 * MIB),
            (Alloc, 90 * MIB, MIB),
            (FreeCompleted, MIB, 30 * MIB),
            (FreeRequested, 3 * MIB, 10 * MIB),
            (Oom, 0, GIB),
            (FreeCompleted, 2 * MIB, 40 * MIB),
            (FreeCompleted, 9 * MIB, 20 * MIB),
            (Oom, 0, GIB),
            (FreeRequested, 4 * MIB, 10 * MIB),
            (FreeRequested, 5 * MIB, 50 * MIB),
            (Alloc, 91 * MIB, MIB),
            (FreeRequested, 6 * MIB, 20 * MIB),
            // Nothing is requested while the most memory waits.
            (FreeRequested, 7 * MIB, 500 * MIB),
            (FreeCompleted, 7 * MIB, 500 * MIB),
            (Alloc, 92 * MIB, MIB),
        ];
        let find = |entries: &[_]| {
            let recording = recording(entries);
            Scene::recorded(&recording).find(rule, |program| program.scratch(100 * MIB, ""))
        };
        assert_eq!(
            lines(find(&all[..12])),
            [
                "1. 70.0 MiB was freed but waits for other streams [pending]",
                "- That is 70.0 % of the 100.0 MiB reserved at the peak",
                "- 2 tensors waited at once",
                "- 50.0 MiB waited when a request failed; PyTorch's error message calls it \"reserved but \
                 unallocated\"",
                "> Let the stream that allocated a tensor wait for the stream that uses it \
                 (torch.cuda.current_stream().wait_stream(side)) and drop the tensor after that, instead of \
                 calling tensor.record_stream(side); or prefetch fewer batches",
                "73400320 bytes",
            ]
        );
        let found = lines(find(&all));
        assert_eq!(found[2], "- 4 tensors waited at once");
    }

    /// The recording and the replay agree, so the recorded number of tensors is that of the replay.
    #[test]
    fn as_much_waits_in_the_replay_as_in_the_recording() {
        let waiting = |mib: u64| {
            let waiting = recording(&[
                (FreeRequested, MIB, mib * MIB),
                (FreeRequested, 200 * MIB, 20 * MIB),
                (Alloc, MIB, MIB),
            ]);
            let found = Scene::recorded(&waiting).find(rule, |program| prefetch(program, true));
            found.unwrap().evidence.join("\n")
        };
        assert!(waiting(60).contains("2 tensors waited at once"));
        assert!(!waiting(59).contains("waited at once"));
    }
}
