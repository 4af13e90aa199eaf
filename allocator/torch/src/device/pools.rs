//! Private pools, and the captures of graphs that use them. Only the reference serves them.

use std::collections::HashSet;

#[cfg(doc)]
use coalesce_alloc::PyTorch;
use coalesce_alloc::driver::{DeviceAddr, Driver};
use coalesce_alloc::error::Error;
use coalesce_alloc::pytorch::checkpoint::{PoolCheckpoint, RestoredPool};
use coalesce_alloc::{MempoolId, PoolSource, StreamFilter};

use super::{DeviceAllocator, Policy};

const CHECKPOINTS: &str = "checkpoints of the private pools of CUDA graphs";
const POOLS: &str = "the private pools of CUDA graphs and torch.cuda.MemPool";

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Returns the cached memory of one private pool to the device.
    ///
    /// # Errors
    /// As [`PyTorch::empty_pool`]; [`Error::Unsupported`] by other policies.
    pub fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.empty_pool(pool)
    }

    /// Creates a private pool, or adds a user to one.
    ///
    /// # Errors
    /// As [`PyTorch::create_or_use_pool`]; [`Error::Unsupported`] by other policies.
    pub fn create_or_use_pool(
        &mut self,
        pool: MempoolId,
        source: Option<Box<dyn PoolSource>>,
    ) -> Result<(), Error> {
        let allocator = self.reference(POOLS)?;
        allocator.create_or_use_pool(pool)?;
        match source {
            Some(source) if allocator.pool_use_count(pool)? == 1 => {
                allocator.set_pool_source(pool, source)
            }
            _ => Ok(()),
        }
    }

    /// Directs the allocations of streams that `accepts` selects to a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::begin_allocate_to_pool`]; [`Error::Unsupported`] by other policies.
    pub fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.reference(POOLS)?.begin_allocate_to_pool(pool, accepts)
    }

    /// Ends the redirection.
    ///
    /// # Errors
    /// As [`PyTorch::end_allocate_to_pool`]; [`Error::Unsupported`] by other policies.
    pub fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.end_allocate_to_pool(pool)
    }

    /// Removes a user of a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::release_pool`]; [`Error::Unsupported`] by other policies.
    pub fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.release_pool(pool)
    }

    /// Returns the number of users of a private pool.
    ///
    /// # Errors
    /// As [`PyTorch::pool_use_count`]; [`Error::Unsupported`] by other policies.
    pub fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error> {
        self.reference(POOLS)?.pool_use_count(pool)
    }

    /// Sets whether a request that finds no memory elsewhere may take a free block of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by other policies than the reference.
    pub fn set_use_on_oom(&mut self, pool: MempoolId, on: bool) -> Result<(), Error> {
        self.reference(POOLS)?.set_use_on_oom(pool, on);
        Ok(())
    }

    /// Stops splitting blocks of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by other policies than the reference.
    pub fn set_no_split(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference(POOLS)?.set_no_split(pool);
        Ok(())
    }

    /// Returns whether exactly these allocations of a private pool are live.
    ///
    /// # Errors
    /// As [`PyTorch::pool_live_allocations_are`]; [`Error::Unsupported`] by other policies.
    pub fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        self.reference(CHECKPOINTS)?
            .pool_live_allocations_are(pool, expected)
    }

    /// Records which blocks of a private pool are allocated.
    ///
    /// # Errors
    /// As [`PyTorch::checkpoint_pool`]; [`Error::Unsupported`] by other policies.
    pub fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<PoolCheckpoint, Error> {
        self.reference(CHECKPOINTS)?.checkpoint_pool(pool)
    }

    /// Makes exactly those blocks of a private pool allocated that were so at a checkpoint.
    ///
    /// # Errors
    /// As [`PyTorch::restore_pool`]; [`Error::Unsupported`] by other policies.
    pub fn restore_pool(&mut self, checkpoint: &PoolCheckpoint) -> Result<RestoredPool, Error> {
        self.reference(CHECKPOINTS)?.restore_pool(checkpoint)
    }

    /// Announces that the capture of a graph has begun. Policies without private pools need not know.
    pub fn mark_capture_begin(&mut self) {
        if let Policy::Reference(allocator) = &mut self.policy {
            allocator.mark_capture_begin();
        }
    }

    /// Announces that the capture of a graph has ended.
    ///
    /// # Errors
    /// As [`PyTorch::mark_capture_end`].
    pub fn mark_capture_end(&mut self) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.mark_capture_end(),
            Policy::Other { .. } => Ok(()),
        }
    }
}
