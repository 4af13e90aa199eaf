//! Checkpoints of private pools, which `torch.compile` needs for its trees of CUDA graphs.

use std::any::Any;
use std::fmt;

use crate::driver::DeviceAddr;
use crate::error::CheckpointError;
use crate::mempool::MempoolId;

/// The live blocks of a private pool at one time. Only the allocator that took it can restore it.
pub struct Checkpoint {
    pool: MempoolId,
    /// What the allocator saved.
    saved: Box<dyn Any + Send>,
}

impl Checkpoint {
    pub(crate) fn new<T: Any + Send>(pool: MempoolId, saved: T) -> Self {
        let saved = Box::new(saved);
        Self { pool, saved }
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> MempoolId {
        self.pool
    }

    /// What an allocator of this kind saved.
    ///
    /// # Errors
    /// [`CheckpointError::Foreign`] if another kind took the checkpoint.
    pub(crate) fn saved<T: Any>(&self) -> Result<&T, CheckpointError> {
        self.saved.downcast_ref().ok_or(CheckpointError::Foreign)
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({})", self.pool)
    }
}

/// What restoring a checkpoint did. An address may be in both lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RestoredPool {
    /// The allocations that were freed: all that the pool had.
    pub freed: Vec<DeviceAddr>,
    /// The allocations of the checkpoint. The caller owns them.
    pub allocated: Vec<DeviceAddr>,
}
