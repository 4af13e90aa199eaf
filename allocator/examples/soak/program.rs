//! A program on a simulated device.

use std::error::Error as AnyError;

use coalesce_alloc::driver::sim::address::AddressPolicy;
use coalesce_alloc::{Allocator, DeviceAddr, Error, SimConfig, SimDevice, StreamId, registry};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

use crate::options::Options;

/// An allocator, and the calls that were made.
pub struct Program {
    pub allocator: Box<dyn Allocator<Driver = SimDevice>>,
    random: ChaCha8Rng,
    streams: u32,
    pub capacity: u64,
    /// Calls of the allocator.
    pub operations: u64,
    /// Requests that found no memory.
    pub failed: u64,
}

impl Program {
    pub fn new(options: &Options) -> Result<Self, Box<dyn AnyError>> {
        let device = SimDevice::new(&SimConfig {
            // Addresses are used again, so that an entry about an address that outlives its block does harm.
            addresses: AddressPolicy::FirstFit,
            hold_events: true,
            ..SimConfig::with_capacity(options.capacity)
        });
        Ok(Self {
            allocator: registry::build(&options.policy, device, &options.conf)?,
            random: ChaCha8Rng::seed_from_u64(options.seed),
            streams: options.streams,
            capacity: options.capacity,
            operations: 0,
            failed: 0,
        })
    }

    /// A random number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    /// The `k`-th stream of the program. If there are fewer, it is one of them.
    pub fn stream(&self, k: u32) -> StreamId {
        StreamId::nth(k % self.streams)
    }

    pub fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        self.operations += 1;
        let block = self.allocator.malloc(bytes, stream);
        if matches!(&block, Err(error) if error.is_out_of_memory()) {
            self.failed += 1;
        }
        block
    }

    pub fn free(&mut self, block: DeviceAddr) -> Result<(), Error> {
        self.operations += 1;
        self.allocator.free(block)
    }

    /// Notes that the `k`-th stream uses a block, if there are several streams.
    pub fn record_stream(&mut self, block: DeviceAddr, k: u32) -> Result<(), Error> {
        if self.streams == 1 {
            return Ok(());
        }
        self.operations += 1;
        self.allocator.record_stream(block, self.stream(k))
    }

    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.operations += 1;
        self.allocator.empty_cache()
    }

    /// Completes some of the pending work. Each stream gets a random distance.
    pub fn work(&mut self) {
        for k in 0..self.streams {
            let events = self.below(8);
            let stream = self.stream(k);
            let streams = self.allocator.driver_mut().streams_mut();
            streams.complete(stream, events);
        }
    }

    /// Completes all pending work, as a program that reads a result does.
    pub fn finish(&mut self) {
        self.allocator.driver_mut().streams_mut().complete_all();
    }

    /// Bytes of the device in use once the cache is emptied. All blocks must be free.
    pub fn memory_after_all(&mut self) -> Result<u64, Error> {
        self.finish();
        self.empty_cache()?;
        Ok(self.allocator.driver().used())
    }
}
