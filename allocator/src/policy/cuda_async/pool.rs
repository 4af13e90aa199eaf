//! The pool of the device itself.

use crate::driver::{Driver, DriverError, PoolSettings, Status, StreamId, StreamOrdered};
use crate::policy::fence::{Fences, Users};
use crate::policy::{Block, Policy, Served};

/// Tracks the other streams that use the blocks of the device's pool.
///
/// A block used on other streams is freed on a separate stream that waits for all of them (PyTorch 2.11,
/// `CUDAMallocAsyncAllocator.cpp`), so that no stream of the program waits for another.
#[derive(Debug, Default)]
pub(super) struct Pool {
    users: Users,
    fences: Fences,
}

impl Pool {
    /// Configures the pool of the device.
    pub(super) fn with(pool: &mut dyn StreamOrdered, settings: PoolSettings) -> Served<Self> {
        pool.set_pool(settings)?;
        Ok(Self::default())
    }
}

/// Returns the device's pool.
fn of(device: &mut dyn Driver) -> Status<&mut dyn StreamOrdered> {
    device.stream_ordered().ok_or(DriverError::NotSupported)
}

impl Policy for Pool {
    /// Also queries the reserved memory, which grows only here.
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let pool = of(device)?;
        let addr = pool.pool_malloc(bytes, stream)?;
        if let Err(error) = pool.pool_reserved() {
            pool.pool_free(addr, bytes, stream)?;
            return Err(error.into());
        }
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let Some(users) = self.users.of(block) else {
            return Ok(of(device)?.pool_free(block.addr, block.bytes, block.stream)?);
        };
        let mut streams = users.to_vec();
        streams.push(block.stream);
        let free_stream = of(device)?.free_stream()?;
        let fence = self.fences.raise(device, &streams)?;
        let held_up = fence.hold_up(device, free_stream);
        self.fences.take_down(fence);
        held_up?;
        of(device)?.pool_free(block.addr, block.bytes, free_stream)?;
        self.users.forget(block);
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        device.synchronize_device()?;
        let pool = of(device)?;
        pool.trim_pool(0)?;
        pool.pool_reserved()?;
        Ok(())
    }
}
