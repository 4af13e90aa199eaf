//! The device to measure on, as named by the user.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use coalesce_alloc::driver::cuda::{CudaDevice, StreamHandles};

/// The environment variable that names the device for `cargo bench`.
pub const VARIABLE: &str = "COALESCE_DEVICE";

/// The name of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeviceName {
    /// The simulated device.
    #[default]
    Sim,
    /// The first GPU if there is one, else the simulated device.
    Auto,
    /// The GPU with this CUDA ordinal.
    Cuda(u32),
}

/// An opened device.
pub enum Device {
    /// The simulated device, with the reason if a GPU was looked for and not found.
    Sim(Option<String>),
    /// A GPU, with numbered streams.
    Cuda(Box<CudaDevice>),
}

/// The text does not name a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a device: expected sim, auto, or cuda:0 for the first GPU")]
pub struct InvalidDevice;

impl FromStr for DeviceName {
    type Err = InvalidDevice;

    fn from_str(text: &str) -> Result<Self, InvalidDevice> {
        match text {
            "sim" => Ok(Self::Sim),
            "auto" => Ok(Self::Auto),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").ok_or(InvalidDevice)?;
                number.parse().map(Self::Cuda).map_err(|_| InvalidDevice)
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
    /// The device named by [`VARIABLE`], or `default` if it is unset or empty.
    ///
    /// # Errors
    /// If it does not name a device.
    pub fn from_environment(default: Self) -> anyhow::Result<Self> {
        Self::named(&std::env::var(VARIABLE).unwrap_or_default(), default)
    }

    fn named(text: &str, default: Self) -> anyhow::Result<Self> {
        if text.is_empty() {
            return Ok(default);
        }
        text.parse().with_context(|| format!("{VARIABLE}={text}"))
    }

    /// Opens the device.
    ///
    /// # Errors
    /// If the numbered GPU or the driver does not exist.
    pub fn open(self) -> anyhow::Result<Device> {
        match self {
            Self::Sim => Ok(Device::Sim(None)),
            Self::Auto => Ok(match CudaDevice::open(0, StreamHandles::Numbered) {
                Ok(device) => Device::Cuda(Box::new(device)),
                Err(error) => Device::Sim(Some(error.to_string())),
            }),
            Self::Cuda(number) => {
                let device = CudaDevice::open(number, StreamHandles::Numbered).map(Box::new);
                device.map(Device::Cuda).with_context(|| self.to_string())
            }
        }
    }

    /// Opens the device, which must be a GPU.
    ///
    /// # Errors
    /// As [`DeviceName::open`], and if the device is the simulated one.
    pub fn open_gpu(self) -> anyhow::Result<CudaDevice> {
        match self.open()? {
            Device::Cuda(device) => Ok(*device),
            Device::Sim(Some(reason)) => anyhow::bail!("no GPU to measure on: {reason}"),
            Device::Sim(None) => anyhow::bail!(
                "no GPU to measure on: the costs of the simulated device come from a profile; use a GPU, such as \
                 cuda:0"
            ),
        }
    }
}

impl fmt::Display for Device {
    /// The name of the device and, if no GPU was found, the reason.
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
    fn names_are_parsed_and_displayed_alike() {
        for text in ["sim", "auto", "cuda:0", "cuda:7"] {
            let name: DeviceName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceName::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA:0", "0"] {
            assert_eq!(text.parse::<DeviceName>(), Err(InvalidDevice), "{text}");
        }
        let named = |text| DeviceName::named(text, DeviceName::Auto);
        assert_eq!(named("").unwrap(), DeviceName::Auto);
        assert_eq!(named("cuda:1").unwrap(), DeviceName::Cuda(1));
        let error = named("gpu").unwrap_err();
        assert_eq!(error.to_string(), "COALESCE_DEVICE=gpu");
    }

    #[test]
    fn the_simulated_device_is_no_gpu() {
        let device = DeviceName::Sim.open().unwrap();
        assert_eq!(device.to_string(), "the simulated device");
        let without = Device::Sim(Some("no driver".to_owned()));
        assert_eq!(without.to_string(), "the simulated device (no driver)");
        let error = DeviceName::Sim.open_gpu().map(|_| ()).unwrap_err();
        let words = "no GPU to measure on: the costs of the simulated device come from a profile; use a GPU, such as cuda:0";
        assert_eq!(error.to_string(), words);
    }
}
