//! Measures a cell on a real device: the time of its driver calls, and content verification.

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::contents::Contents;
use coalesce_alloc::driver::work::Work;
use coalesce_alloc::driver::{Driver, DriverError, StreamId};
use coalesce_alloc::{Busy, Kernels, Verification, Verified};
use coalesce_workloads::replay::Observer;
use coalesce_workloads::surroundings::Surroundings;

use crate::measure::cell::Cell;
use crate::measure::record::Row;
use crate::timing::metered::{self, Metered, metered};

/// All calls of one kind in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallTimes {
    /// The kind of call.
    pub kind: CallKind,
    /// Number of calls.
    pub calls: u64,
    /// Measured time in nanoseconds.
    pub ns: u64,
}

/// Measures a cell on an unused device, with kernels between its requests or without.
///
/// # Errors
/// As [`Cell::measure`].
pub fn measure<D: Work + Surroundings + 'static>(
    cell: &Cell<'_>,
    device: D,
    kernels: Option<Kernels>,
    observer: &mut dyn Observer,
) -> anyhow::Result<(Row, Vec<CallTimes>)> {
    let cell = &cell.on(device.total_memory());
    let allocator = cell.allocator_on(metered(device, &cell.profile.costs))?;
    let allocator = busy(allocator, kernels);
    let (row, allocator) = cell.measure_with(allocator, observer)?;
    let times = call_times(allocator.driver());
    Ok((on_device(row), times))
}

/// As [`measure`], and verifies the contents of all blocks. The measured times include waiting for the verification.
///
/// # Errors
/// As [`Cell::measure`].
pub fn verify<D: Contents + Surroundings + 'static>(
    cell: &Cell<'_>,
    device: D,
    observer: &mut dyn Observer,
) -> anyhow::Result<(Row, Vec<CallTimes>, Verification)> {
    let cell = &cell.on(device.total_memory());
    let allocator = cell.allocator_on(metered(device, &cell.profile.costs))?;
    let verified = Verified::new(allocator);
    let (row, mut verified) = cell.measure_with(verified, observer)?;
    let times = call_times(verified.driver());
    let verdict = verified.verdict()?;
    Ok((on_device(row), times, verdict))
}

/// The allocator, which runs these kernels between its requests.
pub(super) fn busy<D: Work + 'static>(
    allocator: Box<dyn Allocator<Driver = D>>,
    kernels: Option<Kernels>,
) -> Box<dyn Allocator<Driver = D>> {
    match kernels {
        Some(kernels) => Box::new(Busy::new(allocator, kernels)),
        None => allocator,
    }
}

/// Makes the first calls to the device, so that their initialization does not count: a stream, an event, some memory.
///
/// # Errors
/// If the device fails.
pub(super) fn warm_up(device: &mut impl Driver) -> Result<(), DriverError> {
    let event = device.create_event()?;
    device.record_event(event, StreamId::DEFAULT)?;
    let addr = device.malloc(1)?;
    device.free(addr, 1)?;
    device.synchronize_device()
}

/// A real device has no address policy.
fn on_device(row: Row) -> Row {
    Row {
        address_policy: "device".to_owned(),
        ..row
    }
}

/// The times of all kinds of call that were made.
fn call_times<D: Driver>(device: &Metered<D>) -> Vec<CallTimes> {
    let of = |kind: CallKind| CallTimes {
        kind,
        calls: device.counts().of(kind),
        ns: u64::try_from(metered::measured(device, kind).as_nanos()).unwrap_or(u64::MAX),
    };
    let all = CallKind::ALL.into_iter().map(of);
    all.filter(|times| times.calls > 0).collect()
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::calls::Call;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::driver::tap::{Hook, Tap};

    use super::*;

    /// All calls in order.
    #[derive(Default)]
    struct Calls(Vec<String>);

    impl Hook for Calls {
        fn after(&mut self, call: &Call) {
            self.0.push(call.to_string());
        }
    }

    #[test]
    fn warming_up_makes_one_call_of_each_kind() {
        let device = SimDevice::new(&SimConfig::default());
        let mut device = Tap::over(device, Calls::default());
        warm_up(&mut device).unwrap();
        assert_eq!(
            device.hook().0.join("\n"),
            concat!(
                "event_record stream=(nil)\n",
                "malloc 1 0x20000000000\n",
                "free 0x20000000000\n",
                "devsync",
            )
        );
        assert_eq!(device.driver().used(), 0);
    }

    #[test]
    fn only_calls_that_were_made_have_times() {
        let costs = coalesce_alloc::driver::hooks::cost::Costs::default();
        let mut device = metered(SimDevice::new(&SimConfig::default()), &costs);
        let one = device.malloc(1).unwrap();
        device.malloc(1).unwrap();
        device.free(one, 1).unwrap();
        assert_eq!(metered::asked_bytes(&device), 1);
        device.malloc(7).unwrap();
        let times = call_times(&device);
        let calls: Vec<_> = times
            .iter()
            .map(|times| (times.kind, times.calls))
            .collect();
        assert_eq!(calls, [(CallKind::Malloc, 3), (CallKind::Free, 1)]);
        assert!(times.iter().all(|times| times.ns > 0));
        assert_eq!(metered::asked_bytes(&device), 8);
    }
}
