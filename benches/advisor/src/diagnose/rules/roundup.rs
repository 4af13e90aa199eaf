//! `roundup_power2_divisions` that costs more than it brings.
//!
//! **Criterion.** It is set, and without it the program does better.
//!
//! **Why so.** Rounding lets freed blocks serve requests of nearly their size; what is rounded up is
//! lost. With few divisions that is up to 1/N of each block, and requests below 10 MiB can be pushed
//! from shared segments to such of their own.

use coalesce_alloc::pytorch::size::MIN_BLOCK;

use super::super::evidence::Evidence;
use super::super::relief::Relief;
use super::super::words::{size, typed};
use super::super::{Finding, conf};

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let lost_to = |index: usize| {
        let bytes = evidence.log.allocations.get(index)?.bytes;
        let plain = bytes.max(1).checked_next_multiple_of(MIN_BLOCK)?;
        evidence.block_size(bytes)?.checked_sub(plain)
    };
    let live = evidence.peak.live.values().copied();
    let rounded = live.filter(|&index| lost_to(index).is_some_and(|lost| lost > 0));
    let mut rounded: Vec<usize> = rounded.collect();
    rounded.sort_unstable();
    let lost: u64 = rounded.iter().filter_map(|&index| lost_to(index)).sum();
    let without = conf::with(evidence.subject.conf, "roundup_power2_divisions", None);
    if without == evidence.subject.conf || lost == 0 {
        return None;
    }
    let relief = Relief::of(evidence, &without)?;
    Some(Finding {
        rule: "roundup",
        headline: format!("roundup_power2_divisions costs {}", size(relief.saved)),
        evidence: vec![
            format!("when the most is held, {} is lost to rounding", size(lost)),
            relief.sentence,
        ],
        remedy: format!("more divisions, or none: {}", typed(&without)),
        bytes: relief.saved,
        stacks: evidence.places(rounded, |index, _| lost_to(index).unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{GIB, MIB, Scene, hold};
    use super::rule;

    #[test]
    fn just_above_a_division() {
        let two = Scene("roundup_power2_divisions:2", 80 * GIB, None);
        let found = two
            .find(rule, |program| hold(program, 10, 65 * MIB))
            .unwrap();
        assert_eq!(
            found.bytes,
            10 * (96 - 66) * MIB,
            "segments are multiples of 2 MiB anyway"
        );
        assert_eq!(two.find(rule, |program| hold(program, 10, 64 * MIB)), None);
    }
}
