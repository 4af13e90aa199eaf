//! The limit of the process rejects a request although the device has room.
//!
//! **Criterion.** A request failed, the process has a limit (`per_process_memory_fraction`, or one that the
//! recording shows), and reserved memory together with the segment for the request exceeds the limit but
//! not the device.
//!
//! **Reason.** The limit is compared with the size of a whole segment: 20 MiB for a request of 1 to 10 MiB,
//! even with expandable segments, where the request may need one page or none (PyTorch's
//! `alloc_block`). The error message reports how much is free, which is misleading.

use coalesce_bench::text::amount;

use crate::diagnose::{Evidence, Finding};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let moment = evidence.failure.as_ref()?;
    let limit = evidence.limit()?;
    let (index, request) = evidence.log.first_request_from(moment.event)?;
    let segment = evidence.segment_size(request.bytes)?;
    let reserved = evidence.log.level(moment.event).reserved;
    let capacity = evidence.subject.conditions.capacity;
    let needed = reserved.saturating_add(segment);
    if needed <= limit || needed > capacity {
        return None;
    }
    let mut facts = vec![format!(
        "{} is reserved and the limit is {}; a segment of {} for the request of {} would exceed it",
        amount(reserved),
        amount(limit),
        amount(segment),
        amount(request.bytes),
    )];
    if evidence.settings.expandable_segments() && segment > request.bytes {
        facts.push(format!(
            "Expandable segments are enabled: the request needs less than the {} that is checked against \
             the limit",
            amount(segment)
        ));
    }
    const KEY: &str = "per_process_memory_fraction";
    let is_set = evidence.subject.conf.contains(KEY);
    let name = if is_set {
        KEY
    } else {
        "The limit of the process"
    };
    Some(Finding {
        rule: "fraction",
        headline: format!(
            "{name} rejects a request for {} while {} of the device is free",
            amount(request.bytes),
            amount(capacity - reserved)
        ),
        evidence: facts,
        remedy: format!("Raise {KEY} (torch.cuda.set_{KEY} if the program calls it), or remove it"),
        conf: is_set.then(|| evidence.conf_without(KEY)),
        bytes: capacity - limit,
        stacks: evidence.call_sites([(index, request.bytes)]),
    })
}

#[cfg(test)]
mod tests {
    use super::rule;
    use crate::diagnose::Finding;
    use crate::diagnose::testing::{MIB, Scene, hold, lines};

    const HALF: Scene<'_> = Scene("per_process_memory_fraction:0.5", 200 * MIB, None);

    #[test]
    fn the_device_has_room() {
        let found = HALF
            .find(rule, |program| {
                hold(program, 1, 90 * MIB);
                hold(program, 1, 2 * MIB);
            })
            .unwrap();
        assert!(
            found.headline.contains("110.0 MiB of the device is free"),
            "{}",
            found.headline
        );
    }

    #[test]
    fn the_device_is_too_small() {
        let found = HALF.find(rule, |program| {
            hold(program, 1, 90 * MIB);
            hold(program, 1, 150 * MIB);
        });
        assert_eq!(found, None);
    }

    /// On a device of 100 MiB, of which the process may reserve 98.
    fn limited(conf: &str, held: u64, wanted: u64) -> Option<Finding> {
        Scene(conf, 100 * MIB, None).gather_under(
            Some(98 * MIB),
            |program| {
                hold(program, 1, held * MIB);
                hold(program, 1, wanted * MIB);
            },
            rule,
        )
    }

    #[test]
    fn a_limit_that_the_program_sets() {
        assert_eq!(
            lines(limited("", 80, 20)),
            [
                "1. The limit of the process rejects a request for 20.0 MiB while 20.0 MiB of the device is free \
                 [fraction]",
                "- 80.0 MiB is reserved and the limit is 98.0 MiB; a segment of 20.0 MiB for the request of 20.0 \
                 MiB would exceed it",
                "1 × several: 20.0 MiB",
                "> Raise per_process_memory_fraction (torch.cuda.set_per_process_memory_fraction if the program \
                 calls it), or remove it",
                "2097152 bytes",
            ]
        );
        assert_eq!(limited("", 82, 20), None, "the device is full");
        assert_eq!(
            limited("", 78, 20),
            None,
            "the limit is reached but not exceeded"
        );
    }

    #[test]
    fn a_limit_in_the_settings() {
        let found = Scene("per_process_memory_fraction:0.5", 200 * MIB, None)
            .find(rule, |program| hold(program, 2, 60 * MIB));
        assert_eq!(
            lines(found),
            [
                "1. per_process_memory_fraction rejects a request for 60.0 MiB while 140.0 MiB of the device is \
                 free [fraction]",
                "- 60.0 MiB is reserved and the limit is 100.0 MiB; a segment of 60.0 MiB for the request of 60.0 \
                 MiB would exceed it",
                "1 × several: 60.0 MiB",
                "> Raise per_process_memory_fraction (torch.cuda.set_per_process_memory_fraction if the program \
                 calls it), or remove it",
                "104857600 bytes, with ''",
            ]
        );
    }

    #[test]
    fn expandable_segments_need_less_than_is_checked() {
        let expandable = "expandable_segments:True";
        assert_eq!(
            lines(limited(expandable, 80, 9)),
            [
                "1. The limit of the process rejects a request for 9.0 MiB while 20.0 MiB of the device is free \
                 [fraction]",
                "- 80.0 MiB is reserved and the limit is 98.0 MiB; a segment of 20.0 MiB for the request of 9.0 \
                 MiB would exceed it",
                "- Expandable segments are enabled: the request needs less than the 20.0 MiB that is checked \
                 against the limit",
                "1 × several: 9.0 MiB",
                "> Raise per_process_memory_fraction (torch.cuda.set_per_process_memory_fraction if the program \
                 calls it), or remove it",
                "2097152 bytes",
            ]
        );
        assert_eq!(limited(expandable, 80, 20).unwrap().evidence.len(), 1);
    }

    /// Whole pages do not fit the device, although the segment that is checked does.
    #[test]
    fn the_limit_is_not_the_reason() {
        let found = Scene("expandable_segments:True", 50 * MIB, None).gather_under(
            Some(46 * MIB),
            |program| {
                hold(program, 1, 20 * MIB);
                hold(program, 1, 25 * MIB);
            },
            rule,
        );
        assert_eq!(found, None);
    }
}
