//! Measures by how much calls take longer among kernels.
//!
//! On an H200, a kernel that is already running does not delay requests for memory. Requests between which kernels are
//! submitted take a quarter longer.

use coalesce_alloc::driver::work::{Kernel, Work};
use coalesce_alloc::driver::{DriverError, HandleKind, StreamId};

/// Bytes of a request: those of a segment of PyTorch's allocator.
const BYTES: u64 = 20 << 20;
/// Requests of a round.
const REQUESTS: usize = 8;
/// Rounds without kernels and as many with a kernel before each request, in turn.
const ROUNDS: usize = 15;
/// Nanoseconds that a kernel runs, longer than a request takes.
const KERNEL_NS: u64 = 1_000_000;

/// Measures an idle `device`; `clock` returns nanoseconds. Returns the percentage by which requests for memory take longer
/// if a kernel is submitted before each: the median over rounds, 0 if they do not.
///
/// # Errors
/// If the device fails, including out of memory.
pub fn measure<D: Work>(device: &mut D, clock: &dyn Fn(&D) -> u64) -> Result<u64, DriverError> {
    // The first kernel is compiled, the first requests prepare the driver.
    round(device, clock, true)?;
    let mut percents = Vec::new();
    for _ in 0..ROUNDS {
        let without = round(device, clock, false)?.max(1);
        let with = round(device, clock, true)?;
        percents.push(with.saturating_sub(without).saturating_mul(100) / without);
    }
    percents.sort_unstable();
    Ok(percents[ROUNDS / 2])
}

/// The nanoseconds that the requests of a round take, with a kernel before each or without.
fn round<D: Work>(
    device: &mut D,
    clock: &dyn Fn(&D) -> u64,
    is_busy: bool,
) -> Result<u64, DriverError> {
    let kernel = Kernel {
        stream: StreamId::nth(1),
        ns: KERNEL_NS,
        host_ns: 0,
        submitted_ns: 0,
    };
    let mut held = Vec::new();
    let mut created = Vec::new();
    let mut ns = 0;
    for _ in 0..REQUESTS {
        if is_busy {
            device.submit(kernel)?;
        }
        let begun = clock(device);
        held.push(device.malloc(BYTES)?);
        if let Some(memory) = device.virtual_memory() {
            created.push(memory.create(BYTES, HandleKind::FileDescriptor)?);
        }
        ns += clock(device).saturating_sub(begun);
    }
    device.synchronize_device()?;
    for addr in held {
        device.free(addr, BYTES)?;
    }
    if let Some(memory) = device.virtual_memory() {
        for handle in created {
            memory.release(handle, BYTES)?;
        }
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::driver::hooks::cost::{Cost, Costs};
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};

    use super::*;

    #[test]
    fn the_measured_contention_is_that_of_the_device() {
        let cost = Cost {
            ns: 50_000,
            ns_per_mib: 100,
        };
        for contention_percent in [0, 30] {
            let mut costs = Costs::default().with(CallKind::Malloc, cost);
            costs.contention_percent = contention_percent;
            let mut device = SimDevice::new(&SimConfig {
                costs,
                ..SimConfig::default()
            });
            let measured = measure(&mut device, &SimDevice::elapsed_ns);
            assert_eq!(measured, Ok(contention_percent));
            assert_eq!(device.used(), 0);
        }
    }

    /// The call takes this long, with kernels a third longer.
    #[test]
    fn the_measured_contention_is_rounded_down() {
        let measured = |ns: u64, percent| {
            let cost = Cost { ns, ns_per_mib: 0 };
            let mut costs = Costs::default().with(CallKind::Malloc, cost);
            costs.contention_percent = percent;
            let mut device = SimDevice::new(&SimConfig {
                costs,
                ..SimConfig::default()
            });
            measure(&mut device, &SimDevice::elapsed_ns).unwrap()
        };
        assert_eq!(
            [measured(1_000, 33), measured(3, 50), measured(0, 50)],
            [33, 33, 0]
        );
    }
}
