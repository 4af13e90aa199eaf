//! What `coalesce.record()` adds to a snapshot, because PyTorch does not write it: the limit of the process and the
//! memory of the device.
//!
//! Source: `python/coalesce/_process.py`.

use super::Recording;

/// What is known about the process and its device at the end of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// Bytes of the device.
    pub total: Option<u64>,
    /// Bytes of it that no process used.
    pub free: Option<u64>,
    /// Bytes that the process could reserve at most; those of the device, if nothing set a limit.
    pub limit: Option<u64>,
}

impl Process {
    /// The limit that `torch.cuda.set_per_process_memory_fraction` or the settings set.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        let is_set = |limit: &u64| self.total.is_none_or(|total| *limit < total);
        self.limit.filter(is_set)
    }
}

impl Recording {
    /// Bytes of the device that the process could use at the end of the recording without a limit: its reserved memory
    /// and the free memory, but not less than it reserved at any time.
    #[must_use]
    pub fn device_at_end(&self) -> Option<u64> {
        let reserved = self.reserved_before_entries();
        let at_end = reserved.last()?.saturating_add(self.process.free?);
        reserved.into_iter().chain([at_end]).max()
    }

    /// Bytes of the device that were in use beside PyTorch's allocator at the end of the recording: by CUDA, by its
    /// libraries and by other processes.
    #[must_use]
    pub fn beside_at_end(&self) -> Option<u64> {
        let used = self.process.total?.checked_sub(self.process.free?)?;
        used.checked_sub(*self.reserved_before_entries().last()?)
    }
}
