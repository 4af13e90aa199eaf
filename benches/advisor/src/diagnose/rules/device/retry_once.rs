//! A request failed although a suitable block had become free: the same request succeeds when repeated.
//!
//! **Criterion.** After a request failed, a free block of its stream and pool is large enough. In the
//! replay, the block is in the segments at that moment and is not oversize. In the recording, its
//! `free_completed` directly precedes the `oom`, is not part of a free by the program, and its segment was
//! not returned in between.
//!
//! **Reason.** When memory runs out, PyTorch waits for all streams, and pending blocks become free. It
//! then retries on the device but does not search its pools again (pytorch/pytorch#189504).

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size::{MIN_BLOCK, pool_kind};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_bench::text::{amount, count};
use coalesce_workloads::formats::snapshot::Recording;

use crate::diagnose::evidence::Moment;
use crate::diagnose::{Evidence, Finding};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let replayed = evidence
        .failure
        .as_ref()
        .and_then(|moment| in_replay(evidence, moment));
    let recorded = evidence
        .subject
        .recording
        .map(in_recording)
        .unwrap_or_default();
    let all = replayed.iter().chain(&recorded);
    let (requested, free) = all.copied().max()?;
    let number = recorded.len().max(usize::from(replayed.is_some()));
    Some(Finding {
        rule: "retry_once",
        headline: format!(
            "A request for {} failed although a free block of {} had become available",
            amount(requested),
            amount(free)
        ),
        evidence: vec![format!(
            "{} failed although a suitable block had just become free: PyTorch does not search its pools again \
             after waiting for the streams",
            count(number as u64, "request")
        )],
        remedy: "Catch torch.OutOfMemoryError and repeat the operation, which then succeeds; or avoid the \
                 wait with wait_stream instead of record_stream"
            .to_owned(),
        conf: None,
        bytes: requested,
        stacks: Vec::new(),
    })
}

/// Bytes of the first failed request, and of a free block that fits it.
fn in_replay(evidence: &Evidence<'_>, moment: &Moment) -> Option<(u64, u64)> {
    let settings = &evidence.settings;
    let (_, request) = evidence.log.first_request_from(moment.event)?;
    let (needed, kind) = (
        evidence.block_size(request.bytes)?,
        evidence.kind_of(request)?,
    );
    let stream = StreamId::nth(request.stream);
    let is_usable = |segment: &&SegmentInfo| segment.stream == stream && segment.kind == kind;
    let blocks = moment
        .segments
        .iter()
        .filter(is_usable)
        .flat_map(|segment| &segment.blocks);
    let may_serve = |block: u64| block >= needed && !settings.is_oversize(block);
    let fitting = blocks.filter(|block| !block.is_active() && may_serve(block.size));
    Some((request.bytes, fitting.map(|block| block.size).min()?))
}

/// The same for each failed request of a recording. Sizes are rounded to 512 bytes.
fn in_recording(recording: &Recording) -> Vec<(u64, u64)> {
    let failed = recording
        .entries
        .iter()
        .enumerate()
        .filter(|(_, e)| e.action == Action::Oom);
    let fitting = |(index, oom): (usize, &TraceEntry)| {
        let before = recording.entries.get(..index)?;
        Some((oom.size, freed_in_vain(before, oom)?))
    };
    failed.filter_map(fitting).collect()
}

