//! Memory barely suffices: the cache is emptied to serve requests.
//!
//! **Criterion.** No request fails, and at least one is served only after the cache was emptied.
//!
//! **Reason.** When `cudaMalloc` fails, PyTorch synchronises all streams, returns all cached memory and
//! retries (`num_alloc_retries`). This is slow, and the program fails if it needs a little more.

use coalesce_bench::text::{Unit, count, quoted};

use crate::diagnose::{Evidence, Finding, SEE_ADVISE};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let retries = evidence.measures.retries;
    if retries == 0 || evidence.tally.ooms > 0 {
        return None;
    }
    let retried = evidence.allocations().filter(|(_, a)| a.retried);
    let roomy = evidence.with_room()?.measures.peak_reserved_bytes;
    let missing = roomy.saturating_sub(evidence.available());
    let expandable = evidence.expandable();
    let trial = evidence.with_conf(&expandable)?;
    let helps = trial.ooms == 0 && trial.measures.retries < retries;
    let less = "Reduce the memory needed at one time: a smaller batch, or torch.utils.checkpoint"
        .to_owned();
    let remedy = if helps {
        format!("{less}. {SEE_ADVISE}")
    } else {
        less
    };
    let unit = Unit::of(roomy);
    Some(Finding {
        rule: "retries",
        headline: format!(
            "Memory barely suffices: the cache is emptied {} to serve a request",
            count(retries, "time")
        ),
        evidence: vec![
            format!(
                "With more memory the program reserves {}, {} more than it can here",
                unit.amount(roomy),
                unit.amount(missing),
            ),
            format!(
                "With {}, the cache is emptied {} and {} is reserved at the peak",
                quoted(&expandable),
                count(trial.measures.retries, "time"),
                unit.amount(trial.measures.peak_reserved_bytes),
            ),
        ],
        remedy,
        conf: helps.then_some(expandable),
        bytes: missing,
        stacks: evidence.call_sites(retried.map(|(index, a)| (index, a.bytes))),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::rule;
    use crate::diagnose::testing::{MIB, Scene, hold, lines};

    fn grow(program: &mut Program<'_>) {
        program.scratch(60 * MIB, "short");
        program.scratch(70 * MIB, "long");
    }

    #[test]
    fn the_cache_is_emptied_for_a_larger_request() {
        let found = Scene("", 100 * MIB, None).find(rule, grow).unwrap();
        assert_eq!(found.bytes, 30 * MIB, "a roomy device has 130 MiB reserved");
        assert_eq!(found.stacks[0].tag, "long");
    }

    #[test]
    fn the_device_has_room_for_both() {
        assert_eq!(Scene("", 200 * MIB, None).find(rule, grow), None);
    }

    #[test]
    fn other_settings_avoid_it() {
        let found = Scene("", 100 * MIB, None).find(rule, |program| {
            program.scratch(2 * MIB, "first");
            program.empty_cache();
            grow(program);
        });
        assert_eq!(
            lines(found),
            [
                "1. Memory barely suffices: the cache is emptied 1 time to serve a request [retries]",
                "- With more memory the program reserves 130.0 MiB, 30.0 MiB more than it can here",
                "- With 'expandable_segments:True', the cache is emptied 0 times and 80.0 MiB is reserved at the \
                 peak",
                "1 × long: 70.0 MiB",
                "> Reduce the memory needed at one time: a smaller batch, or torch.utils.checkpoint. `coalesce \
                 advise` ranks these settings among others",
                "31457280 bytes, with 'expandable_segments:True'",
            ]
        );
    }

    /// Free memory of another stream must be returned with all settings.
    #[test]
    fn other_settings_do_not_avoid_it() {
        let found = Scene("", 100 * MIB, None).find(rule, |program| {
            let other = program.alloc_on(1, 60 * MIB, "short");
            program.free(other);
            program.scratch(60 * MIB, "long");
        });
        assert_eq!(
            lines(found),
            [
                "1. Memory barely suffices: the cache is emptied 1 time to serve a request [retries]",
                "- With more memory the program reserves 120.0 MiB, 20.0 MiB more than it can here",
                "- With 'expandable_segments:True', the cache is emptied 1 time and 60.0 MiB is reserved at the \
                 peak",
                "1 × long: 60.0 MiB",
                "> Reduce the memory needed at one time: a smaller batch, or torch.utils.checkpoint",
                "20971520 bytes",
            ]
        );
    }

    /// Segments that grow by whole pages need 120 MiB for two tensors of 44 MiB.
    #[test]
    fn other_settings_let_a_request_fail() {
        let found = Scene("", 100 * MIB, None)
            .find(rule, |program| {
                (6..10).for_each(|n| program.scratch(10 * n * MIB, "growing"));
                program.empty_cache();
                hold(program, 1, 44 * MIB);
                let other = program.alloc_on(1, 44 * MIB, "other");
                program.hold(other);
            })
            .unwrap();
        assert_eq!(found.conf, None);
        assert!(!found.remedy.contains("advise"), "{}", found.remedy);
    }

    #[test]
    fn a_failed_request_is_left_to_another_rule() {
        let found = Scene("", 100 * MIB, None).find(rule, |program| {
            grow(program);
            program.scratch(200 * MIB, "too long");
        });
        assert_eq!(found, None);
    }
}
