//! The private pools of the reference, as allocators offer them to programs.

use std::collections::HashSet;

use super::PyTorch;
use super::checkpoint::PoolCheckpoint;
use crate::checkpoint::{Checkpoint, RestoredPool};
use crate::driver::{DeviceAddr, Driver};
use crate::error::Error;
use crate::mempool::{MempoolId, StreamFilter};
use crate::private_pools::HasPrivatePools;

impl<D: Driver> HasPrivatePools for PyTorch<D> {
    fn create_or_use_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.create_or_use_pool(pool)
    }

    fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.begin_allocate_to_pool(pool, accepts)
    }

    fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.end_allocate_to_pool(pool)
    }

    fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.release_pool(pool)
    }

    fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error> {
        PyTorch::pool_use_count(self, pool)
    }

    fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.empty_pool(pool)
    }

    fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<Checkpoint, Error> {
        Ok(Checkpoint::new(pool, self.checkpoint_pool(pool)?))
    }

    fn restore_pool(&mut self, checkpoint: &Checkpoint) -> Result<RestoredPool, Error> {
        self.restore_pool(checkpoint.saved::<PoolCheckpoint>()?)
    }

    fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        PyTorch::pool_live_allocations_are(self, pool, expected)
    }

    fn begin_capture(&mut self) -> Result<(), Error> {
        self.begin_capture();
        Ok(())
    }

    fn end_capture(&mut self) -> Result<(), Error> {
        self.end_capture()
    }
}
