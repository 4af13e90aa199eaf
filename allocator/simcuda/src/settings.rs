//! The configuration of the simulated machine.

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::sim::variables::VariableError;

use crate::errors::{Code, Outcome};

/// The compute capability of an H100, and the first with thread block clusters.
pub(crate) const HOPPER: (i32, i32) = (9, 0);

/// The highest number of devices.
const MOST_DEVICES: u32 = 16;

/// Each device has 2^48 bytes of address space.
const SPAN_BITS: u32 = 48;

/// The machine, read from the environment. See the [crate] for the variables.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// The configuration of every device.
    pub(crate) device: SimConfig,
    pub(crate) device_count: u32,
    /// The name of every device; none for one that says its compute capability.
    pub(crate) name: Option<String>,
    /// Major and minor.
    pub(crate) compute_capability: (i32, i32),
    pub(crate) multiprocessors: i32,
    /// The CUDA version of the driver, in CUDA's numbering: 13000 is 13.0.
    pub(crate) driver_version: i32,
    pub(crate) pools: bool,
    /// Whether memory can be shared between machines.
    pub(crate) fabric: bool,
    /// Whether any two devices can access each other's memory.
    pub(crate) peers: bool,
    /// How kernels are loaded; none if libraries take no memory.
    pub(crate) loading: Option<Loading>,
    pub(crate) contents: bool,
    /// The value of a byte read from a device without contents.
    pub(crate) byte: u8,
    pub(crate) log: Option<String>,
    /// Functions that lookups by name do not find.
    pub(crate) missing: Vec<String>,
    pub(crate) failures: Vec<Failure>,
}

/// When the code of kernels is loaded into the device: `CUDA_MODULE_LOADING`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loading {
    /// At their first launch, which is the default.
    Lazy,
    /// All at once.
    Eager,
}

/// A function that fails from some call on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    name: String,
    code: Code,
    /// Calls that succeed first.
    calls_left: u64,
}

/// An invalid environment variable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Device(#[from] VariableError),
    #[error("{variable}: '{text}'; expected {expected}")]
    Text {
        variable: &'static str,
        text: String,
        expected: &'static str,
    },
}

impl Settings {
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let text = |name: &str| variable(name).filter(|text| !text.is_empty());
        let flag = |name| {
            let on = parsed(name, text(name), "0 or 1", |text| text.parse::<u64>().ok())?;
            Ok::<_, SettingsError>(on.is_some_and(|on| on != 0))
        };
        let list = |name| {
            let text = text(name).unwrap_or_default();
            let names = text
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut device = SimConfig::from_variables("FAKE", &variable)?;
        device.virtual_memory = !flag("FAKE_NO_VMM")?;
        let devices = "a number of devices from 0 to 16";
        let device_count = parsed(
            "FAKE_DEVICE_COUNT",
            text("FAKE_DEVICE_COUNT"),
            devices,
            |text| text.parse().ok().filter(|&count| count <= MOST_DEVICES),
        )?;
        let version = "a version, as in 12080";
        let driver_version = parsed(
            "FAKE_DRIVER_VERSION",
            text("FAKE_DRIVER_VERSION"),
            version,
            |text| text.parse().ok(),
        )?;
        let failure = |text: &String| {
            let expected = "NAME:CODE or NAME:CODE:N, as in cuMemCreate:999:3";
            parsed("FAKE_FAIL", Some(text.clone()), expected, Failure::parse)
        };
        let failures: Result<Vec<_>, _> = list("FAKE_FAIL").iter().map(failure).collect();
        let numbers = "a major and a minor number, as in 9.0";
        let capability = parsed("FAKE_CC", text("FAKE_CC"), numbers, |text| {
            let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
            Some((major.parse().ok()?, minor.parse().ok()?))
        })?;
        let compute_capability = capability.unwrap_or(HOPPER);
        let multiprocessors = parsed(
            "FAKE_MULTIPROCESSORS",
            text("FAKE_MULTIPROCESSORS"),
            "a number of multiprocessors above 0",
            |text| text.parse().ok().filter(|&count| count > 0),
        )?;
        let loading = match text("CUDA_MODULE_LOADING").as_deref() {
            Some("EAGER") => Loading::Eager,
            _ => Loading::Lazy,
        };
        Ok(Self {
            device,
            device_count: if flag("FAKE_NO_DEVICE")? {
                0
            } else {
                device_count.unwrap_or(1)
            },
            name: text("FAKE_NAME"),
            compute_capability,
            // Those of an H100 and of an A100.
            multiprocessors: multiprocessors.unwrap_or(if compute_capability >= HOPPER {
                132
            } else {
                108
            }),
            driver_version: driver_version.unwrap_or(13000),
            pools: !flag("FAKE_NO_POOLS")?,
            fabric: flag("FAKE_FABRIC")?,
            peers: flag("FAKE_PEERS")?,
            loading: flag("FAKE_LIBRARIES")?.then_some(loading),
            contents: flag("FAKE_MEMORY")?,
            byte: u8::from(flag("FAKE_BOOL")?),
            log: text("FAKE_LOG"),
            missing: list("FAKE_MISSING"),
            failures: failures?.into_iter().flatten().collect(),
        })
    }

