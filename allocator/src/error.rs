//! Errors of allocators and their messages.
//!
//! Messages are PyTorch's where it has one. After any of these errors the allocator is consistent and
//! usable.

use std::borrow::Cow;
use std::fmt;

use crate::driver::{DeviceAddr, DriverError, StreamId};
use crate::mempool::MempoolId;
use crate::settings::SettingsError;

/// Why an operation failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough memory, even after cached memory was returned.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A request that needs more memory than the limit of the settings allows, under
    /// `throw_on_cudamalloc_oom`.
    #[error(
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed \
         per_process_memory_fraction limit. Requested size: {}",
        Size(*requested)
    )]
    Rejected {
        /// Requested bytes.
        requested: u64,
    },
    /// A request of 2^60 bytes or more, refused before any other step.
    #[error("CUDA out of memory. Tried to allocate more than 1EB memory.")]
    MoreThanOneExabyte,
    /// An address that is not the start of a live allocation: never allocated, already freed, or from
    /// another allocator.
    #[error("invalid device pointer: {0}")]
    InvalidPointer(DeviceAddr),
    /// A number that no allocated block of pinned memory has.
    #[error("block {0} of pinned memory is not allocated")]
    NotPinned(u32),
    /// A memory fraction outside 0 to 1.
    #[error("invalid fraction:{}. Please set within [0, 1].", significant(*.0))]
    InvalidFraction(f64),
    /// A memory fraction outside 0 to 1, in releases until 2.7.
    #[error(
        "0 <= fraction && fraction <= 1 INTERNAL ASSERT FAILED at \
         \"/pytorch/c10/cuda/CUDACachingAllocator.cpp\":3430, please report a bug to PyTorch. \
         invalid fraction:{}. Please set within (0, 1).",
        significant(*.0)
    )]
    InvalidFractionAsserted(f64),
    /// An invalid settings string.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// An invalid use of private pools.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A checkpoint of a private pool that could not be taken or restored.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device failed for another reason than lack of memory.
    #[error("CUDA error: {0}")]
    Driver(DriverError),
    /// A virtual memory call failed for another reason than lack of memory.
    #[error("CUDA driver error: {0}")]
    VirtualMemory(DriverError),
    /// PyTorch would have corrupted its own state here.
    #[error(transparent)]
    Hazard(#[from] Hazard),
    /// The policy itself failed, as a library outside this program may.
    #[error("{0}")]
    Policy(String),
    /// A request that the policy does not support.
    #[error("{policy} does not serve {what}")]
    Unsupported {
        /// The policy's name.
        policy: &'static str,
        /// The unsupported feature.
        what: &'static str,
    },
    /// The allocator can track nearly 2^32 blocks.
    #[error("too many blocks: the limit is 2^32 - 2^24")]
    TooManyBlocks,
}

impl Error {
    /// Whether a request failed for lack of memory, as `torch.OutOfMemoryError` says.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory(_) | Self::MoreThanOneExabyte | Self::Rejected { .. }
        )
    }
}

/// The message already contains the driver error, so it is not the source.
impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

/// The details of a failed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// The policy's name.
    pub policy: &'static str,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes of the segment that the request needed; the message shows this figure.
    pub segment: u64,
    /// The stream of the request.
    pub stream: StreamId,
    /// The device's number.
    pub device: u32,
    /// Device memory in bytes.
    pub device_total: u64,
    /// Free device memory in bytes.
    pub device_free: u64,
    /// The limit on reserved bytes, if any.
    pub limit: Option<u64>,
    /// Bytes of allocated blocks.
    pub allocated: u64,
    /// Bytes of free blocks in private pools. The message counts them as allocated.
    pub private_free: u64,
    /// Reserved bytes.
    pub reserved: u64,
    /// What the message ends with: PyTorch's advice, or nothing.
    pub hint: Cow<'static, str>,
}

impl std::error::Error for OutOfMemory {}

