//! Five ways in which `max_split_size_mb` costs memory.
//!
//! A block of the limit or more is never split and serves only requests of nearly its size (PyTorch's
//! `get_free_block`). Smaller requests then take new memory although such blocks are free.

use std::collections::HashMap;

use coalesce_alloc::history::Action;
use coalesce_bench::text::{amount, count};

use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::finding::{AT_PEAK, Finding, SEE_ADVISE};
use crate::diagnose::improvement::Improvement;
use crate::diagnose::log::Allocation;
use crate::settings_string::with;

const KEY: &str = "max_split_size_mb";

/// The limit costs more than it saves.
///
/// **Criterion.** It is set, expandable segments are disabled, removing it is an improvement, and neither
/// [`boundary`] nor [`segment`] explains why.
pub fn costly(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = limit_without_expandable_segments(evidence)?;
    let without = evidence.conf_without(KEY);
    let improvement = Improvement::of(evidence, &without)?;
    if boundary(evidence).is_some() || segment(evidence).is_some() {
        return None;
    }
    let oversize = evidence.peak.free_blocks().filter(|&block| block >= limit);
    let headline = format!("max_split_size_mb costs {}", amount(improvement.saved));
    let fact = format!(
        "{AT_PEAK}, {} was free in blocks of at least {}, which serve no smaller request",
        amount(oversize.sum()),
        amount(limit)
    );
    Some(Finding {
        remedy: format!("Raise or remove max_split_size_mb. {SEE_ADVISE}"),
        ..improvement.finding(without, headline, fact)
    })
}

/// Requests are just below the limit, but their segments are not.
///
/// **Criterion.** Requests smaller than the limit took segments that are not smaller, and a limit that is
/// 2 MiB higher is an improvement. [`segment`] covers a limit of the size of a shared segment.
///
/// **Reason.** Segments of 10 MiB and more are multiples of 2 MiB: a request for 99 MiB takes 100 MiB. With
/// a limit of 100 MiB this segment is oversize. Once free it serves oversize requests only, so the next
/// request for 99 MiB calls `cudaMalloc` again.
pub fn boundary(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = limit_without_expandable_segments(evidence)?;
    if limit == evidence.settings.large_segment_size() {
        return None;
    }
    let is_below = |a: &Allocation| evidence.block_size(a.bytes).is_some_and(|b| b < limit);
    let caught = evidence
        .allocations()
        .filter(|(_, a)| is_below(a) && a.taken >= limit);
    let (taken, higher, improvement) = with_higher_limit(evidence, limit, caught)?;
    let headline = format!(
        "{} just below max_split_size_mb take {} from the device, which they cannot reuse",
        count(taken.len() as u64, "request"),
        amount(total(&taken))
    );
    let fact = format!(
        "The requests are smaller than {}, but their segments are not: once free, these serve only larger requests",
        amount(limit)
    );
    Some(Finding {
        remedy: format!("A limit 2 MiB higher avoids this. {SEE_ADVISE}"),
        stacks: evidence.call_sites(taken),
        ..improvement.finding(higher, headline, fact)
    })
}

/// The limit equals the size of the segments that small tensors share.
///
/// **Criterion.** The limit is the size of the segments for requests of 1 to 10 MiB (20 MiB, or
/// `large_segment_size_mb`), such segments were allocated, and a limit that is 2 MiB higher is an
/// improvement.
///
/// **Reason.** Once such a segment is entirely free, it is oversize and serves no request below the limit.
/// Each burst of requests allocates new segments.
pub fn segment(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = limit_without_expandable_segments(evidence)?;
    if limit != evidence.settings.large_segment_size() {
        return None;
    }
    let shares = |bytes: u64| evidence.segment_size(bytes) == Some(limit);
    let taking = evidence
        .allocations()
        .filter(|(_, a)| a.taken > 0 && shares(a.bytes));
    let (taken, higher, improvement) = with_higher_limit(evidence, limit, taking)?;
    let headline = format!(
        "max_split_size_mb equals the segment size, {}: free segments of that size serve no smaller request",
        amount(limit)
    );
    let requests = count(taken.len() as u64, "request");
    let fact = format!("{requests} of 1 to 10 MiB each took a new segment");
    Some(Finding {
        remedy: format!("A limit 2 MiB higher avoids this. {SEE_ADVISE}"),
        stacks: evidence.call_sites(taken),
        ..improvement.finding(higher, headline, fact)
    })
}

