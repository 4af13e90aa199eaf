//! Runs kernels between requests.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::allocator::{Allocator, delegate};
use crate::driver::work::{Kernel, Work};
use crate::driver::{DeviceAddr, StreamId};
use crate::error::Error;

/// How long the kernels of a program take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernels {
    /// Nanoseconds of each kernel.
    pub ns: u64,
    /// Further nanoseconds for each MiB of its block.
    pub ns_per_mib: u64,
    /// Nanoseconds that the program takes on the host to submit a kernel.
    pub host_ns: u64,
}

impl Default for Kernels {
    /// Kernels that read and write 1 TiB per second, in a program that submits them as slowly as PyTorch without
    /// compilation. The kernel of a small block is over before the next one is submitted; the kernels of large blocks queue
    /// up.
    fn default() -> Self {
        Self {
            ns: 4_000,
            ns_per_mib: 1_000,
            host_ns: 8_000,
        }
    }
}

impl Kernels {
    /// The kernel that uses a block of `bytes` on a stream.
    #[must_use]
    pub fn of(self, bytes: u64, stream: StreamId) -> Kernel {
        let for_bytes = (u128::from(self.ns_per_mib) * u128::from(bytes)) >> 20;
        let for_bytes = u64::try_from(for_bytes).unwrap_or(u64::MAX);
        Kernel {
            stream,
            ns: self.ns.saturating_add(for_bytes),
            host_ns: self.host_ns,
            submitted_ns: 0,
        }
    }
}

/// Wraps any allocator and runs a kernel after each request: one on the stream of a new block, and one on each stream
/// recorded on it later. This way, work is pending when memory is freed.
#[derive(Debug)]
pub struct Busy<A> {
    allocator: A,
    kernels: Kernels,
    /// Bytes of each allocated block.
    live: HashMap<DeviceAddr, u64, FixedState>,
}

impl<A: Allocator> Busy<A>
where
    A::Driver: Work,
{
    /// Runs kernels from now on.
    #[must_use]
    pub fn new(allocator: A, kernels: Kernels) -> Self {
        Self {
            allocator,
            kernels,
            live: HashMap::default(),
        }
    }

    fn run(&mut self, bytes: u64, stream: StreamId) -> Result<(), Error> {
        let kernel = self.kernels.of(bytes, stream);
        Ok(self.allocator.driver_mut().submit(kernel)?)
    }
}

impl<A: Allocator> Allocator for Busy<A>
where
    A::Driver: Work,
{
    type Driver = A::Driver;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let addr = self.allocator.malloc(bytes, stream)?;
        if addr.is_null() {
            return Ok(addr);
        }
        if let Err(error) = self.run(bytes, stream) {
            // The caller does not get this address and cannot free it.
            let _ = self.allocator.free(addr);
            return Err(error);
        }
        self.live.insert(addr, bytes);
        Ok(addr)
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.live.remove(&addr);
        self.allocator.free(addr)
    }

    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator.record_stream(addr, stream)?;
        match self.live.get(&addr) {
            Some(&bytes) => self.run(bytes, stream),
            None => Ok(()),
        }
    }

    delegate!(self, self.allocator; empty_cache, private_pools, set_memory_limit, reports);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::pytorch::PyTorch;
    use crate::settings::Settings;

    const BYTES: u64 = 4 << 20;

    /// A program under PyTorch, whose kernels take 1 µs for each MiB and 2 µs on the host.
    fn program() -> Busy<PyTorch<SimDevice>> {
        let kernels = Kernels {
            ns: 0,
            ns_per_mib: 1_000,
            host_ns: 2_000,
        };
        let device = SimDevice::new(&SimConfig::default());
        Busy::new(PyTorch::new(device, Settings::default()), kernels)
    }

    #[test]
    fn a_block_of_two_streams_is_reused_when_both_are_done() {
        let [own, other] = [0, 1].map(StreamId::nth);
        let mut program = program();
        let first = program.malloc(BYTES, own).unwrap();
        program.record_stream(first, other).unwrap();
        program.free(first).unwrap();
        // The kernel on the other stream runs from 2 to 6 µs.
        let second = program.malloc(BYTES, own).unwrap();
        assert_ne!(first, second);
        program.malloc(1, own).unwrap();
        program.malloc(1, own).unwrap();
        assert_eq!(program.malloc(BYTES, own), Ok(first));
    }

    #[test]
    fn the_length_of_a_kernel_cannot_overflow() {
        let kernels = Kernels {
            ns: 7,
            ns_per_mib: u64::MAX,
            host_ns: 0,
        };
        let of = |bytes| kernels.of(bytes, StreamId::DEFAULT).ns;
        assert_eq!([of(0), of(u64::MAX)], [7, u64::MAX]);
    }
}
