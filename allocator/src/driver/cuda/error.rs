//! Errors of CUDA.

use std::fmt;

use crate::driver::DriverError;

/// A `CUresult` as C returns it. 0 is success; a newer driver may return any number.
pub(super) type Code = u32;

/// The `CUresult` codes that this module handles (cuda.h of CUDA 13.0). All others are only reported.
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

    /// Errors that every later call returns until the process ends, according to cuda.h of CUDA 13.0: an
    /// illegal address, a timeout, a failed assertion, and other failures of a kernel or its device.
    pub const FATAL: [Code; 13] = [
        226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911,
    ];
}

/// The reason why no CUDA device can be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library was not found.
    #[error(
        "no CUDA driver: libcuda.so (nvcuda.dll on Windows) not found; it comes with the NVIDIA driver"
    )]
    NoDriver,
    /// The library found is the stub of a CUDA toolkit, meant for linking only.
    #[error(
        "no CUDA driver: the libcuda.so found is the stub of a CUDA toolkit; the library path must list \
         that of the NVIDIA driver first"
    )]
    StubDriver,
    /// The library lacks a function.
    #[error("the CUDA driver is too old: it lacks {symbol}; CUDA 11.0 or newer is required")]
    DriverTooOld {
        /// The function.
        symbol: &'static str,
    },
    /// The driver finds no device.
    #[error(
        "no CUDA device found: check nvidia-smi and CUDA_VISIBLE_DEVICES, which can hide devices"
    )]
    NoDevice,
    /// The number is too high.
    #[error("no CUDA device {ordinal}: the driver finds {count}, numbered from 0")]
    NoSuchDevice {
        /// The requested device, from 0.
        ordinal: u32,
        /// The number of devices.
        count: u32,
    },
    /// The device or the driver does not support virtual memory.
    #[error("{device} has no virtual memory management{}", lacking(*symbol))]
    NoVirtualMemory {
        /// The device's name.
        device: String,
        /// The function missing in the driver, if that is the reason.
        symbol: Option<&'static str>,
    },
    /// A driver call failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

fn lacking(symbol: Option<&'static str>) -> String {
    symbol.map_or_else(String::new, |symbol| {
        format!(": the CUDA driver is too old and lacks {symbol}")
    })
}

/// A failed driver call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallError {
    /// The function.
    pub call: &'static str,
    /// The `CUresult`, possibly unknown.
    pub code: u32,
    /// CUDA's name of the code, if the driver knows it.
    pub name: Option<String>,
    /// CUDA's description of the code, if the driver knows it.
    pub text: Option<String>,
}

impl CallError {
    /// Returns whether the device is unusable for the rest of the process.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        code::FATAL.contains(&self.code)
    }
}

impl std::error::Error for CallError {}

/// Formats as in "cuMemAlloc_v2: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal memory access was encountered".
impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, code, .. } = self;
        match &self.name {
            Some(name) => write!(f, "{call}: {name} ({code})")?,
            None => write!(f, "{call}: error {code}, unknown to the driver")?,
        }
        match &self.text {
            Some(text) => write!(f, ", {text}"),
            None => Ok(()),
        }
    }
}

/// Maps the codes that an allocator distinguishes; all others become text.
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
    fn an_unknown_code_is_reported_as_a_number() {
        let error = CallError {
            call: "cuMemAlloc_v2",
            code: 9999,
            name: None,
            text: None,
        };
        let expected = "cuMemAlloc_v2: error 9999, unknown to the driver";
        let found = DriverError::from(error);
        assert_eq!(found, DriverError::Failed(expected.to_owned()));
    }
}
