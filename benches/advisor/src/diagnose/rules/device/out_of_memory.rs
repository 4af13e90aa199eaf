//! A request failed: the device is too small, or its free memory is fragmented.
//!
//! **Criterion.** A request failed. The device is *too small* if active memory and the request together
//! exceed it. Otherwise the free memory is *fragmented*.
//!
//! **Reason.** In the first case no setting helps, because this is a lower bound for every allocator. In
//! the second case the remedy has been replayed.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;
use coalesce_bench::text::{amount, count, percent_of, quoted};

use crate::diagnose::evidence::Moment;
use crate::diagnose::log::Allocation;
use crate::diagnose::{Evidence, Finding, SEE_ADVISE};

pub const NAME: &str = "out_of_memory";

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.first_oom.as_ref()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let active: u64 = moment.segments.iter().map(SegmentInfo::active_size).sum();
    let capacity = evidence.available();
    let missing = active
        .saturating_add(request.bytes)
        .saturating_sub(capacity);
    let first_of = match evidence.tally.ooms {
        0 | 1 => String::new(),
        failed => format!("; it is the first of {failed} failed requests"),
    };
    let fails = format!("A request for {} fails", amount(request.bytes));
    if missing > 0 {
        let live = moment.live.values().filter_map(|&index| {
            let allocation = evidence.log.allocations.get(index)?;
            Some((index, allocation.bytes))
        });
        return Some(Finding {
            rule: NAME,
            headline: format!(
                "The device is too small by {}: no setting helps",
                amount(missing)
            ),
            evidence: vec![
                format!(
                    "{fails} with {} active on a device of {}{first_of}",
                    amount(active),
                    amount(capacity),
                ),
                free_memory(moment),
            ],
            remedy: "Reduce the memory needed at one time: a smaller batch or shorter inputs, \
                     torch.utils.checkpoint, lower precision, or less optimizer state"
                .to_owned(),
            conf: None,
            bytes: missing,
            stacks: evidence.call_sites(live),
        });
    }
    let mut facts = vec![
        format!(
            "{fails} although only {} of {} is active{first_of}",
            amount(active),
            amount(capacity),
        ),
        free_memory(moment),
    ];
    facts.extend(out_of_reach(moment, request));
    let unreserved = capacity.saturating_sub(evidence.log.level(moment.event).reserved);
    let segment = evidence.segment_size(request.bytes).unwrap_or(0);
    if (request.bytes..segment).contains(&unreserved) {
        facts.push(format!(
            "{} of the device is not reserved, but the request needs a segment of {}",
            amount(unreserved),
            amount(segment)
        ));
    }
    let (tried, remedy, conf) = try_expandable_segments(evidence);
    facts.push(tried);
    Some(Finding {
        rule: NAME,
        headline: format!("{fails} although enough memory is free: it is fragmented"),
        evidence: facts,
        remedy,
        conf,
        bytes: request.bytes.max(capacity - active),
        stacks: evidence.call_sites([(index, request.bytes)]),
    })
}

/// How free memory is divided into blocks, which PyTorch's error message does not say.
fn free_memory(moment: &Moment) -> String {
    let free = moment.free_blocks();
    let (number, sum) = (free.clone().count(), free.clone().sum());
    let largest = free.max().unwrap_or(0);
    format!(
        "{} is free in the cache, in {}; the largest is {}, and {} is in smaller blocks",
        amount(sum),
        count(number as u64, "block"),
        amount(largest),
        percent_of(sum - largest, sum),
    )
}

/// Free memory that the request cannot use, and why.
fn out_of_reach(moment: &Moment, request: &Allocation) -> Vec<String> {
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
        .map(|(bytes, reason)| format!("{} {reason}", amount(bytes)))
        .collect()
}

/// The effect of expandable segments, and the remedy that follows from it.
fn try_expandable_segments(evidence: &Evidence<'_>) -> (String, String, Option<String>) {
    let conf = evidence.expandable();
    let enabled =
        evidence.settings.expandable_segments() && evidence.settings.max_split_size().is_none();
    let trial = if enabled {
        None
    } else {
        evidence.with_conf(&conf)
    };
    let fact = match &trial {
        Some(trial) if trial.ooms == 0 => {
            let fact = format!("With {}, no request fails", quoted(&conf));
            return (fact, SEE_ADVISE.to_owned(), Some(conf));
        }
        Some(trial) => format!(
            "With {}, {} still fail instead of {}",
            quoted(&conf),
            count(trial.ooms, "request"),
            evidence.tally.ooms
        ),
        None if enabled => "Expandable segments are already enabled".to_owned(),
        None => format!("{} could not be tried", quoted(&conf)),
    };
    let remedy = "Reduce the memory needed at one time: a smaller batch, or torch.utils.checkpoint";
    (fact, remedy.to_owned(), None)
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::diagnose::testing::{MIB, Scene, hold, several};

    #[test]
    fn more_is_requested_than_the_device_has() {
        let found = Scene("", 100 * MIB, None).find(rule, |program| hold(program, 2, 60 * MIB));
        let found = found.unwrap();
        assert_eq!(found.bytes, 20 * MIB);
        assert!(
            found.headline.contains("no setting helps"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn free_memory_is_fragmented() {
        let found = Scene("", 120 * MIB, None).find(rule, |program| {
            // Three of the four blocks in each segment of 20 MiB are freed.
            for (index, block) in several(program, 24, 5 * MIB).into_iter().enumerate() {
                match index % 4 {
                    0 => program.hold(block),
                    _ => program.free(block),
                }
            }
            hold(program, 1, 40 * MIB);
        });
        let found = found.unwrap();
        assert!(found.headline.contains("fragmented"), "{}", found.headline);
        let facts = found.evidence.join("\n");
        assert!(
            facts.contains("90.0 MiB is free in the cache, in 6 blocks"),
            "{facts}"
        );
    }

    #[test]
    fn the_segment_is_larger_than_the_request() {
        let found = Scene("", 10 * MIB, None).find(rule, |program| hold(program, 1, 5 * MIB));
        let facts = found.unwrap().evidence.join("\n");
        assert!(
            facts.contains("10.0 MiB of the device is not reserved"),
            "{facts}"
        );
        assert!(facts.contains("a segment of 20.0 MiB"), "{facts}");
    }

    #[test]
    fn no_request_fails() {
        let found = Scene("", 120 * MIB, None).find(rule, |program| hold(program, 2, 60 * MIB));
        assert_eq!(found, None);
    }
}
