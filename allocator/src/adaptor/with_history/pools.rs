//! Private pools in the history: the blocks that restoring a checkpoint frees and allocates have entries like others.

use std::collections::{HashMap, HashSet};

use super::WithHistory;
use crate::allocator::Allocator;
use crate::checkpoint::{Checkpoint, RestoredPool};
use crate::driver::{DeviceAddr, StreamId};
use crate::error::{Error, PoolError};
use crate::mempool::{MempoolId, StreamFilter};
use crate::private_pools::HasPrivatePools;

/// A checkpoint of the allocator.
struct Saved {
    of_allocator: Checkpoint,
    /// Requested bytes and stream of each live allocation that has an entry.
    live: HashMap<DeviceAddr, (u64, StreamId)>,
}

impl<A: Allocator> WithHistory<A> {
    fn inner(&mut self, pool: MempoolId) -> Result<&mut dyn HasPrivatePools, Error> {
        let pools = self.allocator.private_pools();
        Ok(pools.ok_or(PoolError::Unknown(pool))?)
    }
}

impl<A: Allocator> HasPrivatePools for WithHistory<A> {
    fn create_or_use_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.inner(pool)?.create_or_use_pool(pool)
    }

    fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.inner(pool)?.begin_allocate_to_pool(pool, accepts)
    }

    fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.inner(pool)?.end_allocate_to_pool(pool)
    }

    fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.inner(pool)?.release_pool(pool)
    }

    fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error> {
        self.inner(pool)?.pool_use_count(pool)
    }

    fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.inner(pool)?.empty_pool(pool)
    }

    fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<Checkpoint, Error> {
        let of_allocator = self.inner(pool)?.checkpoint_pool(pool)?;
        let live = self
            .live
            .iter()
            .map(|(&addr, &live)| (addr, live))
            .collect();
        Ok(Checkpoint::new(pool, Saved { of_allocator, live }))
    }

    fn restore_pool(&mut self, checkpoint: &Checkpoint) -> Result<RestoredPool, Error> {
        let saved: &Saved = checkpoint.saved()?;
        let pools = self.inner(checkpoint.pool())?;
        let restored = pools.restore_pool(&saved.of_allocator)?;
        if self.history.is_wanted() {
            for &addr in &restored.freed {
                self.record_free(addr);
            }
            for &addr in &restored.allocated {
                let live = saved.live.get(&addr).copied();
                let (bytes, stream) = live.unwrap_or((0, StreamId::DEFAULT));
                self.record_malloc(addr, bytes, stream);
            }
        }
        Ok(restored)
    }

    fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        let pools = self.inner(pool)?;
        pools.pool_live_allocations_are(pool, expected)
    }

    fn begin_capture(&mut self) -> Result<(), Error> {
        self.inner(MempoolId::DEFAULT)?.begin_capture()
    }

    fn end_capture(&mut self) -> Result<(), Error> {
        self.inner(MempoolId::DEFAULT)?.end_capture()
    }
}
