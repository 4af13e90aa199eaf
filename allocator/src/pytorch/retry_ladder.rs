//! The steps taken when no cached block fits.
//!
//! After a step that frees blocks, the pool is not searched again: memory comes from the device or not
//! at all. A fitting block that becomes free on the way is not used, and the same request succeeds when
//! repeated.
//!
//! Source: PyTorch 2.11, `malloc`.

use super::private_pool::Borrowing;
use super::segment::{Attempt, Supply};
use super::{BlockId, PyTorch, Request, size};
use crate::driver::Driver;
use crate::error::{Error, Hazard};
use crate::mempool::MempoolId;

/// The next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Collect garbage, if that is on, and request memory from the device.
    Request,
    /// Borrow from private pools that allow it.
    Borrow,
    /// Return just enough oversize blocks, then request again.
    ReturnSome,
    /// Wait for all streams, return all cached memory, then request a last time. Waiting is not allowed during a
    /// capture.
    ReturnAll,
    /// Borrow now, if that was not tried before.
    BorrowLast,
    /// No memory was found.
    Failed,
}

impl<D: Driver> PyTorch<D> {
    /// Returns a large enough block that is in no pool, from the first step that yields one, or `None`.
    /// A block of a private pool changes the request into one of that pool.
    pub(super) fn run_retry_ladder(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<BlockId>, Error> {
        let mut step = Step::Request;
        loop {
            match self.climb(request, &mut step)? {
                Supply::Block(block) => return Ok(Some(block)),
                Supply::Nothing => return Ok(None),
                Supply::AskDevice => {
                    let answer = self.driver.malloc(request.segment_size);
                    if let Some(block) = self.add_segment(answer, request)? {
                        return Ok(Some(block));
                    }
                }
            }
        }
    }

    /// Goes on from `step` until a step yields something, or none is left.
    pub(super) fn climb(
        &mut self,
        request: &mut Request,
        step: &mut Step,
    ) -> Result<Supply, Error> {
        loop {
            let supply = match step {
                Step::Request => {
                    *step = Step::Borrow;
                    let size = size::segment_size(request.size, &self.settings);
                    let bytes = request.bytes;
                    request.segment_size = size.ok_or(Hazard::SizeOverflow { bytes })?;
                    self.collect_garbage()?;
                    self.request_segment(request, Attempt::First)?
                }
                Step::Borrow => {
                    *step = Step::ReturnSome;
                    match self.rules.borrowing {
                        Borrowing::BeforeReturning => {
                            self.take_from_use_on_oom_pools(request)?.into()
                        }
                        Borrowing::LastResort => Supply::Nothing,
                    }
                }
                Step::ReturnSome => {
                    *step = Step::ReturnAll;
                    if self.release_available_cached_blocks(request)? {
                        self.request_segment(request, Attempt::First)?
                    } else {
                        Supply::Nothing
                    }
                }
                Step::ReturnAll => {
                    *step = Step::BorrowLast;
                    if self.is_capturing() {
                        Supply::Nothing
                    } else {
                        self.release_cached_blocks(MempoolId::DEFAULT)?;
                        self.request_segment(request, Attempt::Retry)?
                    }
                }
                Step::BorrowLast => {
                    *step = Step::Failed;
                    match self.rules.borrowing {
                        Borrowing::LastResort => self.take_from_use_on_oom_pools(request)?.into(),
                        Borrowing::BeforeReturning => Supply::Nothing,
                    }
                }
                Step::Failed => return Ok(Supply::Nothing),
            };
            if !matches!(supply, Supply::Nothing) {
                return Ok(supply);
            }
        }
    }
}
