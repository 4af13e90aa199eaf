//! A raw malloc in parts, between which the caller can free memory or let others use the allocator.
//!
//! - Some memory is only known outside this allocator: PyTorch holds tensors that other processes may still use, and
//!   frees those that they have finished with before it requests memory from the device.
//! - A call of the device takes long. With `release_lock_on_cudamalloc`, PyTorch's threads can use the allocator while
//!   one of them waits for `cudaMalloc`. What they do meanwhile is not looked at again: a block that became free is not
//!   used, and the limit was checked before.
//!
//! Source: PyTorch 2.11, `trigger_free_memory_callbacks`, `alloc_block`.

use super::retry_ladder::Step;
use super::segment::Supply;
use super::{PyTorch, Request};
use crate::driver::{DeviceAddr, Driver, Status, StreamId};
use crate::error::Error;

/// How far a request has come.
#[derive(Debug)]
pub enum Progress {
    /// It was served.
    Done(DeviceAddr),
    /// It needs memory of the device.
    NeedsSegment(Pending),
}

/// A request that waits for a segment of the device.
#[derive(Debug)]
pub struct Pending {
    /// Requested bytes.
    bytes: u64,
    stream: StreamId,
    /// Bytes.
    segment_size: u64,
    /// The step after the call.
    next: Step,
}

impl Pending {
    /// Returns the bytes to request from the device.
    #[must_use]
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }
}

impl<D: Driver> PyTorch<D> {
    /// The first part of [`Self::raw_malloc`]: serves the request if a cached block fits. If it returns `None`, call
    /// [`Self::malloc_uncached`] or [`Self::begin_uncached`] with the same arguments.
    ///
    /// # Errors
    /// As [`Self::raw_malloc`].
    pub fn malloc_cached(
        &mut self,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<DeviceAddr>, Error> {
        if bytes == 0 {
            return Ok(Some(DeviceAddr::NULL));
        }
        let request = self.begin(bytes, stream)?;
        let block = self.take_free_block(&request);
        Ok(block.map(|block| self.cut_and_hand_out(block, &request)))
    }

    /// The second part of [`Self::raw_malloc`]. If memory was freed since the first part, the cached blocks are
    /// searched again.
    ///
    /// # Errors
    /// As [`Self::raw_malloc`].
    pub fn malloc_uncached(
        &mut self,
        bytes: u64,
        stream: StreamId,
        memory_was_freed: bool,
    ) -> Result<DeviceAddr, Error> {
        let mut progress = self.begin_uncached(bytes, stream, memory_was_freed)?;
        loop {
            progress = match progress {
                Progress::Done(addr) => return Ok(addr),
                Progress::NeedsSegment(pending) => {
                    let answer = self.driver.malloc(pending.segment_size);
                    self.resume(pending, answer)?
                }
            };
        }
    }

    /// As [`Self::malloc_uncached`], up to the first call of [`Driver::malloc`], which the caller makes. The answer goes
    /// to [`Self::resume`]. Others may use the allocator meanwhile.
    ///
    /// # Errors
    /// As [`Self::malloc`].
    pub fn begin_uncached(
        &mut self,
        bytes: u64,
        stream: StreamId,
        memory_was_freed: bool,
    ) -> Result<Progress, Error> {
        // Other threads may have made requests meanwhile.
        self.ensure_room()?;
        let request = self.request(bytes, stream)?;
        if memory_was_freed && let Some(block) = self.take_free_block(&request) {
            return Ok(Progress::Done(self.cut_and_hand_out(block, &request)));
        }
        self.advance(request, Step::Request)
    }

    /// Continues with the device's answer. The request may need another segment: if the device had no memory, and after
    /// cached memory was returned to it.
    ///
    /// # Errors
    /// As [`Self::malloc`]. A segment that cannot be used is returned to the device.
    pub fn resume(
        &mut self,
        pending: Pending,
        answer: Status<DeviceAddr>,
    ) -> Result<Progress, Error> {
        let room = self.ensure_room();
        // Its private pool may be gone by now.
        let request = room.and_then(|()| self.request(pending.bytes, pending.stream));
        let mut request = match (request, &answer) {
            (Ok(request), _) => request,
            (Err(error), &Ok(addr)) => {
                self.driver.free(addr, pending.segment_size)?;
                return Err(error);
            }
            (Err(error), Err(_)) => return Err(error),
        };
        request.segment_size = pending.segment_size;
        match self.add_segment(answer, &request)? {
            Some(block) => Ok(Progress::Done(self.cut_and_hand_out(block, &request))),
            None => self.advance(request, pending.next),
        }
    }

    fn advance(&mut self, mut request: Request, mut step: Step) -> Result<Progress, Error> {
        match self.climb(&mut request, &mut step)? {
            Supply::Block(block) => Ok(Progress::Done(self.cut_and_hand_out(block, &request))),
            Supply::Nothing => Err(self.out_of_memory(&request)),
            Supply::AskDevice => Ok(Progress::NeedsSegment(Pending {
                bytes: request.bytes,
                stream: request.stream,
                segment_size: request.segment_size,
                next: step,
            })),
        }
    }
}
