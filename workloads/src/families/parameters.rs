//! Checks of parameters.

use std::ops::RangeInclusive;

use crate::op::WorkloadError;

/// The most allocations that a member may hold at a time: the generator holds them, too.
pub(crate) const MOST_LIVE: u64 = below(24);

/// The most bytes of an allocation.
pub(crate) const MOST_BYTES: u64 = below(60);

/// The largest number below 2^`bits`.
pub(crate) const fn below(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Refuses a family's parameters unless each is in its range.
pub(crate) fn within(
    family: &'static str,
    parameters: impl IntoIterator<Item = (&'static str, u64, RangeInclusive<u64>)>,
) -> Result<(), WorkloadError> {
    for (name, value, range) in parameters {
        let (least, most) = range.into_inner();
        if value < least {
            return refuse(
                family,
                format!("{name} is {value}; it must be at least {least}"),
            );
        }
        if value > most {
            return refuse(
                family,
                format!("{name} is {value}; it must be at most {most}"),
            );
        }
    }
    Ok(())
}

/// Refuses a family's parameters if a rule that concerns several of them is broken.
pub(crate) fn refuse_if<const N: usize>(
    family: &'static str,
    rules: [(bool, &str); N],
) -> Result<(), WorkloadError> {
    match rules.into_iter().find(|(is_broken, _)| *is_broken) {
        Some((_, reason)) => refuse(family, reason),
        None => Ok(()),
    }
}

/// Refuses a family's parameters.
pub(crate) fn refuse(family: &'static str, reason: impl Into<String>) -> Result<(), WorkloadError> {
    let reason = reason.into();
    Err(WorkloadError::Parameter { family, reason })
}
