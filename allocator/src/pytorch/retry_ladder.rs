//! What happens when no cached block fits, step by step, and the end of it: out of memory.
//!
//! After a step that frees blocks nobody looks through the pool again: memory is taken from the
//! device or not at all. A block that becomes free on the way and would fit is not used, and the
//! same request succeeds when it is made once more.
//!
//! Source: PyTorch 2.11, `malloc`.

use super::segment::Attempt;
use super::{BlockId, PyTorch, Request};
use crate::driver::{DeviceAddr, Driver};
use crate::error::{Error, OutOfMemory};
use crate::history::Action;
use crate::mempool::MempoolId;

impl<D: Driver> PyTorch<D> {
    /// A block that is in no pool and large enough, by the first step that has one; `None` if none
    /// has. A block of a private pool changes the request into one of that pool.
    pub(super) fn climb_retry_ladder(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<BlockId>, Error> {
        // 1. Return what has not been used for long, if the garbage collector is on.
        self.collect_garbage()?;
        // 2. Ask the device.
        if let Some(block) = self.alloc_block(request, Attempt::First)? {
            return Ok(Some(block));
        }
        // 3. Borrow from private pools that allow it.
        if let Some(block) = self.take_from_use_on_oom_pools(request)? {
            return Ok(Some(block));
        }
        // 4. Return just enough oversize blocks, then ask again.
        if self.release_available_cached_blocks(request)?
            && let Some(block) = self.alloc_block(request, Attempt::First)?
        {
            return Ok(Some(block));
        }
        // 5. Wait for all streams, return everything, then ask for the last time. Not while
        //    allocations go to a private pool: waiting is not allowed then.
        if self.private_pools.is_recording() {
            return Ok(None);
        }
        self.release_cached_blocks(MempoolId::DEFAULT)?;
        self.alloc_block(request, Attempt::Retry)
    }

    /// Books a request that found no memory.
    pub(super) fn out_of_memory(&mut self, request: &Request) -> Error {
        let memory = match self.driver.memory_info() {
            Ok(memory) => memory,
            Err(error) => return error.into(),
        };
        let free = DeviceAddr(memory.free);
        self.trace(Action::Oom, free, request.size, request.stream);
        self.stats.num_ooms += 1;
        Error::OutOfMemory(Box::new(OutOfMemory {
            policy: "pytorch",
            requested: request.bytes,
            segment: request.segment_size,
            stream: request.stream,
            device: self.device,
            device_total: memory.total,
            device_free: memory.free,
            limit: self.limit,
            allocated: self.stats.allocated_bytes.all.current.cast_unsigned(),
            private_free: self.free_bytes_of_private_pools(),
            reserved: self.stats.reserved_bytes.all.current.cast_unsigned(),
        }))
    }

    fn free_bytes_of_private_pools(&self) -> u64 {
        let pools = self.private_pools.iter().flat_map(|p| [p.small, p.large]);
        let free = pools.flat_map(|pool| self.pools[pool].free.iter());
        free.map(|block| block.size).sum()
    }
}
