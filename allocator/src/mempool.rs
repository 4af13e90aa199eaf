//! Ids of private pools, the calls about them, and other sources of their memory than the device.

use std::fmt;

use crate::driver::{DeviceAddr, StreamId};
use crate::error::Error;

/// The id of a private pool: `(0, n)` for pools of the user, `(n, 0)` for those of CUDA graphs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MempoolId(pub u64, pub u64);

impl MempoolId {
    /// The id of the default pools, which are not private.
    pub const DEFAULT: Self = Self(0, 0);

    /// Whether it is a pool of CUDA graphs.
    #[must_use]
    pub const fn is_of_graphs(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Display for MempoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
}

/// Selects the streams whose requests are served from a private pool.
pub type StreamFilter = Box<dyn Fn(StreamId) -> bool + Send>;

/// Where the segments of a private pool come from, if not from the device: the allocator of a
/// `torch.cuda.MemPool`, such as `ncclMemAlloc`.
pub trait PoolSource: Send {
    /// Allocates a segment of `bytes`. `None` if there is no memory.
    fn malloc(&mut self, bytes: u64) -> Option<DeviceAddr>;

    /// Frees a segment of `bytes`.
    fn free(&mut self, addr: DeviceAddr, bytes: u64);
}

/// A call about private pools, as `torch.cuda.graph` and `torch.cuda.MemPool` make it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolCall {
    /// Requests are served from this pool from here on. The pool is created if it does not exist.
    Begin(MempoolId),
    /// Requests are no longer served from this pool, which keeps its memory.
    End(MempoolId),
    /// Nobody uses this pool any more: its memory is returned when the cache is next emptied.
    Release(MempoolId),
    /// The memory of this pool, which nobody uses any more, is returned, as at the end of a `MemPool`.
    Empty(MempoolId),
    /// The capture of a CUDA graph begins. Until it ends, nothing can be waited for, and cached memory of the default
    /// pools cannot be returned to the device.
    BeginCapture,
    /// The capture ends.
    EndCapture,
}

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
    fn pool_use_count(&self, pool: MempoolId) -> Result<u64, Error>;

    /// Makes the memory of a pool without users available.
    ///
    /// # Errors
    /// Errors of the device.
    fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error>;

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