/// For the reference, PyTorch's text including its double spaces, but without the sentence on
/// other processes, which needs NVML.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.policy != "pytorch" {
            write!(
                f,
                "{} is out of memory: requested {}; the device has {}, of which {} is free; \
                 {} is allocated, {} reserved",
                self.policy,
                Size(self.requested),
                Size(self.device_total),
                Size(self.device_free),
                Size(self.allocated),
                Size(self.reserved)
            )?;
            return match self.limit {
                Some(limit) => write!(f, ", {} allowed", Size(limit)),
                None => Ok(()),
            };
        }
        write!(
            f,
            "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which \
             {} is free. ",
            Size(self.segment),
            self.device,
            Size(self.device_total),
            Size(self.device_free)
        )?;
        if let Some(limit) = self.limit {
            write!(f, "{} allowed; ", Size(limit))?;
        }
        let allocated = self.allocated.wrapping_add(self.private_free);
        write!(
            f,
            "Of the allocated memory {} is allocated by PyTorch, ",
            Size(allocated)
        )?;
        if self.private_free > 0 {
            write!(
                f,
                "with {} allocated in private pools (e.g., CUDA Graphs), ",
                Size(self.private_free)
            )?;
        }
        write!(
            f,
            "and {} is reserved by PyTorch but unallocated.{}",
            Size(self.reserved.wrapping_sub(allocated)),
            self.hint
        )
    }
}

/// Prints bytes as PyTorch's messages do. Values up to 1024 of a unit keep that unit.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB")];
        if self.0 <= 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let (scale, unit) = UNITS
            .into_iter()
            .find(|(scale, _)| self.0 <= scale << 10)
            .unwrap_or(UNITS[2]);
        write!(f, "{:.2} {unit}", self.0 as f64 / scale as f64)
    }
}

/// An invalid use of private pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Allocations are already directed to this pool. As in PyTorch, its use count was increased
    /// anyway.
    #[error("beginAllocateToPool: already recording to mempool_id")]
    AlreadyRecording,
    /// Allocations are not directed to this pool.
    #[error("endAllocatePool: not currently recording to mempool_id")]
    NotRecording,
    /// The pool does not exist. (An internal assertion in PyTorch.)
    #[error("no private pool {0}")]
    Unknown(MempoolId),
    /// The pool has no users and only waits for its memory to be returned. (An internal assertion in
    /// PyTorch.)
    #[error("private pool {0} was released by all its users")]
    Released(MempoolId),
    /// Streams cannot be waited for while allocations are directed to a private pool. (An internal
    /// assertion in PyTorch.)
    #[error("private pool {0} cannot be emptied while allocations go to a private pool")]
    Recording(MempoolId),
    /// No capture is under way that could end. (An internal assertion in PyTorch.)
    #[error("no capture of a graph is under way")]
    NoCapture,
}

/// Why a checkpoint of a private pool could not be taken or restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// There is no such pool to take a checkpoint of.
    #[error("Could not find pool of id")]
    NothingToSave,
    /// A freed block of the pool waits for streams that use it, which a checkpoint cannot express.
    #[error("Events should have synchronized when checkpointing block")]
    WaitingWhenSaved,
    /// The pool of the checkpoint does not exist any more.
    #[error("Could not find private pool id")]
    NothingToRestore,
    /// The pool of the checkpoint has no users.
    #[error("Not expected to checkpoint freeable graph")]
    Released,
    /// No free block starts where a segment of the checkpoint does. Its memory was returned, or a freed block there
    /// waits for streams that use it.
    #[error(" could not find {0}")]
    SegmentGone(DeviceAddr),
    /// An expandable segment does not end as it did.
    #[error("Invalid expandable segment structure during checkpoint restore")]
    TailGone,
    /// A segment cannot be cut into the blocks that it had, because its size changed or a freed block in it waits for
    /// streams that use it.
    #[error(
        "Expected {expected} to be true, but got false.  (Could this error message be improved?  \
         If so, please report an enhancement request to PyTorch.)"
    )]
    Changed {
        /// The condition as PyTorch writes it.
        expected: &'static str,
    },
    /// Another kind of allocator took the checkpoint.
    #[error("the checkpoint is of another allocator")]
    Foreign,
}

