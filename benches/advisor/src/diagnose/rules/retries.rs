//! A device that is nearly too small: all cached memory is given back again and again.
//!
//! **Criterion.** All requests are served, and for at least one all cached memory was given back first.
//!
//! **Why so.** When `cudaMalloc` fails, PyTorch waits for all streams, returns all it has cached and asks
//! again (`num_alloc_retries`). The program is slow then, and fails when it needs a little more.

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{count, size};
use coalesce_bench::measure::capacity::ROOMY;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let retries = evidence.measures.retries;
    if retries == 0 || evidence.tally.ooms > 0 {
        return None;
    }
    let born = evidence
        .log
        .allocations
        .iter()
        .enumerate()
        .filter(|(_, a)| a.retried);
    let numbers: Vec<usize> = born.map(|(index, _)| index).collect();
    let roomy = evidence.with_capacity(ROOMY)?.measures.peak_reserved_bytes;
    let more = roomy.saturating_sub(evidence.subject.capacity);
    let mut seen = vec![format!(
        "with room for everything the program holds {}, {} more than the device has",
        size(roomy),
        size(more),
    )];
    let expandable = evidence.expandable();
    let trial = evidence.with_conf(&expandable)?;
    seen.push(format!(
        "with {expandable}: {}, {} held at the peak",
        match trial.measures.retries {
            1 => "1 retry".to_owned(),
            n => format!("{n} retries"),
        },
        size(trial.measures.peak_reserved_bytes),
    ));
    Some(Finding {
        rule: "retries",
        headline: format!(
            "The device is nearly too small: all cached memory is given back {}",
            count(retries, "time")
        ),
        evidence: seen,
        remedy: if trial.ooms == 0 && trial.measures.retries < retries {
            format!(
                "PYTORCH_CUDA_ALLOC_CONF={expandable}; or less at once: a smaller batch, or checkpointing"
            )
        } else {
            "less at once: a smaller batch, or checkpointing".to_owned()
        },
        bytes: more,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::families::program::Program;

    use super::super::super::testing::{MIB, Scene};
    use super::rule;

    fn grow(program: &mut Program<'_>) {
        program.scratch(60 * MIB, "short");
        program.scratch(70 * MIB, "long");
    }

    #[test]
    fn the_cache_goes_for_the_larger_request() {
        let found = Scene("", 100 * MIB, None).find(rule, grow).unwrap();
        assert_eq!(
            found.bytes,
            30 * MIB,
            "130 MiB are held where there is room"
        );
        assert_eq!(found.stacks[0].tag, "long");
    }

    #[test]
    fn a_device_with_room_for_both() {
        assert_eq!(Scene("", 200 * MIB, None).find(rule, grow), None);
    }
}
