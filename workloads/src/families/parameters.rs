//! Ranges of parameters.

use std::ops::RangeInclusive;

use crate::op::WorkloadError;

/// Refuses a family's parameters unless each is in its range.
pub(crate) fn within<const N: usize>(
    family: &'static str,
    parameters: [(&str, u64, RangeInclusive<u64>); N],
) -> Result<(), WorkloadError> {
    for (name, value, range) in parameters {
        if !range.contains(&value) {
            let (least, most) = range.into_inner();
            let reason = if value < least {
                format!("it must be at least {least}")
            } else {
                format!("it must be at most {most}")
            };
            return refuse(family, format!("{name} is {value}; {reason}"));
        }
    }
    Ok(())
}

/// Refuses a family's parameters.
pub(crate) fn refuse(family: &'static str, reason: String) -> Result<(), WorkloadError> {
    Err(WorkloadError::Parameter { family, reason })
}
