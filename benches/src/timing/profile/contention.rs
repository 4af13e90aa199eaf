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

    /// A call takes so long, and with kernels longer by a percentage. The measured one is rounded down.
    #[test]
    fn the_measured_contention_is_that_of_the_device() {
        for (ns, ns_per_mib, contention_percent, expected) in [
            (50_000, 100, 0, 0),
            (50_000, 100, 30, 30),
            (1_000, 0, 33, 33),
            (3, 0, 50, 33),
            (0, 0, 50, 0),
        ] {
            let cost = Cost { ns, ns_per_mib };
            let mut costs = Costs::default().with(CallKind::Malloc, cost);
            costs.contention_percent = contention_percent;
            let mut device = SimDevice::new(&SimConfig {
                costs,
                ..SimConfig::default()
            });
            let measured = measure(&mut device, &SimDevice::elapsed_ns);
            assert_eq!(measured, Ok(expected), "{ns} ns, {contention_percent} %");
            assert_eq!(device.used(), 0);
        }
    }
}
