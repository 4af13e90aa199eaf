//! A request that failed: whether memory was short, or in the wrong places.
//!
//! **Criterion.** A request failed. Memory was *short* if what was in use and the request together are
//! more than the device has; otherwise it was *in the wrong places*.
//!
//! **Why so.** In the first case no setting helps: that is a lower bound for every allocator. In the
//! second, the remedy was tried.

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::snapshot::{BlockInfo, BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

use super::super::Finding;
use super::super::evidence::{Evidence, Moment};
use super::super::log::Allocation;
use super::super::words::{count, percent, size};

pub const NAME: &str = "out_of_memory";

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.first_oom.as_ref()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let live: u64 = moment.segments.iter().map(SegmentInfo::active_size).sum();
    let capacity = evidence.limit().unwrap_or(evidence.subject.capacity);
    let short = live.saturating_add(request.bytes).saturating_sub(capacity);
    let failed = evidence.tally.ooms;
    let request_of = format!("a request for {}", size(request.bytes));
    if short > 0 {
        let numbers: Vec<usize> = moment.live.values().copied().collect();
        return Some(Finding {
            rule: NAME,
            headline: format!("Memory is short by {}: no setting helps", size(short)),
            evidence: vec![
                format!(
                    "{request_of} fails with {} in use on a device of {}{}",
                    size(live),
                    size(capacity),
                    others(failed)
                ),
                free_memory(moment),
            ],
            remedy: "less at once: a smaller batch or shorter inputs, torch.utils.checkpoint, a smaller \
                     precision, less optimizer state"
                .to_owned(),
            bytes: short,
            stacks: evidence.places(numbers, |_, a| a.bytes),
        });
    }
    let (evidence_of, remedy) = tried(evidence);
    let mut seen = vec![
        format!(
            "{request_of} fails although only {} of {} is in use{}",
            size(live),
            size(capacity),
            others(failed)
        ),
        free_memory(moment),
    ];
    seen.extend(out_of_reach(moment, request));
    let unheld = capacity.saturating_sub(evidence.log.level(moment.event).reserved);
    let segment = evidence.segment_size(request.bytes).unwrap_or(0);
    if (request.bytes..segment).contains(&unheld) {
        seen.push(format!(
            "{} is not held at all, but the request would take a segment of {}",
            size(unheld),
            size(segment)
        ));
    }
    seen.push(evidence_of);
    Some(Finding {
        rule: NAME,
        headline: format!(
            "A request for {} fails though there is enough memory for it, in the wrong places",
            size(request.bytes)
        ),
        evidence: seen,
        remedy,
        bytes: request.bytes.max(capacity - live),
        stacks: evidence.places([index], |_, a| a.bytes),
    })
}

fn others(failed: u64) -> String {
    match failed {
        0 | 1 => String::new(),
        failed => format!("; it is the first of {failed}"),
    }
}

/// How what is free is divided, as PyTorch's error does not say it.
fn free_memory(moment: &Moment) -> String {
    let blocks = moment.segments.iter().flat_map(|segment| &segment.blocks);
    let free = blocks
        .filter(|block| !block.is_active())
        .map(|block| block.size);
    let (number, all) = (free.clone().count(), free.clone().sum());
    let largest = free.max().unwrap_or(0);
    format!(
        "{} is free in the cache, in {}, the largest {}: {} is in smaller pieces",
        size(all),
        count(number as u64, "block"),
        size(largest),
        percent(all - largest, all),
    )
}

/// What the request could not have had, and why.
fn out_of_reach(moment: &Moment, request: &Allocation) -> Vec<String> {
    let bytes_where = |which: &dyn Fn(&SegmentInfo, &BlockInfo) -> bool| {
        let blocks = moment
            .segments
            .iter()
            .flat_map(|s| s.blocks.iter().map(move |b| (s, b)));
        blocks
            .filter(|&(s, b)| which(s, b))
            .map(|(_, b)| b.size)
            .sum::<u64>()
    };
    let stream = StreamId::nth(request.stream);
    let is_free = |block: &BlockInfo| !block.is_active();
    let reasons = [
        (
            bytes_where(&|s, b| is_free(b) && s.stream != stream),
            "is free for other streams only",
        ),
        (
            bytes_where(&|s, b| is_free(b) && s.stream == stream && s.kind == PoolKind::Small),
            "is free in the pool of small blocks",
        ),
        (
            bytes_where(&|_, b| b.state == BlockState::ActivePendingFree),
            "was given back and waits for other streams",
        ),
    ];
    let told = reasons.into_iter().filter(|&(bytes, _)| bytes > 0);
    told.map(|(bytes, what)| format!("{} {what}", size(bytes)))
        .collect()
}

/// What came of the remedy.
fn tried(evidence: &Evidence<'_>) -> (String, String) {
    let less = "less at once: a smaller batch, or torch.utils.checkpoint";
    let expandable = evidence.expandable();
    if evidence.settings.expandable_segments() && evidence.settings.max_split_size().is_none() {
        return (
            "expandable segments are on already".to_owned(),
            less.to_owned(),
        );
    }
    match evidence.with_conf(&expandable) {
        Some(trial) if trial.ooms == 0 => (
            format!("with {expandable} no request fails"),
            format!("PYTORCH_CUDA_ALLOC_CONF={expandable}"),
        ),
        Some(trial) => (
            format!(
                "with {expandable}, too, {} fail, in place of {}",
                count(trial.ooms, "request"),
                evidence.tally.ooms
            ),
            less.to_owned(),
        ),
        None => (format!("{expandable} could not be tried"), less.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, Scene, hold, several};
    use super::rule;

    #[test]
    fn more_than_there_is() {
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
    fn enough_but_in_pieces() {
        let found = Scene("", 120 * MIB, None).find(rule, |program| {
            // Three of the four blocks in each segment of 20 MiB go.
            for (index, block) in several(program, 24, 5 * MIB).into_iter().enumerate() {
                match index % 4 {
                    0 => program.hold(block),
                    _ => program.free(block),
                }
            }
            hold(program, 1, 40 * MIB);
        });
        let found = found.unwrap();
        assert!(
            found.headline.contains("wrong places"),
            "{}",
            found.headline
        );
        let said = found.evidence.join("\n");
        assert!(
            said.contains("90.0 MiB is free in the cache, in 6 blocks"),
            "{said}"
        );
    }

    #[test]
    fn a_segment_larger_than_the_request() {
        let found = Scene("", 10 * MIB, None).find(rule, |program| hold(program, 1, 5 * MIB));
        let said = found.unwrap().evidence.join("\n");
        assert!(said.contains("10.0 MiB is not held at all"), "{said}");
        assert!(said.contains("a segment of 20.0 MiB"), "{said}");
    }

    #[test]
    fn no_request_fails() {
        let found = Scene("", 120 * MIB, None).find(rule, |program| hold(program, 2, 60 * MIB));
        assert_eq!(found, None);
    }
}
