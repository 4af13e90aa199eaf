//! A device that counts and times its calls, charges them by a profile, and tracks the memory in use.

use std::time::Duration;

use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::hooks::cost::Costs;
use coalesce_alloc::driver::hooks::held::HeldMemory;
use coalesce_alloc::driver::hooks::stopwatch::Stopwatch;
use coalesce_alloc::driver::tap::Tap;

/// The measuring hooks around a device, with the stopwatch closest to the device.
pub type Metered<D> = Tap<Tap<D, (HeldMemory, Stopwatch)>, Instruments>;

/// Wraps an unused device. Calls are charged `costs` without waiting for them.
#[must_use]
pub fn metered<D: Driver>(device: D, costs: &Costs) -> Metered<D> {
    let mut costs = costs.clone();
    costs.spin = false;
    // Bytes as requested: how they are rounded is up to the device.
    let watch = (HeldMemory::new(1), Stopwatch::default());
    let free = device.total_memory();
    Tap::over(Tap::over(device, watch), Instruments::new(costs, free))
}

/// Bytes taken from the device and not returned, as requested.
#[must_use]
pub fn asked_bytes<D>(device: &Metered<D>) -> u64 {
    let (held, _) = device.driver().hook();
    held.bytes().current.cast_unsigned()
}

/// Measured time of the calls of a kind.
#[must_use]
pub fn measured<D>(device: &Metered<D>, kind: CallKind) -> Duration {
    let (_, stopwatch) = device.driver().hook();
    stopwatch.of(kind)
}
