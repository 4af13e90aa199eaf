//! Measures how fast a device clears returned memory.
//!
//! A device hands out clear memory first, so the measurement begins by taking all memory. Then it returns some and takes it
//! again. The time that this takes beyond the time of the calls is the time to clear the memory.

use coalesce_alloc::driver::hooks::clearing::Clearing;
use coalesce_alloc::driver::{DeviceAddr, Driver, DriverError};

/// Bytes of one request: 1 GiB.
const PIECE: u64 = 1 << 30;
/// Pieces to return and to take again.
const PIECES: usize = 16;
/// Times to return and take a single piece.
const ROUNDS: usize = 3;

/// Measures an idle `device`. `clock` returns nanoseconds. `rest` gets a number of returned bytes and waits until the device
/// had time to clear them. Returns `None` if the device has less than 32 GiB of free memory, or if no request waits.
///
/// # Errors
/// If the device fails.
pub fn measure<D: Driver>(
    device: &mut D,
    clock: &dyn Fn(&D) -> u64,
    rest: &dyn Fn(u64),
) -> Result<Option<Clearing>, DriverError> {
    let mut held = Vec::new();
    let mut at_once = u64::MAX;
    loop {
        let begun = clock(device);
        match device.malloc(PIECE) {
            Ok(addr) => held.push(addr),
            Err(DriverError::OutOfMemory) => break,
            Err(error) => return Err(error),
        }
        at_once = at_once.min(clock(device).saturating_sub(begun));
    }
    let measured = if held.len() >= 2 * PIECES {
        again(device, clock, rest, &mut held, at_once)
    } else {
        Ok(None)
    };
    let bytes = PIECE * held.len() as u64;
    for addr in held {
        device.free(addr, PIECE)?;
    }
    rest(bytes);
    measured
}

/// Returns pieces and takes them again. A call that does not wait takes `at_once` nanoseconds.
fn again<D: Driver>(
    device: &mut D,
    clock: &dyn Fn(&D) -> u64,
    rest: &dyn Fn(u64),
    held: &mut Vec<DeviceAddr>,
    at_once: u64,
) -> Result<Option<Clearing>, DriverError> {
    let mut waits = |pieces: usize| -> Result<u64, DriverError> {
        rest(PIECE * pieces as u64);
        for addr in held.drain(held.len() - pieces..) {
            device.free(addr, PIECE)?;
        }
        let begun = clock(device);
        for _ in 0..pieces {
            held.push(device.malloc(PIECE)?);
        }
        let ns = clock(device).saturating_sub(begun);
        Ok(ns.saturating_sub(at_once * pieces as u64))
    };
    let mut single = [0; ROUNDS];
    for wait in &mut single {
        *wait = waits(1)?;
    }
    single.sort_unstable();
    let interval_ns = single[ROUNDS / 2];
    let all = waits(PIECES)?;
    // A call that takes a little longer has not waited.
    let is_clearing = interval_ns > 2 * at_once;
    Ok(is_clearing.then(|| Clearing {
        ns_per_mib: all / (PIECES as u64 * (PIECE >> 20)),
        interval_ns,
    }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};

    use super::*;

    fn measured(gib: u64, clearing: Clearing) -> Option<Clearing> {
        let cost = Cost {
            ns: 1000,
            ns_per_mib: 0,
        };
        let mut costs = Costs::default().with(CallKind::Malloc, cost);
        costs.clearing = clearing;
        let mut device = SimDevice::new(&SimConfig {
            costs,
            ..SimConfig::with_capacity(gib << 30)
        });
        let rested = RefCell::new(Vec::new());
        let rest = |bytes| rested.borrow_mut().push(bytes);
        let clearing = measure(&mut device, &SimDevice::elapsed_ns, &rest).unwrap();
        assert_eq!(device.used(), 0);
        // The device clears all returned memory before anything else runs.
        let all = (gib << 30) / PIECE * PIECE;
        assert_eq!(rested.borrow().last(), Some(&all));
        clearing
    }

    #[test]
    fn the_measured_clearing_is_that_of_a_large_device() {
        let clearing = |interval_ns, ns_per_mib| Clearing {
            ns_per_mib,
            interval_ns,
        };
        let usual = clearing(8_000_000, 2500);
        let found = measured(80, usual);
        let of_intervals = found.unwrap();
        let is_near = of_intervals.interval_ns.abs_diff(8_000_000) < 10_000;
        assert!(is_near, "{found:?}");
        // In whole intervals, within which three pieces are cleared.
        assert!((2300..3200).contains(&of_intervals.ns_per_mib), "{found:?}");
        // Twice the returned memory suffices.
        assert_eq!([31, 32].map(|gib| measured(gib, usual)), [None, found]);
        assert_eq!(measured(80, Clearing::default()), None);
        // A wait that is shorter than the call is not recognized.
        let waits = [900, 2_000, 2_100, 9_000].map(|ns| measured(32, clearing(ns, 1)));
        let waits = waits.map(|found| found.map(|it| it.interval_ns));
        assert_eq!(waits, [None, None, Some(2_100), Some(9_000)]);
    }
}
