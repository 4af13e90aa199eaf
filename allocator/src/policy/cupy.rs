//! CuPy's memory pool: best fit among the free chunks of a stream, always split to size.
//!
//! - Sizes are multiples of 512 bytes. There are no size classes and no minimum allocation: the device is
//!   asked for exactly the size of the request.
//! - Each stream has its own arena. A freed chunk returns to the arena it came from, on whatever stream
//!   it is freed, and is merged with its free neighbours at once.
//! - A request gets the low end of the smallest chunk that is large enough. The rest stays free, however
//!   small it is.
//! - If the device is out of memory or the limit is reached, the pool returns all free allocations and
//!   tries again.
//!
//! One setting: `limit`, the most bytes to reserve, as `set_limit` and `CUPY_GPU_MEMORY_LIMIT`; 0 (the
//! default) for no limit.
//!
//! Source: CuPy 14.2.0 (`dc1552a`), `cupy/cuda/memory.pyx`: `_Chunk`, `_Arena`, `SingleDeviceMemoryPool`.
//!
//! Differences:
//! - Among chunks of equal size CuPy takes the one whose Python object has the lowest address, which
//!   depends on everything the process did before. Here the chunk with the oldest object is taken, as
//!   CuPy does on a heap whose addresses only grow. An object is created when memory is taken from the
//!   device and for the rest of a split chunk; of merged chunks the lowest one's object survives.
//! - CuPy's third attempt, after a Python garbage collection, is left out.
//! - If the device fails to take memory back, CuPy loses the memory. Here it stays in its arena.

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::pieces::Pieces;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served, malloc_or_retry};

/// Sizes are multiples of this many bytes.
const UNIT: u64 = 512;

/// CuPy's pool of one device.
#[derive(Debug, Default)]
pub struct Cupy {
    /// The most bytes to reserve.
    limit: u64,
    /// Bytes reserved.
    held: u64,
    /// All chunks, ranked by age.
    chunks: Pieces<StreamId>,
    /// Chunks created so far.
    made: u64,
}

impl Cupy {
    /// Takes `limit`, in bytes.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let limit = settings.take_limit("limit")?;
        Ok(Self {
            limit: limit.filter(|&bytes| bytes > 0).unwrap_or(u64::MAX),
            ..Self::default()
        })
    }

    /// The number of the next chunk.
    fn next_rank(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Whether the limit allows another `size` bytes.
    fn within_limit(&self, size: u64) -> bool {
        self.held.saturating_add(size) <= self.limit
    }

    /// Takes a free chunk of the stream, split to `size` bytes.
    fn reuse(&mut self, size: u64, stream: StreamId) -> Option<DeviceAddr> {
        let (addr, bytes) = self.chunks.take_best_fit(stream, size)?;
        if bytes > size {
            let rank = self.next_rank();
            let rest = self.chunks.cut(addr, size, rank);
            self.chunks.free(rest);
        }
        Some(addr)
    }

    /// Takes a new chunk of `size` bytes from the device.
    fn grow(&mut self, device: &mut dyn Driver, size: u64, stream: StreamId) -> Served<DeviceAddr> {
        if size > self.limit {
            // Emptying the cache would not help.
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
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let size = bytes.next_multiple_of(UNIT);
        let addr = match self.reuse(size, stream) {
            Some(addr) => addr,
            None => self.grow(device, size, stream)?,
        };
        Ok(Block::new(addr, size, stream))
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Served {
        self.chunks.free(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        for (addr, bytes) in self.chunks.idle_allocations() {
            device.free(addr, bytes)?;
            self.chunks.remove(addr);
            self.held -= bytes;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check(UNIT)
    }
}
