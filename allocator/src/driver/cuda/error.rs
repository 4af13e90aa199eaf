//! What can go wrong with CUDA, in words.

use std::fmt;

use super::super::DriverError;
use super::symbols::Code;

/// The codes of `CUresult` that something here depends on (cuda.h of CUDA 13.0). All others are only
/// reported.
pub(super) mod code {
    use super::Code;

    pub const SUCCESS: Code = 0;
    pub const INVALID_VALUE: Code = 1;
    pub const OUT_OF_MEMORY: Code = 2;
    pub const STUB_LIBRARY: Code = 34;
    pub const NO_DEVICE: Code = 100;
    pub const INVALID_HANDLE: Code = 400;
    pub const NOT_READY: Code = 600;
    pub const NOT_SUPPORTED: Code = 801;

    /// After these every call returns the same until the process ends, says cuda.h of CUDA 13.0: an illegal
    /// address, a timeout, a failed assertion, and the other ways in which a kernel or its device dies.
    pub const FATAL: [Code; 13] = [
        226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911,
    ];
}

/// Why there is no CUDA device to use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library is not on this machine.
    #[error(
        "there is no CUDA driver: libcuda.so (nvcuda.dll on Windows), which comes with the NVIDIA \
         driver, was not found"
    )]
    NoDriver,
    /// What was found is what programs are linked with where there is no driver.
    #[error(
        "there is no CUDA driver: the libcuda.so that was found is the stub of a CUDA toolkit; the \
         one of the NVIDIA driver must come first in the library path"
    )]
    StubDriver,
    /// The library lacks a function.
    #[error("the CUDA driver is too old: it has no {symbol}, which all have since CUDA 11.0")]
    DriverTooOld {
        /// The function.
        symbol: &'static str,
    },
    /// The driver sees no device.
    #[error(
        "there is no CUDA device: the driver sees none (nvidia-smi lists those there are, and \
         CUDA_VISIBLE_DEVICES can hide them)"
    )]
    NoDevice,
    /// Fewer devices than that.
    #[error("there is no CUDA device {ordinal}: the driver sees {count}, the first of which is 0")]
    NoSuchDevice {
        /// The device asked for, from 0.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// Addresses and memory cannot be had apart.
    #[error("{device} has no virtual memory management{}", lacking(*symbol))]
    NoVirtualMemory {
        /// The device's name.
        device: String,
        /// The function that the driver lacks, if that is the reason.
        symbol: Option<&'static str>,
    },
    /// The driver refused.
    #[error(transparent)]
    Call(#[from] CallError),
}

fn lacking(symbol: Option<&'static str>) -> String {
    symbol.map_or_else(String::new, |symbol| {
        format!(": the CUDA driver is too old and has no {symbol}")
    })
}

/// A call that the driver refused, with all that it says about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// The `CUresult`, which may be one that nobody here has heard of.
    pub code: u32,
    /// What CUDA calls the code, if the driver knows it.
    pub name: Option<String>,
    /// What it means, if the driver knows it.
    pub text: Option<String>,
}

impl CallError {
    /// Whether the device is of no use to this process any more.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        code::FATAL.contains(&self.code)
    }
}

impl std::error::Error for CallError {}

/// As in "cuMemAlloc_v2: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access was encountered".
impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, .. } = self;
        match &self.name {
            Some(name) => write!(f, "{call}: {name} ({code})")?,
            None => write!(f, "{call}: error {code}, which the driver has no name for")?,
        }
        match &self.text {
            Some(text) => write!(f, ", {text}"),
            None => Ok(()),
        }
    }
}

/// What an allocator can tell apart; the rest is told in words.
impl From<CallError> for DriverError {
    fn from(error: CallError) -> Self {
        match error.code {
            code::OUT_OF_MEMORY => Self::OutOfMemory,
            code::INVALID_VALUE | code::INVALID_HANDLE => Self::InvalidValue,
            code::NOT_SUPPORTED => Self::NotSupported,
            _ => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_nobody_knows_is_told_as_a_number() {
        let error = CallError {
            call: "cuMemAlloc_v2",
            code: 9999,
            name: None,
            text: None,
        };
        let expected = "cuMemAlloc_v2: error 9999, which the driver has no name for";
        assert_eq!(
            DriverError::from(error),
            DriverError::Failed(expected.to_owned())
        );
    }
}
