//! Fragmentation that expandable segments would avoid and no other rule explains.
//!
//! **Criterion.** At the peak, at least [`FREE_PERCENT`] % of reserved memory is free. Expandable segments
//! are disabled, and with them the peak of reserved memory is lower by [`SAVED_PERCENT`] %. Other rules
//! cover sizes that change from step to step, survivors, and settings that limit splitting.
//!
//! **Reason.** At the peak, no free block was large enough for the request, whatever their sum.

use coalesce_bench::text::{Unit, amount, count, percent_of};

use super::{lengths, survivors};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::finding::{AT_PEAK, Finding, SEE_ADVISE};
use crate::diagnose::improvement::Improvement;

/// PyTorch loses up to this share to rounding and temporary tensors anyway.
const FREE_PERCENT: u64 = 10;
/// A smaller saving does not justify the cost of mapping pages.
const SAVED_PERCENT: u64 = 5;

pub fn rule(evidence: &Evidence<'_>) -> Option<Finding> {
    if evidence.settings.expandable_segments() || evidence.settings.max_split_size().is_some() {
        return None;
    }
    let peak = evidence.peak_level();
    let lost = peak.reserved - peak.active;
    if lost < peak.reserved / 100 * FREE_PERCENT || !evidence.is_significant(lost) {
        return None;
    }
    let expandable = evidence.expandable();
    let improvement = Improvement::of(evidence, &expandable)?;
    if improvement.saved < peak.reserved / 100 * SAVED_PERCENT
        || lengths::rule(evidence).is_some()
        || survivors::rule(evidence).is_some()
    {
        return None;
    }
    let free = evidence.peak.free_blocks();
    let (number, largest) = (free.clone().count(), free.max().unwrap_or(0));
    let (index, request) = evidence.log.first_request_from(evidence.peak.event)?;
    let unit = Unit::of(peak.reserved);
    let headline = format!(
        "{AT_PEAK}, {} was free in pieces that could not serve the request",
        amount(lost)
    );
    let fact = format!(
        "{} of the {} reserved was free, in {}; the largest was {}, and the request was for {}",
        percent_of(lost, peak.reserved),
        unit.amount(peak.reserved),
        count(number as u64, "block"),
        unit.amount(largest),
        unit.amount(request.bytes),
    );
    Some(Finding {
        remedy: SEE_ADVISE.to_owned(),
        stacks: evidence.call_sites([(index, request.bytes)]),
        ..improvement.finding(expandable, headline, fact)
    })
}
