//! What an allocator with private pools offers beyond [`Allocator`](crate::Allocator).

use std::collections::HashSet;

use crate::checkpoint::{Checkpoint, RestoredPool};
use crate::driver::DeviceAddr;
use crate::error::Error;
use crate::mempool::{MempoolId, PoolCall, StreamFilter};

impl PoolCall {
    /// Makes the call.
    ///
    /// # Errors
    /// As the methods of [`HasPrivatePools`].
    pub fn make(self, pools: &mut dyn HasPrivatePools) -> Result<(), Error> {
        match self {
            Self::Begin(pool) => pools.begin_allocate_to_pool(pool, Box::new(|_| true)),
            Self::End(pool) => pools.end_allocate_to_pool(pool),
            Self::Release(pool) => {
                for _ in 0..pools.pool_use_count(pool)? {
                    pools.release_pool(pool)?;
                }
                Ok(())
            }
            Self::Empty(pool) => pools.empty_pool(pool),
            Self::BeginCapture => pools.begin_capture(),
            Self::EndCapture => pools.end_capture(),
        }
    }
}

/// An allocator with private pools. A pool exists from its first user on, and keeps its memory for itself until it has
/// no users.
pub trait HasPrivatePools {
    /// Creates a pool, or adds a user to it.
    ///
    /// # Errors
    /// [`PoolError::Released`](crate::error::PoolError::Released) if it exists but has no users.
    fn create_or_use_pool(&mut self, pool: MempoolId) -> Result<(), Error>;

    /// Serves the requests of the streams that `accepts` selects from a pool, and adds a user to it. Of several such
    /// pools, the one that began last serves them.
    ///
    /// # Errors
    /// [`PoolError::AlreadyRecording`](crate::error::PoolError::AlreadyRecording), or as
    /// [`Self::create_or_use_pool`].
    fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error>;

    /// Ends that. The pool keeps its users.
    ///
    /// # Errors
    /// [`PoolError::NotRecording`](crate::error::PoolError::NotRecording); or an error of the device.
    fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error>;

    /// Removes a user. The memory of a pool without users becomes available when the cache is next emptied, if not
    /// before.
    ///
    /// # Errors
    /// [`PoolError::Unknown`](crate::error::PoolError::Unknown),
    /// [`PoolError::Released`](crate::error::PoolError::Released).
    fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error>;

    /// The number of users of a pool.
    ///
    /// # Errors
    /// [`PoolError::Unknown`](crate::error::PoolError::Unknown).
    fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error>;

    /// Makes the memory of a pool without users available.
    ///
    /// # Errors
    /// Errors of the device.
    fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error>;

    /// Records which blocks of a pool are live.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is no such pool, or if a freed block of the pool waits for other streams; an error of
    /// the device.
    fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<Checkpoint, Error>;

    /// Makes exactly those blocks of a pool live that were so at a checkpoint.
    ///
    /// # Errors
    /// If the pool has no users, or not all the memory that it had; an error of the device.
    fn restore_pool(&mut self, checkpoint: &Checkpoint) -> Result<RestoredPool, Error>;

    /// Whether the live blocks of a pool are exactly those at `expected`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] without such a pool.
    fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error>;

    /// Announces that a graph is captured from here on, whatever the device says: what a replay calls.
    ///
    /// # Errors
    /// Errors of the device.
    fn begin_capture(&mut self) -> Result<(), Error>;

    /// Announces that this capture has ended.
    ///
    /// # Errors
    /// [`PoolError::NoCapture`](crate::error::PoolError::NoCapture) if none had begun.
    fn end_capture(&mut self) -> Result<(), Error>;
}
