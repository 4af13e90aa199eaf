//! A raw malloc in two parts, between which the caller can free memory.
//!
//! Some memory is only known outside this allocator: PyTorch holds tensors that other processes may still use, and
//! frees those that they have finished with before it requests memory from the device.
//!
//! Source: PyTorch 2.11, `trigger_free_memory_callbacks`.

use super::PyTorch;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;

impl<D: Driver> PyTorch<D> {
    /// The first part of [`Self::raw_malloc`]: serves the request if a cached block fits. If it returns `None`, call
    /// [`Self::malloc_uncached`] with the same arguments.
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
        // Other threads may have made requests meanwhile.
        self.ensure_room()?;
        let mut request = self.request(bytes, stream)?;
        let cached = match memory_was_freed {
            true => self.take_free_block(&request),
            false => None,
        };
        let block = match cached {
            Some(block) => block,
            None => self.find_uncached(&mut request)?,
        };
        Ok(self.cut_and_hand_out(block, &request))
    }
}
