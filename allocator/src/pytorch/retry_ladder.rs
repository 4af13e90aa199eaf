//! The steps taken when no cached block fits.
//!
//! After a step that frees blocks, the pool is not searched again: memory comes from the device or not
//! at all. A fitting block that becomes free on the way is not used, and the same request succeeds when
//! repeated.
//!
//! Source: PyTorch 2.11, `malloc`.

use super::private_pool::Borrowing;
use super::segment::Attempt;
use super::{BlockId, PyTorch, Request, size};
use crate::driver::Driver;
use crate::error::{Error, Hazard};
use crate::mempool::MempoolId;

impl<D: Driver> PyTorch<D> {
    /// Returns a large enough block that is in no pool, from the first step that yields one, or `None`.
    /// A block of a private pool changes the request into one of that pool.
    pub(super) fn run_retry_ladder(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<BlockId>, Error> {
        let overflow = Hazard::SizeOverflow {
            bytes: request.bytes,
        };
        request.segment_size = size::segment_size(request.size, &self.settings).ok_or(overflow)?;
        // 1. Collect garbage, if that is on.
        self.collect_garbage()?;
        // 2. Request memory from the device.
        if let Some(block) = self.alloc_block(request, Attempt::First)? {
            return Ok(Some(block));
        }
        // 3. Borrow from private pools that allow it.
        if self.rules.borrowing == Borrowing::BeforeReturning
            && let Some(block) = self.take_from_use_on_oom_pools(request)?
        {
            return Ok(Some(block));
        }
        // 4. Return just enough oversize blocks, then request again.
        if self.release_available_cached_blocks(request)?
            && let Some(block) = self.alloc_block(request, Attempt::First)?
        {
            return Ok(Some(block));
        }
        // 5. Wait for all streams, return all cached memory, then request a last time. Waiting is not
        //    allowed during a capture.
        if !self.is_capturing() {
            self.release_cached_blocks(MempoolId::DEFAULT)?;
            if let Some(block) = self.alloc_block(request, Attempt::Retry)? {
                return Ok(Some(block));
            }
        }
        // 6. Borrow now, if that was not tried before.
        match self.rules.borrowing {
            Borrowing::LastResort => self.take_from_use_on_oom_pools(request),
            Borrowing::BeforeReturning => Ok(None),
        }
    }
}
