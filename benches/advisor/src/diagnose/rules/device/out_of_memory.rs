//! A request failed: it is too much memory, or the free memory is fragmented.
//!
//! **Criterion.** A request failed. It is *too much* if the requested memory and the request together exceed
//! what the program can reserve: the limit of the process, or the device. Otherwise the free memory is
//! *fragmented*: in one piece it would serve the request.
//!
//! **Reason.** In the first case no setting helps, because this is a lower bound for every allocator. In
//! the second case expandable segments have been tried.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::text::{Unit, amount, capitalised, count, percent_of, quoted};

use crate::diagnose::evidence::{Evidence, Moment};
use crate::diagnose::finding::{Finding, SEE_ADVISE};
use crate::diagnose::improvement::requests_that;
use crate::diagnose::log::Allocation;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.failure.as_ref()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let level = evidence.log.level(moment.event);
    let available = evidence.available();
    let unit = Unit::of(available);
    let shown = |bytes: u64| match bytes {
        // Too small to be shown in the unit of the rest.
        0..MIB if available > MIB => amount(bytes),
        bytes if bytes < available / 100 => amount(bytes),
        bytes => unit.amount(bytes),
    };
    let (bound, raise) = match evidence.limit() {
        Some(limit) if limit < evidence.subject.conditions.capacity => (
            format!("the limit of the process, {}", shown(available)),
            format!(
                ", or a higher limit (the device has {})",
                amount(evidence.subject.conditions.capacity)
            ),
        ),
        _ => (format!("a device of {}", shown(available)), String::new()),
    };
    let failed = match evidence.tally.ooms {
        0 | 1 => String::new(),
        failed => format!("; {failed} requests fail in total"),
    };
    let missing = level
        .requested
        .saturating_add(request.bytes)
        .saturating_sub(available);
    let state = format!(
        "The request for {} fails: live tensors have requested {}, {} is reserved, and the program can \
         reserve no more than {bound}{failed}",
        shown(request.bytes),
        shown(level.requested),
        shown(level.reserved),
    );
    let free = free_memory(moment, &shown);
    let less = "Reduce the memory needed at one time: a smaller batch or shorter inputs, torch.utils.checkpoint, \
                lower precision, or less optimizer state";
    if missing > 0 {
        let live = moment.live.values().filter_map(|&index| {
            let allocation = evidence.log.allocations.get(index)?;
            Some((index, allocation.bytes))
        });
        let subject = if raise.is_empty() {
            "device is too small"
        } else {
            "limit of the process is too low"
        };
        return Some(Finding {
            headline: format!("The {subject} by {}: no setting helps", shown(missing)),
            evidence: vec![state, free],
            remedy: format!("{less}{raise}"),
            bytes: missing,
            stacks: evidence.call_sites(live),
            ..Finding::default()
        });
    }
    let unreserved = available.saturating_sub(level.reserved);
    let mut facts = vec![
        state,
        free,
        format!(
            "In one piece, the free memory and the {} that is not reserved would serve the request",
            shown(unreserved)
        ),
    ];
    facts.extend(out_of_reach(moment, request, &shown));
    let segment = evidence.segment_size(request.bytes).unwrap_or(0);
    if (request.bytes..segment).contains(&unreserved) {
        facts.push(format!(
            "The {} that is not reserved would suffice, but the request needs a segment of {}",
            shown(unreserved),
            shown(segment)
        ));
    }
    let (tried, conf) = try_expandable_segments(evidence);
    facts.push(tried);
    let remedy = match conf {
        Some(_) => SEE_ADVISE.to_owned(),
        None => format!("{less}{raise}"),
    };
    Some(Finding {
        headline: format!(
            "A request for {} fails although enough memory is free: it is fragmented",
            amount(request.bytes)
        ),
        evidence: facts,
        remedy,
        conf,
        bytes: request.bytes.max(available.saturating_sub(level.active)),
        stacks: evidence.call_sites([(index, request.bytes)]),
        ..Finding::default()
    })
}

const MIB: u64 = 1 << 20;

/// How free memory is divided into blocks, which PyTorch's error message does not say.
fn free_memory(moment: &Moment, shown: &dyn Fn(u64) -> String) -> String {
    let free = moment.free_blocks();
    let (number, sum) = (free.clone().count(), free.clone().sum());
    let largest = free.max().unwrap_or(0);
    format!(
        "{} is free in the cache, in {}; the largest is {}, and {} is in smaller blocks",
        shown(sum),
        count(number as u64, "block"),
        shown(largest),
        percent_of(sum - largest, sum),
    )
}

/// Free memory that the request cannot use, and why.
fn out_of_reach(
    moment: &Moment,
    request: &Allocation,
    shown: &dyn Fn(u64) -> String,
) -> Vec<String> {
    let bytes_where = |which: &dyn Fn(&SegmentInfo, &BlockInfo) -> bool| {
        let segments = moment.segments.iter();
        let blocks = segments.flat_map(|s| s.blocks.iter().map(move |b| (s, b)));
        let matching = blocks.filter(|&(s, b)| which(s, b));
        matching.map(|(_, b)| b.size).sum::<u64>()
    };
    let stream = StreamId::nth(request.stream);
    let is_free = |block: &BlockInfo| !block.is_active();
    let reasons = [
        (
            bytes_where(&|s, b| is_free(b) && s.stream != stream),
            "is free but belongs to other streams",
        ),
        (
            bytes_where(&|s, b| is_free(b) && s.stream == stream && s.kind == PoolKind::Small),
            "is free but in the small pool",
        ),
        (
            bytes_where(&|_, b| b.state == BlockState::ActivePendingFree),
            "has been freed but waits for other streams",
        ),
    ];
    let present = reasons.into_iter().filter(|&(bytes, _)| bytes > 0);
    present
        .map(|(bytes, reason)| format!("{} {reason}", shown(bytes)))
        .collect()
}

/// The effect of expandable segments, and the settings if no request fails with them.
fn try_expandable_segments(evidence: &Evidence<'_>) -> (String, Option<String>) {
    if evidence.settings.expandable_segments() && evidence.settings.max_split_size().is_none() {
        return ("Expandable segments are already enabled".to_owned(), None);
    }
    let conf = evidence.expandable();
    let name = quoted(&conf);
    match evidence.with_conf(&conf).map(|trial| trial.ooms) {
        Some(0) => (format!("With {name}, no request fails"), Some(conf)),
        Some(failed) if failed < evidence.tally.ooms => {
            let failures = requests_that("still fail", failed);
            (format!("With {name}, {failures}"), None)
        }
        Some(_) => {
            let limit = evidence.subject.conditions.limit;
            let limit = limit
                .map(|limit| format!(" under a limit of {}", amount(limit)))
                .unwrap_or_default();
            (format!("{} does not help{limit}", capitalised(&name)), None)
        }
        None if evidence.subject.workload.start().is_some() => {
            let why = "because the beginning of the program is not recorded";
            (format!("The gain of {name} is unknown, {why}"), None)
        }
        None => (format!("{} could not be tried", capitalised(&name)), None),
    }
}
