//! Requests just below `max_split_size_mb`, whose segments are just not below it.
//!
//! **Criterion.** Requests smaller than the limit took segments that are not, and with a limit that is 2
//! MiB higher the program does better. A limit of the size of a shared segment has a rule of its own.
//!
//! **Why so.** A segment of 10 MiB and more is a multiple of 2 MiB: for 99 MiB it has 100. With a limit
//! of 100 MiB it is oversize, and once free it serves oversize requests only, which the next 99 MiB are
//! not: each time there is a `cudaMalloc` (PyTorch 2.11, `get_free_block`).

use super::super::evidence::Evidence;
use super::super::log::Allocation;
use super::super::relief::Relief;
use super::super::words::{count, size};
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let limit = evidence.settings.max_split_size()?;
    let is_segment = limit == evidence.settings.large_segment_size();
    if evidence.settings.expandable_segments() || is_segment {
        return None;
    }
    let is_below = |a: &Allocation| evidence.block_size(a.bytes).is_some_and(|b| b < limit);
    let allocations = evidence.log.allocations.iter().enumerate();
    let caught = allocations.filter(|(_, a)| is_below(a) && a.taken >= limit && !a.failed);
    let (numbers, taken): (Vec<usize>, Vec<u64>) =
        caught.map(|(index, a)| (index, a.taken)).unzip();
    if numbers.len() < 2 {
        return None;
    }
    let higher = ((limit >> 20) + 2).to_string();
    let conf = conf::with(evidence.subject.conf, "max_split_size_mb", Some(&higher));
    let relief = Relief::of(evidence, &conf)?;
    let taken: u64 = taken.iter().sum();
    Some(Finding {
        rule: "max_split_boundary",
        headline: format!(
            "{} just below max_split_size_mb take {} from the device and cannot reuse it",
            count(numbers.len() as u64, "request"),
            size(taken)
        ),
        evidence: vec![
            format!(
                "they are smaller than {}, the segments made for them are not: when these are free, only larger \
                 requests may have them",
                size(limit)
            ),
            relief.sentence,
        ],
        remedy: format!("PYTORCH_CUDA_ALLOC_CONF={conf}"),
        bytes: relief.saved,
        stacks: evidence.places(numbers, |_, a| a.taken),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{GIB, MIB, Scene};
    use super::rule;

    const LIMITED: Scene<'_> = Scene("max_split_size_mb:100", 80 * GIB, None);

    #[test]
    fn segments_of_100_mib_for_99() {
        let found = LIMITED.find(rule, |program| {
            (0..5).for_each(|_| program.scratch(99 * MIB, "mm"))
        });
        let found = found.unwrap();
        assert_eq!(found.bytes, 400 * MIB, "five segments in place of one");
        assert!(
            found.remedy.contains("max_split_size_mb:102"),
            "{}",
            found.remedy
        );
    }

    #[test]
    fn requests_of_the_limit_and_well_below() {
        for bytes in [100 * MIB, 90 * MIB] {
            let found = LIMITED.find(rule, |program| {
                (0..5).for_each(|_| program.scratch(bytes, "mm"))
            });
            assert_eq!(found, None);
        }
    }
}
