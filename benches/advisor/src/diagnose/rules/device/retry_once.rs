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

use crate::diagnose::evidence::{Evidence, Moment};
use crate::diagnose::finding::Finding;

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
        bytes: requested,
        ..Finding::default()
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
