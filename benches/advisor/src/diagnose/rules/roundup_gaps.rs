//! Sizes that `roundup_power2_divisions` does not round, though it looks as if it did.
//!
//! **Criterion.** It is set, and [`UNROUNDED_PERCENT`] % of the bytes asked for in large blocks are of
//! sizes for which the divisions are 1, or 0 without the list saying so.
//!
//! **Why so.** In a list, each element is for the sizes between its label and twice that; what lies
//! between two labels, and above the last unless there is `>`, is not rounded at all. And 1 division is
//! the same as none, whatever the documentation says of powers of two (PyTorch 2.11;
//! pytorch/pytorch#161139).

use coalesce_alloc::pytorch::size::SMALL_LIMIT;

use super::super::Finding;
use super::super::evidence::Evidence;
use super::super::words::{percent, size};

/// If it is less, whoever wrote the list may well have meant it.
const UNROUNDED_PERCENT: u64 = 25;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    let (_, list) = evidence
        .subject
        .conf
        .split_once("roundup_power2_divisions")?;
    let label = |bytes: u64| 1_u64 << bytes.max(1).ilog2().saturating_sub(20).min(15);
    let is_meant = |bytes: u64| {
        let mut elements = list.split(['[', ',', ']']);
        elements.any(|element| element.trim() == format!("{}:0", label(bytes)))
    };
    // Small blocks are in pools of their own, where rounding hardly matters.
    let allocations = evidence.log.allocations.iter().enumerate();
    let large = allocations.filter(|(_, a)| a.bytes > SMALL_LIMIT);
    let all: u64 = large.clone().map(|(_, a)| a.bytes).sum();
    let left =
        large.filter(|(_, a)| evidence.settings.roundup().of(a.bytes) <= 1 && !is_meant(a.bytes));
    let (numbers, bytes): (Vec<usize>, Vec<u64>) = left.map(|(index, a)| (index, a.bytes)).unzip();
    let unrounded: u64 = bytes.iter().sum();
    if unrounded == 0 || unrounded < all / 100 * UNROUNDED_PERCENT {
        return None;
    }
    let mut labels: Vec<u64> = bytes.iter().map(|&bytes| label(bytes)).collect();
    labels.sort_unstable();
    labels.dedup();
    let labels: Vec<String> = labels.iter().map(u64::to_string).collect();
    let largest = bytes.iter().max().copied().unwrap_or(0);
    Some(Finding {
        rule: "roundup_gaps",
        headline: format!(
            "roundup_power2_divisions leaves {} of the memory asked for unrounded",
            percent(unrounded, all)
        ),
        evidence: vec![
            format!("no rounding for the labels {} (MiB)", labels.join(", ")),
            format!("the largest request among them is for {}", size(largest)),
        ],
        remedy: "give each label a number of divisions of at least 2, and `>` for all above, as in \
                 roundup_power2_divisions:[256:8,512:4,1024:4,>:2]; the first also holds for all below it"
            .to_owned(),
        bytes: 0,
        stacks: evidence.places(numbers, |_, a| a.bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{GIB, MIB, Scene, hold};
    use super::rule;

    #[test]
    fn sizes_that_no_element_is_for() {
        let find = |conf, bytes| {
            let scene = Scene(conf, 80 * GIB, None);
            scene.find(rule, |program| hold(program, 4, bytes))
        };
        let list = "roundup_power2_divisions:[64:4,256:4]";
        let found = find(list, 130 * MIB).unwrap();
        assert!(found.evidence[0].contains("128"), "{}", found.evidence[0]);
        assert!(
            find("roundup_power2_divisions:1", 130 * MIB).is_some(),
            "1 is none"
        );
        assert_eq!(find(list, 300 * MIB), None);
        assert_eq!(
            find("roundup_power2_divisions:[64:4,128:0,256:4]", 130 * MIB),
            None,
            "as it says"
        );
        assert_eq!(find("", 130 * MIB), None);
    }
}
