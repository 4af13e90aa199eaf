//! Ids of private pools, and the calls about them.

use std::fmt;

/// The id of a private pool: `(0, n)` for pools of the user, `(n, 0)` for those of CUDA graphs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MempoolId(pub u64, pub u64);

impl MempoolId {
    /// The id of the default pools, which are not private.
    pub const DEFAULT: Self = Self(0, 0);
}

impl fmt::Display for MempoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.0, self.1)
    }
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
