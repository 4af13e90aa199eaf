//! Checkpoints of private pools, with the ids that were live.

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::driver::sim::SimDevice;
use coalesce_alloc::error::Error;
use coalesce_alloc::pytorch::checkpoint::{PoolCheckpoint, RestoredPool};
use coalesce_alloc::{MempoolId, PyTorch};

/// A checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Checkpoint {
    state: PoolCheckpoint,
    /// The address of each id that was live.
    live: Vec<Option<DeviceAddr>>,
}

impl Checkpoint {
    /// Takes a checkpoint of a pool while `live` ids are live.
    pub(super) fn take(
        allocator: &mut PyTorch<SimDevice>,
        pool: MempoolId,
        live: &[Option<DeviceAddr>],
    ) -> Result<Self, Error> {
        Ok(Self {
            state: allocator.checkpoint_pool(pool)?,
            live: live.to_vec(),
        })
    }

    /// Restores the pool. Ids in it are then live if they were, unless they denote another allocation by now.
    pub(super) fn restore(
        &self,
        allocator: &mut PyTorch<SimDevice>,
        live: &mut [Option<DeviceAddr>],
    ) -> Result<RestoredPool, Error> {
        let restored = allocator.restore_pool(&self.state)?;
        for now in live.iter_mut() {
            *now = now.filter(|addr| !restored.freed.contains(addr));
        }
        for (now, &then) in live.iter_mut().zip(&self.live) {
            *now = now.or(then.filter(|addr| restored.allocated.contains(addr)));
        }
        Ok(restored)
    }
}
