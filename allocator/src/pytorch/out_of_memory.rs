//! The error of a request for which there is no memory.
//!
//! Source: PyTorch 2.11, `malloc`.

use std::borrow::Cow;

use super::{PyTorch, Request};
use crate::driver::{DeviceAddr, Driver};
use crate::error::{Error, OutOfMemory, Size};
use crate::history::Action;

/// What the message of an out-of-memory error ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OomHint {
    /// Advises `PYTORCH_CUDA_ALLOC_CONF` and links to the list of environment variables. Until 2.9.
    OldPage,
    /// Advises `PYTORCH_ALLOC_CONF` with the same link. 2.10.
    AnyDevice,
    /// Advises `PYTORCH_CUDA_ALLOC_CONF` and links to the section about it. From 2.11 on.
    NewPage,
    /// The same, but nothing if expandable segments are on. 2.14 (pytorch#191105).
    UnlessExpandable,
    /// The same, but about reserved addresses if expandable segments are on. From 2.15 on
    /// (pytorch#192269).
    AboutAddresses,
}

impl OomHint {
    fn text(self, expandable_segments: bool) -> Cow<'static, str> {
        let (variable, page) = match self {
            Self::UnlessExpandable if expandable_segments => return "".into(),
            Self::AboutAddresses if expandable_segments => {
                return concat!(
                    " expandable_segments is enabled. If instead the process is running out of virtual ",
                    "address space (VSZ), expandable segments may be over-reserving VA (each segment ",
                    "reserves ~9/8 of device memory, times the number of streams); reduce it via ",
                    "PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / ",
                    "expandable_segments_reserve_by_class."
                )
                .into();
            }
            Self::OldPage => (
                "PYTORCH_CUDA_ALLOC_CONF",
                "pytorch.org/docs/stable/notes/cuda.html#environment-variables",
            ),
            Self::AnyDevice => (
                "PYTORCH_ALLOC_CONF",
                "pytorch.org/docs/stable/notes/cuda.html#environment-variables",
            ),
            Self::NewPage | Self::UnlessExpandable | Self::AboutAddresses => (
                "PYTORCH_CUDA_ALLOC_CONF",
                "docs.pytorch.org/docs/stable/notes/cuda.html\
                 #optimizing-memory-usage-with-pytorch-cuda-alloc-conf",
            ),
        };
        format!(
            " If reserved but unallocated memory is large try setting {variable}=\
             expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  \
             (https://{page})"
        )
        .into()
    }
}

impl<D: Driver> PyTorch<D> {
    /// Records a failed request and builds its error.
    pub(super) fn out_of_memory(&mut self, request: &Request) -> Error {
        let memory = match self.driver.memory_info() {
            Ok(memory) => memory,
            Err(error) => return error.into(),
        };
        let free = DeviceAddr(memory.free);
        self.trace(Action::Oom, request.shelf, free, request.size);
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
            allocated: self.stats.allocated_bytes.all().current.cast_unsigned(),
            private_free: self.free_bytes_of_private_pools(),
            reserved: self.stats.reserved_bytes.all().current.cast_unsigned(),
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
            None => self.rules.oom_hint.text(expandable),
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
        let free = pools.flat_map(|pool| self.pools.free(&self.blocks, pool));
        free.map(|id| self.blocks[id].size).sum()
    }
}
