//! Ids of private pools, the calls about them, and other sources of their memory than the device.

use std::fmt;

use crate::driver::{DeviceAddr, StreamId};

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
