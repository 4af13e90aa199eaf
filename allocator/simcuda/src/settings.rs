//! How the simulated machine is configured.

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::sim::variables::VariableError;

use crate::errors::{Code, Outcome};

/// Devices there can be.
const MOST_DEVICES: u32 = 16;

/// Each device has its own 2^48 bytes of address space.
const SPAN_BITS: u32 = 48;

/// The machine, from the environment. See the [crate] for the variables.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settings {
    /// Every device's.
    pub(crate) device: SimConfig,
    pub(crate) device_count: u32,
    /// Major and minor.
    pub(crate) compute_capability: (i32, i32),
    /// The driver's CUDA version, as CUDA numbers them: 13000 is 13.0.
    pub(crate) driver_version: i32,
    pub(crate) pools: bool,
    /// Whether the driver says that devices can work on each other's memory.
    pub(crate) peers: bool,
    pub(crate) contents: bool,
    /// What a byte from the device reads as, without contents.
    pub(crate) byte: u8,
    pub(crate) log: Option<String>,
    /// Functions that are not found by name.
    pub(crate) missing: Vec<String>,
    pub(crate) failures: Vec<Failure>,
}

/// A function that does not work, from some call on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    name: String,
    code: Code,
    /// Calls that go well before.
    calls_left: u64,
}

/// Why the environment describes no machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(transparent)]
    Device(#[from] VariableError),
    #[error("{variable}: '{text}': write {right}")]
    Text {
        variable: &'static str,
        text: String,
        right: &'static str,
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
            let right = "NAME:CODE or NAME:CODE:N, as in cuMemCreate:999:3";
            parsed("FAKE_FAIL", Some(text.clone()), right, Failure::parse)
        };
        let failures: Result<Vec<_>, _> = list("FAKE_FAIL").iter().map(failure).collect();
        let numbers = "a major and a minor number, as in 9.0";
        let capability = parsed("FAKE_CC", text("FAKE_CC"), numbers, |text| {
            let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
            Some((major.parse().ok()?, minor.parse().ok()?))
        })?;
        Ok(Self {
            device,
            device_count: if flag("FAKE_NO_DEVICE")? {
                0
            } else {
                device_count.unwrap_or(1)
            },
            compute_capability: capability.unwrap_or((9, 0)),
            driver_version: driver_version.unwrap_or(13000),
            pools: !flag("FAKE_NO_POOLS")?,
            peers: flag("FAKE_PEERS")?,
            contents: flag("FAKE_MEMORY")?,
            byte: u8::from(flag("FAKE_BOOL")?),
            log: text("FAKE_LOG"),
            missing: list("FAKE_MISSING"),
            failures: failures?.into_iter().flatten().collect(),
        })
    }

    /// The device of an ordinal, with its own part of the address space.
    pub(crate) fn device(&self, ordinal: u32) -> SimConfig {
        let first = self.device.address_base;
        let base = first.unwrap_or(self.device.address_policy.base());
        let own = base.saturating_add(u64::from(ordinal) << SPAN_BITS);
        SimConfig {
            address_base: if ordinal == 0 { first } else { Some(own) },
            ..self.device.clone()
        }
    }

    /// The ordinal of the device that an address of the simulation belongs to.
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

    /// Fails if this is about the function called, and its turn has come.
    pub(crate) fn strike(&mut self, name: &str) -> Outcome {
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
    right: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SettingsError> {
    let Some(text) = text else {
        return Ok(None);
    };
    let value = parse(&text);
    value.map(Some).ok_or(SettingsError::Text {
        variable,
        text,
        right,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_one_device_as_the_simulated_one_is_by_default() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.device_count, 1);
        assert_eq!(settings.device(0), SimConfig::default());
    }

    #[test]
    fn devices_have_addresses_of_their_own() {
        for policy in ["up", "down", "firstfit"] {
            let settings = read(&[("FAKE_DEVICE_COUNT", "3"), ("FAKE_ADDR", policy)]).unwrap();
            for ordinal in 1..3 {
                let base = settings.device(ordinal).address_base.unwrap();
                assert_eq!(settings.ordinal_of(base), ordinal);
                assert_eq!(settings.ordinal_of(base - (1 << 40)), ordinal);
            }
        }
    }

    #[test]
    fn a_failure_comes_with_its_call_and_stays() {
        let mut settings = read(&[("FAKE_FAIL", "cuInit:100, cuMemAlloc_v2:9999:3")]).unwrap();
        let [init, alloc] = settings.failures.as_mut_slice() else {
            panic!("two failures");
        };
        assert_eq!(init.strike("cuInit"), Err(Code(100)));
        assert_eq!(init.strike("cuMemAlloc_v2"), Ok(()));
        let strikes = [0; 4].map(|_| alloc.strike("cuMemAlloc_v2"));
        assert_eq!(strikes, [Ok(()), Ok(()), Err(Code(9999)), Err(Code(9999))]);
    }

    #[test]
    fn what_has_no_meaning_is_named_with_what_would_have() {
        for (variable, text, right) in [
            ("FAKE_FAIL", "cuInit", "NAME:CODE"),
            ("FAKE_FAIL", "cuInit:1:0", "NAME:CODE"),
            ("FAKE_CC", "hopper", "9.0"),
            ("FAKE_NO_VMM", "yes", "0 or 1"),
            ("FAKE_ADDR", "sideways", "firstfit"),
        ] {
            let error = read(&[(variable, text)]).unwrap_err().to_string();
            for part in [variable, text, right] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}
