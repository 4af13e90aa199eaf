//! Two problems of `roundup_power2_divisions`.

use coalesce_alloc::pytorch::size::{MIN_BLOCK, SMALL_LIMIT};
use coalesce_bench::text::{amount, percent_of};

use crate::diagnose::evidence::{Evidence, total};
use crate::diagnose::finding::{AT_PEAK, Finding, SEE_ADVISE};
use crate::diagnose::improvement::Improvement;

const KEY: &str = "roundup_power2_divisions";
/// A smaller unrounded share may be intended.
const UNROUNDED_PERCENT: u64 = 25;

/// Rounding costs more than it saves.
///
/// **Criterion.** The key is set, and removing it is an improvement.
///
/// **Reason.** Rounding lets freed blocks serve requests of similar sizes, but the rounded-up part is lost.
/// With N divisions that is up to 1/N of each block. Requests below 10 MiB may also move from shared
/// segments to their own.
pub fn costly(evidence: &Evidence<'_>) -> Option<Finding> {
    let lost_to_rounding = |index: usize| {
        let bytes = evidence.log.allocations.get(index)?.bytes;
        let plain = bytes.max(1).checked_next_multiple_of(MIN_BLOCK)?;
        let lost = evidence.block_size(bytes)?.checked_sub(plain)?;
        (lost > 0).then_some((index, lost))
    };
    let live = evidence.peak.live.values().copied();
    let rounded: Vec<(usize, u64)> = live.filter_map(lost_to_rounding).collect();
    if rounded.is_empty() || !evidence.subject.conf.contains(KEY) {
        return None;
    }
    let without = evidence.conf_without(KEY);
    let improvement = Improvement::of(evidence, &without)?;
    let saved = amount(improvement.saved);
    let headline = format!("roundup_power2_divisions costs {saved}");
    let lost = amount(total(&rounded));
    let fact = format!("{AT_PEAK}, {lost} was lost to rounding");
    Some(Finding {
        remedy: format!("Use more divisions, or remove the setting. {SEE_ADVISE}"),
        stacks: evidence.call_sites(rounded),
        ..improvement.finding(without, headline, fact)
    })
}

/// Some sizes are not rounded although the setting suggests it.
///
/// **Criterion.** The key is set, and at least [`UNROUNDED_PERCENT`] % of the bytes requested in large
/// blocks have sizes with 1 division, or with 0 divisions that the list does not state explicitly.
///
/// **Reason.** Each element of a list covers the sizes from its label to twice that. Sizes between two
/// labels, and above the last one without `>`, are not rounded at all. One division equals no rounding,
/// although the documentation speaks of powers of two (pytorch/pytorch#161139).
pub fn gaps(evidence: &Evidence<'_>) -> Option<Finding> {
    let (_, list) = evidence.subject.conf.split_once(KEY)?;
    let label = |bytes: u64| 1_u64 << bytes.max(1).ilog2().saturating_sub(20).min(15);
    let is_intended = |bytes: u64| {
        let mut elements = list.split(['[', ',', ']']);
        elements.any(|element| element.trim() == format!("{}:0", label(bytes)))
    };
    // Rounding hardly matters in the small pool.
    let large = evidence
        .allocations()
        .filter(|(_, a)| a.bytes > SMALL_LIMIT);
    let requested: u64 = large.clone().map(|(_, a)| a.bytes).sum();
    let is_unrounded = |bytes: u64| evidence.settings.roundup().of(bytes) <= 1;
    let gaps: Vec<(usize, u64)> = large
        .filter(|(_, a)| is_unrounded(a.bytes) && !is_intended(a.bytes))
        .map(|(index, a)| (index, a.bytes))
        .collect();
    let unrounded = total(&gaps);
    if unrounded == 0 || unrounded < requested / 100 * UNROUNDED_PERCENT {
        return None;
    }
    let mut labels: Vec<u64> = gaps.iter().map(|&(_, bytes)| label(bytes)).collect();
    labels.sort_unstable();
    labels.dedup();
    let labels: Vec<String> = labels.iter().map(u64::to_string).collect();
    let largest = gaps.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    Some(Finding {
        headline: format!(
            "roundup_power2_divisions does not round {} of the requested memory",
            percent_of(unrounded, requested)
        ),
        evidence: vec![
            format!(
                "These labels (in MiB) are not rounded: {}",
                labels.join(", ")
            ),
            format!(
                "The largest request among them is for {}",
                amount(largest)
            ),
        ],
        remedy: "Give each label at least 2 divisions and cover all larger sizes with `>`, as in \
                 roundup_power2_divisions:[256:8,512:4,1024:4,>:2]; the first element also applies to all \
                 smaller sizes"
            .to_owned(),
        bytes: 0,
        stacks: evidence.call_sites(gaps),
        ..Finding::default()
    })
}
