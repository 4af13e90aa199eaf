//! The device that is measured on, as a person names it.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};

/// The variable by which `cargo bench` is told what to measure on.
pub const VARIABLE: &str = "COALESCE_DEVICE";

/// What calls are to be made to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceName {
    /// The simulated device.
    #[default]
    Sim,
    /// The first GPU, and the simulated device where there is none.
    Auto,
    /// The GPU of that number, as the CUDA driver counts them.
    Cuda(u32),
}

/// What was found.
pub enum Device {
    /// The simulated device; the reason, if a GPU was looked for.
    Sim(Option<String>),
    /// A GPU, with its streams by number.
    Cuda(Box<CudaDevice>),
}

/// A text that names no device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no device: write sim, auto, or cuda:0 for the first GPU")]
pub struct NoDevice;

impl FromStr for DeviceName {
    type Err = NoDevice;

    fn from_str(text: &str) -> Result<Self, NoDevice> {
        match text {
            "sim" => Ok(Self::Sim),
            "auto" => Ok(Self::Auto),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").ok_or(NoDevice)?;
                number.parse().map(Self::Cuda).map_err(|_| NoDevice)
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sim => write!(f, "sim"),
            Self::Auto => write!(f, "auto"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl DeviceName {
    /// What [`VARIABLE`] says, or `unsaid` if it is not set or empty.
    ///
    /// # Errors
    /// If it names no device.
    pub fn from_environment(unsaid: Self) -> anyhow::Result<Self> {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        match text.is_empty() {
            true => Ok(unsaid),
            false => text.parse().with_context(|| format!("{VARIABLE}={text}")),
        }
    }

    /// The device.
    ///
    /// # Errors
    /// If a GPU was asked for by number and there is none of that number, or no driver; in words.
    pub fn open(self) -> anyhow::Result<Device> {
        match self {
            Self::Sim => Ok(Device::Sim(None)),
            Self::Auto => Ok(match CudaDevice::open(0, StreamHandles::Numbered) {
                Ok(device) => Device::Cuda(Box::new(device)),
                Err(error) => Device::Sim(Some(error.to_string())),
            }),
            Self::Cuda(number) => {
                let device = CudaDevice::open(number, StreamHandles::Numbered);
                let device = device.map(Box::new);
                device.map(Device::Cuda).with_context(|| self.to_string())
            }
        }
    }

    /// [`DeviceName::open`] where only a GPU will do.
    ///
    /// # Errors
    /// As there, and if there is none or the simulated device was asked for.
    pub fn open_gpu(self) -> anyhow::Result<CudaDevice> {
        match self.open()? {
            Device::Cuda(device) => Ok(*device),
            Device::Sim(Some(reason)) => anyhow::bail!("no GPU to measure on: {reason}"),
            Device::Sim(None) => anyhow::bail!(
                "no GPU to measure on: on the simulated device calls cost what a profile says; name one, as \
                 cuda:0"
            ),
        }
    }
}

impl fmt::Display for Device {
    /// Which it is and, where a GPU was looked for and not found, why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sim(None) => write!(f, "the simulated device"),
            Self::Sim(Some(reason)) => write!(f, "the simulated device ({reason})"),
            Self::Cuda(device) => write!(f, "cuda:{}, {}", device.ordinal(), device.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_shown() {
        for text in ["sim", "auto", "cuda:0", "cuda:7"] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA:0", "0"] {
            assert_eq!(text.parse::<DeviceName>(), Err(NoDevice), "{text}");
        }
    }
}
