//! Workloads that no device can run.

use anyhow::bail;
use coalesce_alloc::bytes::amount;
use coalesce_alloc::printable::printable;
use coalesce_workloads::demand::{Demand, first_above};
use coalesce_workloads::op::Workload;

/// The most bytes that a workload may request at one time, many times the memory of any device. A search of the minimum
/// device memory replays the workload on devices that are large enough for it, and expandable segments map its memory page
/// by page: so much in seconds, but ten times as much in minutes.
pub const MOST_REQUESTED: u64 = 16 << 40;

/// Fails if a workload requests more memory at one time than any device has, and tells where.
///
/// # Errors
/// As described, or if the workload cannot be read.
pub fn check_demand(workload: &dyn Workload, demand: &Demand) -> anyhow::Result<()> {
    if demand.lower_bound_bytes <= MOST_REQUESTED {
        return Ok(());
    }
    let name = printable(workload.name());
    let (most, any) = (amount(demand.lower_bound_bytes), amount(MOST_REQUESTED));
    let event = first_above(workload, MOST_REQUESTED)?;
    bail!(
        "{name}: live requests reach {most}, more than the {any} that any device may have; event {event} is the first \
         above. Sizes must be in bytes, and memory that is no longer used must be freed"
    )
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::op::Op;
    use coalesce_workloads::written::listed;

    use super::*;

    #[test]
    fn more_than_any_device_has_is_an_error_that_names_the_event() {
        let checked = |bytes| {
            let ops = [(0, MOST_REQUESTED), (1, bytes)]
                .map(|(id, bytes)| [Op::malloc(id, bytes), Op::Free { id }]);
            let workload = listed("large", ops.concat());
            check_demand(&workload, &Demand::of(&workload).unwrap())
        };
        assert!(checked(MOST_REQUESTED).is_ok());
        let error = checked(MOST_REQUESTED + 1).unwrap_err().to_string();
        let is_told = error.starts_with("large: live requests reach 16.00 TiB");
        assert!(is_told, "{error}");
        assert!(error.contains("event 2 is the first above"), "{error}");
    }
}