/// Bytes of the smallest suitable block that became free while a request failed.
fn freed_in_vain(before: &[TraceEntry], oom: &TraceEntry) -> Option<u64> {
    let is_attempt =
        |e: &TraceEntry| e.action == Action::FreeCompleted || e.action.returns_memory();
    let attempt = before.iter().rev().take_while(|e| is_attempt(e)).count();
    let (earlier, attempt) = before.split_at(before.len() - attempt);
    let rounded = |e: &TraceEntry| e.size.next_multiple_of(MIN_BLOCK);
    let was_returned = |block: &TraceEntry| {
        attempt.iter().any(|e| {
            e.action.returns_memory()
                && (e.addr.0..e.addr.0.saturating_add(e.size)).contains(&block.addr.0)
        })
    };
    let by_program = earlier
        .last()
        .filter(|e| e.action == Action::FreeRequested)
        .map(|e| e.addr);
    let fitting = attempt.iter().filter(|e| {
        e.action == Action::FreeCompleted
            && e.stream == oom.stream
            && Some(e.addr) != by_program
            && rounded(e) >= oom.size
            && pool_kind(rounded(e)) == pool_kind(oom.size)
            && !was_returned(e)
    });
    fitting.map(rounded).min()
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::StreamId;
    use coalesce_alloc::history::Action::{Alloc, FreeCompleted, FreeRequested, Oom, SegmentFree};
    use coalesce_workloads::families::program::Program;
    use coalesce_workloads::surroundings::Change;

    use super::rule;
    use crate::diagnose::testing::{MIB, Scene, hold, lines, recording};

    const FULL: Scene<'_> = Scene("", 100 * MIB, None);

    /// Requests memory on a full device while a block of 9 MiB waits for a stream. Another block keeps its
    /// segment from being returned.
    fn wait(program: &mut Program<'_>, wanted: u64) {
        program.around(Change::HoldEvents(true));
        let waits = program.alloc(9 * MIB, "waits");
        hold(program, 1, 9 * MIB);
        hold(program, 1, 80 * MIB);
        program.record_stream(&waits, 1);
        program.free(waits);
        hold(program, 1, wanted);
    }

    #[test]
    fn a_block_becomes_free_while_the_request_fails() {
        let found = FULL.find(rule, |program| wait(program, 9 * MIB)).unwrap();
        assert_eq!(found.bytes, 9 * MIB);
        assert!(
            found.remedy.contains("repeat the operation"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn the_free_block_is_too_small() {
        assert_eq!(FULL.find(rule, |program| wait(program, 10 * MIB)), None);
    }

    #[test]
    fn a_recorded_block_becomes_free_while_the_request_fails() {
        let waited = [
            (Alloc, 4 * MIB, 9 * MIB),
            (FreeRequested, 4 * MIB, 9 * MIB),
            (Alloc, 64 * MIB, 80 * MIB),
            (FreeCompleted, 4 * MIB, 9 * MIB),
            (Oom, 0, 8 * MIB),
        ];
        let find = |entries: &[_]| {
            let recording = recording(entries);
            Scene::recorded(&recording).find(rule, |program| program.scratch(MIB, ""))
        };
        assert_eq!(find(&waited).unwrap().bytes, 8 * MIB);
        let mut returned = waited.to_vec();
        returned.insert(4, (SegmentFree, 4 * MIB, 9 * MIB));
        assert_eq!(find(&returned), None, "its segment was returned");
        let mut by_program = waited.to_vec();
        by_program.swap(1, 2);
        assert_eq!(find(&by_program), None, "it was free before the request");
    }

    /// Two blocks of a segment, of 8 and 10 MiB, become free.
    #[test]
    fn the_smallest_suitable_block_is_named() {
        let find = |stream: u32, wanted: u64| {
            FULL.find(rule, move |program| {
                program.around(Change::HoldEvents(true));
                let small = program.alloc_on(stream, 8 * MIB, "waits");
                let held = program.alloc_on(stream, 2 * MIB, "stays");
                let large = program.alloc_on(stream, 9 * MIB, "waits");
                program.hold(held);
                hold(program, 1, 80 * MIB);
                for waits in [small, large] {
                    program.record_stream(&waits, 2);
                    program.free(waits);
                }
                hold(program, 1, wanted);
            })
        };
        assert_eq!(
            lines(find(0, 7 * MIB)),
            [
                "1. A request for 7.0 MiB failed although a free block of 8.0 MiB had become available \
                 [retry_once]",
                "- 1 request failed although a suitable block had just become free: PyTorch does not search its \
                 pools again after waiting for the streams",
                "> Catch torch.OutOfMemoryError and repeat the operation, which then succeeds; or avoid the wait \
                 with wait_stream instead of record_stream",
                "7340032 bytes",
            ]
        );
        assert_eq!(
            find(1, 7 * MIB),
            None,
            "the blocks belong to another stream"
        );
        assert_eq!(
            find(0, MIB / 2),
            None,
            "the small pool has its own segments"
        );
    }

    #[test]
    fn a_recorded_block_must_fit() {
        let find = |(addr, freed), oom: u64, stream: u32| {
            let mut recording = recording(&[
                (FreeRequested, 4 * MIB, 9 * MIB),
                (Alloc, 64 * MIB, 80 * MIB),
                (SegmentFree, 200 * MIB, 50 * MIB),
                (FreeCompleted, addr, freed),
                (Oom, 0, oom),
            ]);
            recording.entries[4].stream = StreamId::nth(stream);
            Scene::recorded(&recording).find(rule, |program| program.scratch(MIB, ""))
        };
        let block = (4 * MIB, 9 * MIB);
        assert_eq!(find(block, 9 * MIB, 0).unwrap().bytes, 9 * MIB);
        assert_eq!(
            find((4 * MIB, 9 * MIB - 100), 9 * MIB, 0).unwrap().bytes,
            9 * MIB
        );
        assert_eq!(find(block, 9 * MIB + 512, 0), None, "too small");
        assert_eq!(find(block, 9 * MIB, 1), None, "another stream");
        assert_eq!(find(block, MIB / 2, 0), None, "another pool");
        let (last, behind) = (200 * MIB + 50 * MIB - 512, 200 * MIB + 50 * MIB);
        assert_eq!(find((last, 9 * MIB), 9 * MIB, 0), None, "returned");
        assert!(find((behind, 9 * MIB), 9 * MIB, 0).is_some());
    }

    #[test]
    fn several_recorded_requests() {
        let entries = [
            (Alloc, 64 * MIB, 80 * MIB),
            (FreeCompleted, 4 * MIB, 6 * MIB),
            (Oom, 0, 5 * MIB),
            (FreeCompleted, 24 * MIB, 12 * MIB),
            (FreeCompleted, 44 * MIB, 9 * MIB),
            (FreeCompleted, 84 * MIB, 10 * MIB),
            (Oom, 0, 8 * MIB),
            (Alloc, 64 * MIB, 80 * MIB),
            (Oom, 0, 99 * MIB),
        ];
        let recording = recording(&entries);
        let scene = Scene("", 100 * MIB, Some(&recording));
        let found = scene.find(rule, |program| program.scratch(MIB, ""));
        assert_eq!(
            lines(found),
            [
                "1. A request for 8.0 MiB failed although a free block of 9.0 MiB had become available \
                 [retry_once]",
                "- 2 requests failed although a suitable block had just become free: PyTorch does not search its \
                 pools again after waiting for the streams",
                "> Catch torch.OutOfMemoryError and repeat the operation, which then succeeds; or avoid the wait \
                 with wait_stream instead of record_stream",
                "8388608 bytes",
            ]
        );
        let both = scene.find(rule, |program| wait(program, 9 * MIB));
        assert_eq!(both.unwrap().bytes, 9 * MIB, "of the replay");
    }
}