    /// The configuration of one device, with its part of the address space.
    pub(crate) fn device(&self, ordinal: u32) -> SimConfig {
        let first = self.device.address_base;
        let base = first.unwrap_or(self.device.addresses.base());
        let own = base.saturating_add(u64::from(ordinal) << SPAN_BITS);
        SimConfig {
            address_base: if ordinal == 0 { first } else { Some(own) },
            ..self.device.clone()
        }
    }

    /// The ordinal of the device whose address space contains an address.
    pub(crate) fn ordinal_of(&self, addr: u64) -> u32 {
        let span = u32::try_from(addr >> SPAN_BITS).unwrap_or(0);
        if span < self.device_count { span } else { 0 }
    }
}

impl Failure {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let name = parts.next()?.to_owned();
        let code = Code(parts.next()?.parse().ok()?);
        let first: u64 = parts.next().map_or(Some(1), |first| first.parse().ok())?;
        let whole = parts.next().is_none() && !name.is_empty();
        whole.then_some(Self {
            name,
            code,
            calls_left: first.checked_sub(1)?,
        })
    }

    /// Fails if this names the called function and its successful calls are used up.
    pub(crate) fn check(&mut self, name: &str) -> Outcome {
        if self.name != name {
            return Ok(());
        }
        match self.calls_left.checked_sub(1) {
            Some(left) => {
                self.calls_left = left;
                Ok(())
            }
            None => Err(self.code),
        }
    }
}

fn parsed<T>(
    variable: &'static str,
    text: Option<String>,
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SettingsError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let value = parse(&text);
    value.map(Some).ok_or(SettingsError::Text {
        variable,
        text,
        expected,
    })
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::Driver as _;
    use coalesce_alloc::driver::sim::SimDevice;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_default_is_one_default_device() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.device_count, 1);
        assert_eq!(settings.device(0), SimConfig::default());
    }

    #[test]
    fn each_device_has_its_own_addresses() {
        for policy in ["up", "down", "firstfit", "cuda"] {
            let settings = read(&[("FAKE_DEVICE_COUNT", "3"), ("FAKE_ADDR", policy)]).unwrap();
            for ordinal in 1..3 {
                let base = settings.device(ordinal).address_base.unwrap();
                assert_eq!(settings.ordinal_of(base), ordinal);
                assert_eq!(settings.ordinal_of(base - (1 << 40)), ordinal);
                let mut sim = SimDevice::new(&settings.device(ordinal));
                let memory = sim.virtual_memory().unwrap();
                let reserved = memory.reserve(64 << 20).unwrap();
                assert_eq!(settings.ordinal_of(reserved.0), ordinal);
            }
        }
    }

    #[test]
    fn a_failure_starts_with_its_call_and_stays() {
        let mut settings = read(&[("FAKE_FAIL", "cuInit:100, cuMemAlloc_v2:9999:3")]).unwrap();
        let [init, alloc] = settings.failures.as_mut_slice() else {
            panic!("two failures");
        };
        assert_eq!(init.check("cuInit"), Err(Code(100)));
        assert_eq!(init.check("cuMemAlloc_v2"), Ok(()));
        let outcomes = [0; 4].map(|_| alloc.check("cuMemAlloc_v2"));
        assert_eq!(outcomes, [Ok(()), Ok(()), Err(Code(9999)), Err(Code(9999))]);
    }

    #[test]
    fn invalid_values_are_reported_with_the_expected_form() {
        for (variable, text, expected) in [
            ("FAKE_FAIL", "cuInit", "NAME:CODE"),
            ("FAKE_FAIL", "cuInit:1:0", "NAME:CODE"),
            ("FAKE_CC", "hopper", "9.0"),
            ("FAKE_NO_VMM", "yes", "0 or 1"),
            ("FAKE_ADDR", "sideways", "firstfit"),
        ] {
            let error = read(&[(variable, text)]).unwrap_err().to_string();
            for part in [variable, text, expected] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
