//! Captures of work into CUDA graphs, during which nothing may be waited for.
//!
//! While the caller captures, events are neither recorded nor queried (`events.rs`) and the default pools are not
//! emptied, not even to avoid running out of memory. This module does not decide where the memory of
//! a capture comes from: allocations go to a private pool, like those of `torch.cuda.use_mem_pool`.
//!
//! Source: PyTorch 2.13, `markCaptureBegin`, `markCaptureEnd`, `is_capture_context`; until 2.12, uses of
//! `captures_underway`.

use super::PyTorch;
use crate::driver::Driver;
use crate::error::{Error, PoolError};

/// What counts as capturing a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolScope {
    /// Directing the allocations of any stream to a private pool, on any thread. Until 2.12.
    IsCapture,
    /// A capture that was announced, while the caller's current stream is captured. From 2.13 on (pytorch#181830).
    IsNoCapture,
}

/// The captures under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Captures {
    /// Announced by [`PyTorch::mark_capture_begin`].
    marked: u64,
    /// Begun by [`PoolCall::BeginCapture`](crate::mempool::PoolCall::BeginCapture).
    begun: u64,
}

impl<D: Driver> PyTorch<D> {
    /// Whether the caller captures a graph ([`PoolScope`]).
    pub(super) fn is_capturing(&self) -> bool {
        self.captures.begun > 0
            || match self.rules.pool_scope {
                PoolScope::IsCapture => self.private_pools.is_recording(),
                PoolScope::IsNoCapture => self.captures.marked > 0 && self.driver.is_capturing(),
            }
    }

    /// Begins a capture by the caller itself, whatever the driver says: what a replay calls.
    pub(super) fn begin_capture(&mut self) {
        self.captures.begun += 1;
    }

    /// Ends such a capture.
    pub(super) fn end_capture(&mut self) -> Result<(), Error> {
        end(&mut self.captures.begun)
    }

    /// Announces that a capture has begun on this device (`markCaptureBegin`). Releases until 2.12 do not have this
    /// call; for them it has no effect.
    pub fn mark_capture_begin(&mut self) {
        self.captures.marked += 1;
    }

    /// Announces that a capture has ended (`markCaptureEnd`).
    ///
    /// # Errors
    /// [`PoolError::NoCapture`] if none had begun.
    pub fn mark_capture_end(&mut self) -> Result<(), Error> {
        end(&mut self.captures.marked)
    }
}

fn end(captures: &mut u64) -> Result<(), Error> {
    *captures = captures.checked_sub(1).ok_or(PoolError::NoCapture)?;
    Ok(())
}
