//! A device whose calls are counted, timed, and charged by a profile, and of which it is known what is held.

use std::time::Duration;

use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::hooks::Instruments;
use coalesce_alloc::driver::hooks::cost::Costs;
use coalesce_alloc::driver::hooks::held::Held;
use coalesce_alloc::driver::hooks::stopwatch::Stopwatch;
use coalesce_alloc::driver::tap::Tap;

/// What is measured at every call, nearest to the device what takes the time.
pub type Metered<D> = Tap<Tap<D, (Held, Stopwatch)>, Instruments>;

/// A device of which nothing was taken yet, with the costs that its calls are held against; nobody waits
/// for those.
#[must_use]
pub fn metered<D: Driver>(device: D, costs: &Costs) -> Metered<D> {
    let mut costs = costs.clone();
    costs.spin = false;
    // Each byte that was asked for, not whole pages: what these take is the device's to say.
    let watch = (Held::new(1), Stopwatch::default());
    Tap::over(Tap::over(device, watch), Instruments::new(costs))
}

/// Bytes that are held of a device, as they were asked for.
#[must_use]
pub fn asked_bytes<D>(device: &Metered<D>) -> u64 {
    let (held, _) = device.driver().hook();
    held.bytes().current.cast_unsigned()
}

/// How long calls of a kind took.
#[must_use]
pub fn measured<D>(device: &Metered<D>, kind: CallKind) -> Duration {
    let (_, stopwatch) = device.driver().hook();
    stopwatch.of(kind)
}
