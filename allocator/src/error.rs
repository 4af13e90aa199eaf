//! Everything that can go wrong in an allocator, and what it says.
//!
//! Where PyTorch has a text for it, the text is PyTorch's. After any of these errors the allocator
//! is consistent and goes on.

use std::fmt;

use crate::driver::{DeviceAddr, DriverError, StreamId};
use crate::mempool::MempoolId;
use crate::settings::SettingsError;

/// Why an operation failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not enough memory, and returning what is cached did not help.
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    /// A request of 2^60 bytes or more, refused before anything else is done.
    #[error("CUDA out of memory. Tried to allocate more than 1EB memory.")]
    MoreThanOneExabyte,
    /// An address that is not the start of a live allocation: never allocated, already freed, or
    /// of another allocator.
    #[error("invalid device pointer: {0}")]
    InvalidPointer(DeviceAddr),
    /// A share of memory outside 0 to 1.
    #[error("invalid fraction:{}. Please set within [0, 1].", significant(*.0))]
    InvalidFraction(f64),
    /// A wrong settings string.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A wrong use of private pools.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The device failed, other than for lack of memory.
    #[error("CUDA error: {0}")]
    Driver(DriverError),
    /// A virtual memory call failed, other than for lack of memory.
    #[error("CUDA driver error: {0}")]
    VirtualMemory(DriverError),
    /// PyTorch would have corrupted its own state here.
    #[error(transparent)]
    Hazard(#[from] Hazard),
    /// Something that the policy does not serve at all.
    #[error("{policy} does not serve {what}")]
    Unsupported {
        /// The policy's name.
        policy: &'static str,
        /// What it does not serve.
        what: &'static str,
    },
    /// The allocator keeps track of nearly 2^32 blocks at most.
    #[error("too many blocks: no more than 2^32 - 2^24 can be kept track of")]
    TooManyBlocks,
}

/// Not as the source: its words are in the error's own.
impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

/// A failed request with all that is said about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// The policy's name.
    pub policy: &'static str,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes of the segment that the request needed: this is the figure in the text.
    pub segment: u64,
    /// The stream asked for.
    pub stream: StreamId,
    /// The device's number.
    pub device: u32,
    /// Bytes the device has.
    pub device_total: u64,
    /// Bytes of them nobody uses.
    pub device_free: u64,
    /// The limit on reserved bytes, if there is one.
    pub limit: Option<u64>,
    /// Bytes of blocks handed out.
    pub allocated: u64,
    /// Bytes of free blocks in private pools, which the text calls allocated.
    pub private_free: u64,
    /// Bytes held from the device.
    pub reserved: u64,
}

impl std::error::Error for OutOfMemory {}

/// Of the reference, PyTorch 2.11's text; two double spaces and all. Without the sentence on other
/// processes, which needs NVML.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.policy != "pytorch" {
            return write!(
                f,
                "{} is out of memory: {} asked for; the device has {} of which {} is free; {} is \
                 allocated, {} held",
                self.policy,
                Size(self.requested),
                Size(self.device_total),
                Size(self.device_free),
                Size(self.allocated),
                Size(self.reserved)
            );
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
            "and {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is \
             large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid \
             fragmentation.  See documentation for Memory Management  \
             (https://docs.pytorch.org/docs/stable/notes/cuda.html\
             #optimizing-memory-usage-with-pytorch-cuda-alloc-conf)",
            Size(self.reserved.wrapping_sub(allocated))
        )
    }
}

/// Bytes as PyTorch's messages print them. 1024 of a unit are still that unit.
struct Size(u64);

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

/// A wrong use of private pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Allocations already go to this pool. Its use count has been raised all the same, as in
    /// PyTorch.
    #[error("beginAllocateToPool: already recording to mempool_id")]
    AlreadyRecording,
    /// Allocations do not go to this pool.
    #[error("endAllocatePool: not currently recording to mempool_id")]
    NotRecording,
    /// There is no such pool. (An internal assertion in PyTorch.)
    #[error("no private pool {0}")]
    Unknown(MempoolId),
    /// The pool was released by all its users and only waits for its memory to be returned. (An
    /// internal assertion in PyTorch.)
    #[error("private pool {0} was released by all its users")]
    Released(MempoolId),
    /// Allocations go to some pool, so streams may not be waited for. (An internal assertion in
    /// PyTorch.)
    #[error("private pool {0} cannot be emptied while allocations go to a private pool")]
    Recording(MempoolId),
}

/// A place where PyTorch 2.11 corrupts its own state. The corruption is not reproduced: the
/// operation stops short of it, or does the right thing, and then says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Hazard {
    /// To make room PyTorch returns an oversize free block without asking whether it is part of a
    /// split segment. It happens when `max_split_size_mb` was changed, or expandable segments
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
        /// Whether it is the head of its segment: then a live tensor would lose its memory.
        is_head: bool,
    },
    /// PyTorch counts a private pool's mappings once per allocation and its unmappings once per
    /// region; one mapping that became two regions trips an internal assertion half-way. The
    /// region was returned all the same.
    #[error(
        "hazard: PyTorch would fail its assertion cudaMalloc_count > 0 in private pool {pool}: a \
         mapping of its expandable segment came back in more pieces than it was made in. The \
         memory was returned; use private pools without expandable_segments"
    )]
    PrivatePoolOverreleased {
        /// The pool.
        pool: MempoolId,
    },
    /// By the same count PyTorch believes a private pool empty that is not, and destroys it under
    /// its live blocks. The pool was kept.
    #[error(
        "hazard: PyTorch would destroy private pool {pool} while blocks in it are in use (use \
         after free). The pool was kept; use private pools without expandable_segments"
    )]
    PrivatePoolDestroyedInUse {
        /// The pool.
        pool: MempoolId,
    },
    /// Rounding the request up overflows 64 bits; PyTorch's raw interface then hands out a block
    /// of no bytes.
    #[error("hazard: a request of {bytes} bytes overflows when it is rounded up")]
    SizeOverflow {
        /// Bytes asked for.
        bytes: u64,
    },
}

/// A number with six significant digits, as C++ streams print it (`%g`).
fn significant(value: f64) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| match digits.contains('.') {
        true => digits
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => digits.to_owned(),
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

    #[test]
    fn sizes_keep_their_unit_up_to_1024_of_it() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1024, "1024 bytes"),
            (1025, "1.00 KiB"),
            (1 << 20, "1024.00 KiB"),
            (1 << 30, "1024.00 MiB"),
            ((1 << 30) + 1, "1.00 GiB"),
            (1 << 50, "1048576.00 GiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn fractions_print_as_cpp_prints_them() {
        for (value, text) in [
            (1.5, "1.5"),
            (-0.1, "-0.1"),
            (2.0, "2"),
            (1.000_001, "1"),
            (1.234_567_8, "1.23457"),
            (1e6, "1e+06"),
            (123_456.0, "123456"),
            (-1e-5, "-1e-05"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(significant(value), text);
        }
    }
}
