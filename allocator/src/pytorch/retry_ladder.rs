//! The steps taken when no cached block fits, up to the out-of-memory error.
//!
//! After a step that frees blocks, the pool is not searched again: memory comes from the device or not
//! at all. A fitting block that becomes free on the way is not used, and the same request succeeds when
//! repeated.
//!
//! Source: PyTorch 2.11, `malloc`.

use std::borrow::Cow;

use super::private_pool::Borrowing;
use super::segment::Attempt;
use super::{BlockId, PyTorch, Request};
use crate::driver::{DeviceAddr, Driver};
use crate::error::{Error, OutOfMemory, Size};
use crate::history::Action;
use crate::mempool::MempoolId;

/// What the message of an out-of-memory error ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OomHint {
    /// Until 2.9.
    OldPage,
    /// Names the variable of all devices. 2.10.
    AnyDevice,
    /// Names the variable of CUDA, and a page of its own. From 2.11 on.
    NewPage,
    /// As before, but nothing if expandable segments are on. 2.14 (pytorch#191105).
    UnlessExpandable,
    /// As before, but about reserved addresses if expandable segments are on. From 2.15 on
    /// (pytorch#192269).
    AboutAddresses,
}

impl OomHint {
    fn text(self, expandable_segments: bool) -> &'static str {
        match self {
            Self::OldPage => concat!(
                " If reserved but unallocated memory is large try setting ",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See ",
                "documentation for Memory Management  ",
                "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
            ),
            Self::AnyDevice => concat!(
                " If reserved but unallocated memory is large try setting ",
                "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See ",
                "documentation for Memory Management  ",
                "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
            ),
            Self::UnlessExpandable if expandable_segments => "",
            Self::AboutAddresses if expandable_segments => concat!(
                " expandable_segments is enabled. If instead the process is running out of virtual ",
                "address space (VSZ), expandable segments may be over-reserving VA (each segment ",
                "reserves ~9/8 of device memory, times the number of streams); reduce it via ",
                "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / ",
                "expandable_segments_reserve_by_class."
            ),
            Self::NewPage | Self::UnlessExpandable | Self::AboutAddresses => concat!(
                " If reserved but unallocated memory is large try setting ",
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See ",
                "documentation for Memory Management  ",
                "(https://docs.pytorch.org/docs/stable/notes/cuda.html",
                "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
            ),
        }
    }
}

impl<D: Driver> PyTorch<D> {
    /// Returns a large enough block that is in no pool, from the first step that yields one, or `None`.
    /// A block of a private pool changes the request into one of that pool.
    pub(super) fn run_retry_ladder(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<BlockId>, Error> {
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

    /// Records a failed request and builds its error.
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
            hint: self.hint(request),
        }))
    }

    fn hint(&self, request: &Request) -> Cow<'static, str> {
        let expandable = self.settings.expandable_segments;
        let reserve = self
            .reserve_of(request.stream)
            .map(|reserve| reserve.bytes(self.total_memory))
            .filter(|&bytes| expandable && bytes < request.segment_size);
        match reserve.filter(|_| request.segment_size <= self.total_memory) {
            None => self.rules.oom_hint.text(expandable).into(),
            Some(bytes) => {
                let class = self.reserve_classes.get(&request.stream);
                let stream = class.map_or("this stream".to_owned(), |class| {
                    format!("stream reserve class '{class}'")
                });
                format!(
                    " This allocation exceeds the expandable-segment reserve of {} for {stream}, and \
                     a single allocation cannot span expandable segments. Raise \
                     PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or \
                     expandable_segments_reserve_by_class (or unset it) so that a segment is at least \
                     {}.",
                    Size(bytes),
                    Size(request.segment_size)
                )
                .into()
            }
        }
    }

    fn free_bytes_of_private_pools(&self) -> u64 {
        let pools = self.private_pools.iter().flat_map(|p| [p.small, p.large]);
        let free = pools.flat_map(|pool| self.pools[pool].free.iter());
        free.map(|block| block.size).sum()
    }
}
