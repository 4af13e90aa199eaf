//! A cell on a real device: what its driver's calls took, beside what a profile says, and what its memory
//! held.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::contents::Contents;
use coalesce_alloc::{Verification, Verified};
use coalesce_workloads::replay::Observer;
use coalesce_workloads::surroundings::Surroundings;

use crate::measure::cell::Cell;
use crate::measure::record::Row;
use crate::timing::metered::{self, Metered, metered};

/// All calls of one kind in a run, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallTimes {
    /// The kind.
    pub kind: CallKind,
    /// How many.
    pub calls: u64,
    /// What the profile says that they cost.
    pub modelled_ns: u64,
    /// How long they took.
    pub measured_ns: u64,
}

/// Runs a cell on a device of which nothing was taken yet.
///
/// # Errors
/// As [`Cell::measure`].
pub fn measure<D: Driver + Surroundings + 'static>(
    cell: &Cell<'_>,
    device: D,
    observer: &mut dyn Observer,
) -> anyhow::Result<(Row, Vec<CallTimes>)> {
    let capacity = device.total_memory();
    let allocator = cell.allocator_on(metered(device, &cell.profile.costs))?;
    let (row, allocator) = cell.measure_with(allocator, capacity, observer)?;
    let times = call_times(allocator.driver());
    Ok((on_device(row), times))
}

/// The same, and what is allocated is written to and looked at. The calls are those of the allocator, but
/// they wait for that work.
///
/// # Errors
/// As [`Cell::measure`].
pub fn verify<D: Contents + Surroundings + 'static>(
    cell: &Cell<'_>,
    device: D,
    observer: &mut dyn Observer,
) -> anyhow::Result<(Row, Vec<CallTimes>, Verification)> {
    let capacity = device.total_memory();
    let allocator = cell.allocator_on(metered(device, &cell.profile.costs))?;
    let verified = Verified::new(allocator);
    let (row, mut verified) = cell.measure_with(verified, capacity, observer)?;
    let times = call_times(verified.driver());
    let verdict = verified.verdict()?;
    Ok((on_device(row), times, verdict))
}

/// A real device places memory as it likes.
fn on_device(row: Row) -> Row {
    Row {
        address_policy: "device".to_owned(),
        ..row
    }
}

/// Of every kind of which there was a call.
fn call_times<D: Driver>(device: &Metered<D>) -> Vec<CallTimes> {
    let of = |kind: CallKind| CallTimes {
        kind,
        calls: device.counts().of(kind),
        modelled_ns: device.elapsed_in(kind),
        measured_ns: u64::try_from(metered::measured(device, kind).as_nanos()).unwrap_or(u64::MAX),
    };
    let all = CallKind::ALL.into_iter().map(of);
    all.filter(|times| times.calls > 0).collect()
}