/// Settings were changed at run time, and live tensors lost their memory.
///
/// **Criterion.** In the recording, a segment from `cudaMalloc` was returned with a smaller size than it
/// was allocated with.
///
/// **Reason.** To make room, PyTorch returns free blocks of `max_split_size_mb` or more without
/// checking that they are whole segments (`release_available_cached_blocks`). Such a block is part of a
/// segment only if the limit was changed after the block was split, or if expandable segments were enabled.
/// `cudaFree` of the first block in a segment also frees the memory of the tensors behind it.
pub fn at_run_time(evidence: &Evidence<'_>) -> Option<Finding> {
    let mut allocated = HashMap::new();
    let mut parts = Vec::new();
    for entry in &evidence.subject.recording?.entries {
        match entry.action {
            Action::SegmentAlloc => {
                allocated.insert(entry.addr, entry.size);
            }
            Action::SegmentFree => {
                let whole = allocated.remove(&entry.addr);
                let larger = whole.filter(|&whole| whole > entry.size);
                parts.extend(larger.map(|whole| (entry, whole)));
            }
            _ => {}
        }
    }
    let lost: u64 = parts.iter().map(|(entry, whole)| whole - entry.size).sum();
    let (first, whole) = parts.first()?;
    Some(Finding {
        headline: format!(
            "{} returned in part while the rest, {}, was in use: its tensors lost their memory",
            match parts.len() {
                1 => "A segment was".to_owned(),
                several => format!("{several} segments were"),
            },
            amount(lost)
        ),
        evidence: vec![format!(
            "The segment at {} was allocated with {} and returned with {}; {} in total",
            first.addr,
            amount(*whole),
            amount(first.size),
            count(parts.len() as u64, "such return"),
        )],
        remedy: "Fix max_split_size_mb and expandable_segments in PYTORCH_CUDA_ALLOC_CONF before the first \
                 allocation; do not change them with torch.cuda.memory._set_allocator_settings"
            .to_owned(),
        bytes: lost,
        ..Finding::default()
    })
}

/// The limit makes expandable segments grow.
///
/// **Criterion.** Both are set, and removing the limit is an improvement.
///
/// **Reason.** Freed neighbours in an expandable segment coalesce to ranges of any size. A range that has
/// reached the limit serves no smaller request, and new pages are mapped instead (pytorch/pytorch#123548).
pub fn expandable(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.settings.max_split_size()?;
    if !evidence.settings.expandable_segments() {
        return None;
    }
    let without = evidence.conf_without(KEY);
    let improvement = Improvement::of(evidence, &without)?;
    let saved = amount(improvement.saved);
    let headline = format!("max_split_size_mb makes expandable segments grow by {saved}");
    let limit = amount(limit);
    let fact = format!("Free ranges of at least {limit} serve no smaller request");
    Some(Finding {
        remedy: format!("Remove max_split_size_mb. {SEE_ADVISE}"),
        ..improvement.finding(without, headline, fact)
    })
}

fn limit_without_expandable_segments(evidence: &Evidence<'_>) -> Option<u64> {
    let limit = evidence.settings.max_split_size()?;
    (!evidence.settings.expandable_segments()).then_some(limit)
}

/// The requests by index with the bytes that each took from the device.
type Taken = Vec<(usize, u64)>;

/// The requests that took memory from the device, at least two of them, and settings with a limit that is
/// 2 MiB higher with their improvement.
fn with_higher_limit<'a>(
    evidence: &Evidence<'_>,
    limit: u64,
    requests: impl Iterator<Item = (usize, &'a Allocation)>,
) -> Option<(Taken, String, Improvement)> {
    let served = requests.filter(|(_, a)| !a.failed);
    let taken: Taken = served.map(|(index, a)| (index, a.taken)).collect();
    if taken.len() < 2 {
        return None;
    }
    let mib = (limit >> 20) + 2;
    let higher = with(evidence.subject.conf, KEY, &mib.to_string());
    let improvement = Improvement::of(evidence, &higher)?;
    Some((taken, higher, improvement))
}