/// A place where PyTorch 2.11 corrupts its own state. This allocator stops before that, or does the
/// right thing, and reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hazard {
    /// To make room, PyTorch returns an oversize free block without checking whether it is part of a
    /// split segment. This happens after `max_split_size_mb` was changed, or expandable segments were
    /// switched on, at run time. The block was kept.
    #[error(
        "hazard: PyTorch would cudaFree {addr} ({bytes} bytes), which is {}: split blocks became \
         oversize when max_split_size_mb or expandable_segments was changed at run time. The block \
         was kept; set both before the first allocation",
        if *.is_head { "a segment whose tail is still in use" } else { "inside a segment" }
    )]
    ReleaseOfSplitBlock {
        /// The block.
        addr: DeviceAddr,
        /// Its bytes.
        bytes: u64,
        /// Whether it is the head of its segment. A live tensor would then lose its memory.
        is_head: bool,
    },
    /// PyTorch counts a private pool's mappings once per allocation and its unmappings once per region.
    /// If one mapping becomes two regions, an internal assertion fails half-way. The region was
    /// returned anyway.
    #[error(
        "hazard: PyTorch would fail its assertion cudaMalloc_count > 0 in private pool {pool}: a \
         mapping of its expandable segment came back in more pieces than it was made in. The \
         memory was returned; use private pools without expandable_segments"
    )]
    PrivatePoolOverreleased {
        /// The pool.
        pool: MempoolId,
    },
    /// By the same count, PyTorch considers a private pool empty that is not, and destroys it under its
    /// live blocks. The pool was kept.
    #[error(
        "hazard: PyTorch would destroy private pool {pool} while blocks in it are in use (use \
         after free). The pool was kept; use private pools without expandable_segments"
    )]
    PrivatePoolDestroyedInUse {
        /// The pool.
        pool: MempoolId,
    },
    /// To restore a checkpoint, PyTorch allocates a block although a freed allocation still waits there for streams that
    /// use it. The block was left waiting.
    #[error(
        "hazard: PyTorch would allocate {addr} to restore a checkpoint, although streams still use it; wait for all \
         streams before the checkpoint is restored"
    )]
    RestoreOfUsedBlock {
        /// The block.
        addr: DeviceAddr,
    },
    /// Rounding up the request overflows 64 bits. PyTorch's raw interface then returns a block of zero
    /// bytes.
    #[error("hazard: a request of {bytes} bytes overflows when it is rounded up")]
    SizeOverflow {
        /// Requested bytes.
        bytes: u64,
    },
}

/// Formats a number with six significant digits, as C++ streams do (`%g`).
fn significant(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| {
        if digits.contains('.') {
            digits
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
        } else {
            digits.to_owned()
        }
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).unwrap_or(0);
        trim(&format!("{value:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes keep their unit up to 1024 of it; numbers are as C++ prints them.
    #[test]
    fn sizes_and_numbers_are_printed_as_by_pytorch() {
        for line in include_str!("cases/printed.txt").lines() {
            let (value, text) = line.split_once(" => ").unwrap();
            let found = match value.split_once(' ').unwrap() {
                ("bytes", bytes) => Size(bytes.parse().unwrap()).to_string(),
                (_, number) => significant(number.parse().unwrap()),
            };
            assert_eq!(found, text, "{value}");
        }
    }

    #[test]
    fn each_policy_says_what_it_needed_and_what_there_was() {
        let mut error = OutOfMemory {
            policy: "arena",
            requested: 3 << 20,
            segment: 20 << 20,
            stream: StreamId::DEFAULT,
            device: 1,
            device_total: 80 << 20,
            device_free: 2048,
            limit: None,
            allocated: 70 << 20,
            private_free: 0,
            reserved: 75 << 20,
            hint: Cow::Borrowed(" Good luck."),
        };
        let text = "arena is out of memory: requested 3.00 MiB; the device has 80.00 MiB, of which 2.00 KiB is \
                    free; 70.00 MiB is allocated, 75.00 MiB reserved";
        assert_eq!(error.to_string(), text);
        error.limit = Some(76 << 20);
        assert_eq!(error.to_string(), format!("{text}, 76.00 MiB allowed"));

        error.policy = "pytorch";
        error.private_free = 1;
        let text = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a total capacity of 80.00 MiB of \
                    which 2.00 KiB is free. 76.00 MiB allowed; Of the allocated memory 70.00 MiB is allocated by \
                    PyTorch, with 1 bytes allocated in private pools (e.g., CUDA Graphs), and 5.00 MiB is reserved \
                    by PyTorch but unallocated. Good luck.";
        assert_eq!(error.to_string(), text);
        error.private_free = 0;
        assert!(!error.to_string().contains("private pools"));
    }
}
