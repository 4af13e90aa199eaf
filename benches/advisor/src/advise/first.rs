//! What is known of a large workload before other settings are tried, which takes seconds.

use coalesce_bench::text::{Unit, duration};

use coalesce_workloads::demand::Demand;

use super::failure::Failure;
use super::request::AdviceRequest;
use super::simulator::RunFigures;

/// Workloads of fewer events are answered before anyone could read this.
const LARGE: u64 = 40_000;

/// What one replay under the current settings showed: how much is held and needed, or which request fails; none if the
/// complete answer follows at once.
pub(super) fn answer(
    request: &AdviceRequest<'_>,
    demand: &Demand,
    figures: &RunFigures,
    failure: Option<&Failure>,
) -> Option<String> {
    if demand.events < LARGE {
        return None;
    }
    let unit = Unit::of(figures.peak_reserved_bytes);
    let amount = |bytes| unit.amount(bytes);
    let known = match failure {
        Some(failure) => format!(
            "a request for {} {}: with it, the tensors would take {}; the allocator held {}, {} of it free",
            amount(failure.request_bytes),
            if failure.is_recorded {
                "failed"
            } else {
                "fails"
            },
            amount(failure.demand_bytes()),
            amount(failure.reserved_bytes),
            amount(failure.free_bytes)
        ),
        None => format!(
            "the program holds {} at its peak, for {} of tensors",
            amount(figures.peak_reserved_bytes),
            amount(demand.lower_bound_bytes)
        ),
    };
    let until = match request.time_limit {
        Some(limit) => {
            let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            format!(" (at most {})", duration(limit))
        }
        None => String::new(),
    };
    Some(format!("{known}; other settings are being tried{until}"))
}
