//! CuPy's memory pool: best fit among the free chunks of a stream, every chunk cut to size.
//!
//! - Sizes are multiples of 512 bytes. There are no size classes and no minimum to take from the
//!   device: an allocation has exactly the bytes of the request that caused it.
//! - A stream has an arena of its own. A chunk goes back to the arena it came from, on whatever
//!   stream it is freed, and is joined with its free neighbours at once.
//! - The request gets the low end of the smallest chunk that is large enough; the rest, however
//!   little, stays free.
//! - When memory or the limit does not suffice, everything that is whole goes back to the device,
//!   and it tries again.
//!
//! Source: CuPy 14.2.0 (`dc1552a`), `cupy/cuda/memory.pyx`: `_Chunk`, `_Arena`,
//! `SingleDeviceMemoryPool`.
//!
//! What differs:
//! - Among equally large chunks CuPy takes the one whose Python object has the lowest address. That
//!   depends on all that the process did before. Here it is the chunk whose object is the oldest,
//!   which is what CuPy does on a heap whose addresses only grow. (A chunk is made when memory is
//!   taken from the device and when one is cut: then the rest is the new one. Of joined chunks the
//!   lowest in memory remains.)
//! - CuPy's third attempt to get memory is left out. It follows a garbage collection of Python's,
//!   which has nothing to collect here.
//! - Where the device refuses to take memory back, CuPy forgets it. Here it stays in its arena.

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::pieces::Pieces;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, malloc_or_retry};

/// Sizes are multiples of this many bytes.
const UNIT: u64 = 512;

/// CuPy's pool of one device.
#[derive(Debug)]
pub struct Cupy {
    /// Bytes to hold at most.
    limit: u64,
    /// Bytes held.
    held: u64,
    /// All chunks. The rank of one is how many were made before it.
    chunks: Pieces<StreamId>,
    /// Chunks made so far.
    made: u64,
}

impl Cupy {
    /// A pool with the knob `limit`: bytes it takes from the device at most, as `set_limit` and
    /// `CUPY_GPU_MEMORY_LIMIT` say it; 0, the default: as many as there are.
    ///
    /// # Errors
    /// If a knob is unknown or its value is no number of bytes.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let limit = settings.take_limit("limit")?;
        Ok(Self {
            limit: limit.filter(|&bytes| bytes > 0).unwrap_or(u64::MAX),
            held: 0,
            chunks: Pieces::default(),
            made: 0,
        })
    }

    /// The number of the next chunk.
    fn next_rank(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Whether the limit allows `size` bytes more.
    fn within_limit(&self, size: u64) -> bool {
        self.held.saturating_add(size) <= self.limit
    }

    /// A free chunk of the stream, cut to `size` bytes.
    fn reuse(&mut self, size: u64, stream: StreamId) -> Option<DeviceAddr> {
        let (addr, bytes) = self.chunks.take_best_fit(stream, size)?;
        if bytes > size {
            let rank = self.next_rank();
            let rest = self.chunks.cut(addr, size, rank);
            self.chunks.free(rest);
        }
        Some(addr)
    }

    /// A new chunk of `size` bytes.
    fn grow(
        &mut self,
        device: &mut dyn Driver,
        size: u64,
        stream: StreamId,
    ) -> Result<DeviceAddr, Refusal> {
        if size > self.limit {
            // Giving everything back would not help.
            return Err(Refusal::OutOfMemory);
        }
        if !self.within_limit(size) {
            self.empty_cache(device)?;
        }
        if !self.within_limit(size) {
            return Err(Refusal::OutOfMemory);
        }
        let addr = malloc_or_retry(device, size, |device| self.empty_cache(device))?;
        self.held += size;
        let rank = self.next_rank();
        self.chunks.add(addr, size, stream, rank);
        Ok(addr)
    }
}

impl Policy for Cupy {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let size = bytes.next_multiple_of(UNIT);
        let addr = match self.reuse(size, stream) {
            Some(addr) => addr,
            None => self.grow(device, size, stream)?,
        };
        Ok(Block {
            addr,
            bytes: size,
            stream,
        })
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        self.chunks.free(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        for (addr, bytes) in self.chunks.idle_allocations() {
            device.free(addr, bytes)?;
            self.chunks.remove(addr);
            self.held -= bytes;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check()
    }
}
