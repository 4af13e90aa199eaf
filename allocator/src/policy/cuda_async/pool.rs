//! The pool of the device itself.

use crate::driver::{Driver, DriverError, PoolSettings, StreamId, StreamOrdered};
use crate::policy::fence::{Fences, Users};
use crate::policy::{Block, Policy, Refusal};

/// What is to be remembered of its blocks: the streams, other than their own, that work on them.
///
/// The free of a block that others work on is the work of one more stream, which waits for its own stream
/// and for theirs (PyTorch 2.11, `CUDAMallocAsyncAllocator.cpp`): no stream of the program has to wait for
/// another.
#[derive(Debug, Default)]
pub(super) struct Pool {
    users: Users,
    fences: Fences,
}

impl Pool {
    /// The pool with these settings.
    pub(super) fn with(
        pool: &mut dyn StreamOrdered,
        settings: PoolSettings,
    ) -> Result<Self, Refusal> {
        pool.set_pool(settings)?;
        Ok(Self::default())
    }
}

/// The device's pool, which it had when the first block was asked for.
fn of(device: &mut dyn Driver) -> Result<&mut dyn StreamOrdered, DriverError> {
    device.stream_ordered().ok_or(DriverError::NotSupported)
}

impl Policy for Pool {
    /// What the pool holds can grow here alone, so it is asked for that here.
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let pool = of(device)?;
        let addr = pool.pool_malloc(bytes, stream)?;
        if let Err(error) = pool.pool_reserved() {
            pool.pool_free(addr, bytes, stream)?;
            return Err(error.into());
        }
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
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

    fn record_stream(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        device.synchronize_device()?;
        let pool = of(device)?;
        pool.trim_pool(0)?;
        pool.pool_reserved()?;
        Ok(())
    }
}
