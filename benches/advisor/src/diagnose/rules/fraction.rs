//! A request that the memory fraction refused while the device had room.
//!
//! **Criterion.** A request failed, `per_process_memory_fraction` is set, and what was held together
//! with the segment the request needed is more than that share of the device but not more than the
//! device.
//!
//! **Why so.** The limit is compared with the bytes of a whole segment: 20 MiB for a request of 1 to 10
//! MiB, even with expandable segments, where the request may need one page or none (PyTorch 2.11,
//! `alloc_block`). The error says how much is free, which misleads.

use super::super::evidence::Evidence;
use super::super::words::{size, typed};
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.first_oom.as_ref()?;
    let limit = evidence.limit()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let segment = evidence.segment_size(request.bytes)?;
    let held = evidence.log.level(moment.event).reserved;
    let capacity = evidence.subject.capacity;
    let needed = held.saturating_add(segment);
    if needed <= limit || needed > capacity {
        return None;
    }
    let without = conf::with(evidence.subject.conf, "per_process_memory_fraction", None);
    let mut seen = vec![format!(
        "{} is held, the limit is {}: with a segment of {} for {} it would be exceeded",
        size(held),
        size(limit),
        size(segment),
        size(request.bytes),
    )];
    if evidence.settings.expandable_segments() && segment > request.bytes {
        seen.push(format!(
            "expandable segments are on: the request needs less than the {} it is refused for",
            size(segment)
        ));
    }
    Some(Finding {
        rule: "fraction",
        headline: format!(
            "per_process_memory_fraction refuses {} while {} of the device is free",
            size(request.bytes),
            size(capacity - held)
        ),
        evidence: seen,
        remedy: format!(
            "a larger per_process_memory_fraction, or none: {}",
            typed(&without)
        ),
        bytes: capacity - limit,
        stacks: evidence.places([index], |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{MIB, Scene, hold};
    use super::rule;

    const HALF: Scene<'_> = Scene("per_process_memory_fraction:0.5", 200 * MIB, None);

    #[test]
    fn the_device_has_room() {
        let found = HALF.find(rule, |program| {
            hold(program, 1, 90 * MIB);
            hold(program, 1, 2 * MIB);
        });
        let found = found.unwrap();
        assert!(
            found.headline.contains("110.0 MiB of the device is free"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn more_than_the_device_has() {
        let found = HALF.find(rule, |program| {
            hold(program, 1, 90 * MIB);
            hold(program, 1, 150 * MIB);
        });
        assert_eq!(found, None);
    }
}
