//! The settings in the environment variable `COALESCE_TORCH_ALLOC`.

use std::fmt::Write;

use coalesce_alloc::driver::Driver;
use coalesce_alloc::registry::{self, BuildError, POLICIES};
use coalesce_alloc::release::Release;
use coalesce_alloc::settings::{Settings, SettingsError};

/// The variable's name.
pub const VARIABLE: &str = "COALESCE_TORCH_ALLOC";

/// The parsed variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Conf {
    /// The release of PyTorch that the reference, the statistics and the snapshots follow.
    pub torch: Release,
    /// The policy.
    pub policy: Choice,
    /// Number of history entries to keep; `None` records no history.
    pub history: Option<usize>,
    /// Whether the reference takes the place of another policy that fails.
    pub falls_back: bool,
    /// The mode for programs that use memory wrongly.
    pub harden: Option<Harden>,
}

/// How programs are found that use memory wrongly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harden {
    /// Freed memory is poisoned and checked.
    Poison,
    /// Each block lies between unmapped addresses, where the policy `direct` places it.
    Guard,
}

/// A policy with valid settings.
#[derive(Clone, PartialEq, Debug)]
pub enum Choice {
    /// The reference.
    Reference(Box<Settings>),
    /// Another policy.
    Other {
        /// The name.
        name: String,
        /// The settings string.
        conf: String,
    },
}

impl Choice {
    /// Returns the name of the policy if it needs virtual memory, which a device may lack.
    pub fn unserved_by(&self, device: &mut impl Driver) -> Option<&'static str> {
        let Self::Other { name, .. } = self else {
            return None;
        };
        let info = POLICIES.iter().find(|info| info.name == name)?;
        let lacks = info.needs_virtual_memory() && device.virtual_memory().is_none();
        lacks.then_some(info.name)
    }
}

/// An invalid environment.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfError {
    /// A part that is not a pair.
    #[error("{VARIABLE}: '{0}' is not KEY=VALUE; {USAGE}")]
    NotAPair(String),
    /// An unknown key.
    #[error("{VARIABLE}: unknown key '{0}'; {USAGE}")]
    UnknownKey(String),
    /// A repeated key.
    #[error("{VARIABLE}: '{0}' is given twice")]
    Twice(String),
    /// The history length is not a number.
    #[error("{VARIABLE}: history={0} is not a number of entries, as in history=100000")]
    NoCount(String),
    /// The mode is unknown, or the policy does not serve it.
    #[error("{VARIABLE}: harden={0} {1}")]
    NoMode(String, &'static str),
    /// Neither on nor off.
    #[error("{VARIABLE}: fallback={0} is neither on nor off")]
    NoSwitch(String),
    /// The reference does not reproduce the release.
    #[error(
        "{VARIABLE}: torch={0} is not a release from {oldest} to {newest}, as in torch=2.13",
        oldest = Release::OLDEST,
        newest = Release::NEWEST
    )]
    NoRelease(String),
    /// An unknown or offline policy, or invalid settings.
    #[error("{VARIABLE}: {}", with_causes(.0))]
    Policy(#[from] BuildError),
    /// An invalid `PYTORCH_CUDA_ALLOC_CONF`.
    #[error("PYTORCH_CUDA_ALLOC_CONF: {0}")]
    PyTorch(#[from] SettingsError),
}

/// The expected form.
const USAGE: &str = "expected policy=NAME;conf=SETTINGS;history=ENTRIES;torch=RELEASE;fallback=on;harden=poison;\
    schedule=FILE, each part optional";

impl Conf {
    /// Reads the environment through `variable`:
    /// `policy=NAME;conf=SETTINGS;history=ENTRIES;torch=RELEASE;fallback=on;harden=MODE;schedule=FILE`,
    /// each part optional. The Python package follows the schedule.
    ///
    /// The default policy is `pytorch`. Without `conf` it reads its settings from the variables that
    /// PyTorch's own allocator reads, such as `PYTORCH_CUDA_ALLOC_CONF`. Without `torch` the release is the
    /// one `installed`, or the nearest that is reproduced.
    ///
    /// # Errors
    /// [`ConfError`] names the invalid part and the expected form.
    pub fn from_env(
        variable: impl Fn(&str) -> Option<String>,
        installed: Release,
    ) -> Result<Self, ConfError> {
        let text = variable(VARIABLE).unwrap_or_default();
        let (mut name, mut conf, mut history, mut torch) = (None, None, None, None);
        let (mut fallback, mut mode, mut schedule) = (None, None, None);
        for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
            let Some((key, value)) = part.split_once('=') else {
                return Err(ConfError::NotAPair(part.to_owned()));
            };
            let place = match key.trim() {
                "policy" => &mut name,
                "conf" => &mut conf,
                "history" => &mut history,
                "torch" => &mut torch,
                "fallback" => &mut fallback,
                "harden" => &mut mode,
                "schedule" => &mut schedule,
                other => return Err(ConfError::UnknownKey(other.to_owned())),
            };
            if place.replace(value.trim()).is_some() {
                return Err(ConfError::Twice(key.trim().to_owned()));
            }
        }
        let torch = torch.map_or(Ok(installed.reproduced()), release)?;
        let defaults = Settings::of_release(torch);
        let falls_back = fallback.map_or(Ok(false), is_on)?;
        let harden = mode
            .map(|mode| harden(mode, name, falls_back))
            .transpose()?;
        if harden == Some(Harden::Guard) {
            name = Some("direct");
        }
        Ok(Self {
            harden,
            torch,
            policy: match (name.unwrap_or("pytorch"), conf) {
                ("pytorch", None) => Choice::Reference(defaults.started_in(&variable)?.into()),
                ("pytorch", Some(conf)) => Choice::Reference(settings(defaults, conf)?.into()),
                (name, conf) => other(name, conf.unwrap_or_default())?,
            },
            history: history.map(entries).transpose()?,
            falls_back,
        })
    }

    /// Returns the reference's settings, the default ones for other policies.
    #[must_use]
    pub fn settings(&self) -> Settings {
        match &self.policy {
            Choice::Reference(settings) => (**settings).clone(),
            Choice::Other { .. } => Settings::of_release(self.torch),
        }
    }
}

/// The mode `harden` for a policy.
fn harden(mode: &str, policy: Option<&str>, falls_back: bool) -> Result<Harden, ConfError> {
    let info = POLICIES.iter().find(|info| Some(info.name) == policy);
    let why = match (mode, policy) {
        _ if falls_back => "knows one policy only; leave fallback out",
        ("poison", _) if info.is_some_and(|info| info.needs_virtual_memory()) => {
            "does not serve a policy that maps memory at several addresses; leave policy out"
        }
        ("poison", _) => return Ok(Harden::Poison),
        ("guard", None | Some("direct")) => return Ok(Harden::Guard),
        ("guard", _) => "places each block by itself, as policy=direct; leave policy out",
        _ => "is not a mode; expected poison or guard",
    };
    Err(ConfError::NoMode(mode.to_owned(), why))
}

fn settings(defaults: Settings, conf: &str) -> Result<Settings, ConfError> {
    let settings = defaults.started_with(conf);
    settings.map_err(|source| {
        let conf = conf.to_owned();
        ConfError::Policy(BuildError::PyTorch { conf, source })
    })
}

fn other(name: &str, conf: &str) -> Result<Choice, ConfError> {
    registry::check_conf(name, conf)?;
    let plans_ahead = |policy: &&registry::PolicyInfo| policy.name == name && policy.offline;
    if let Some(policy) = POLICIES.iter().find(plans_ahead) {
        let policy = policy.name;
        return Err(ConfError::Policy(BuildError::Offline { policy }));
    }
    let (name, conf) = (name.to_owned(), conf.to_owned());
    Ok(Choice::Other { name, conf })
}

fn release(text: &str) -> Result<Release, ConfError> {
    let release = text.parse().ok();
    let reproduced = release.filter(|release| Release::REPRODUCED.contains(release));
    reproduced.ok_or_else(|| ConfError::NoRelease(text.to_owned()))
}

fn entries(text: &str) -> Result<usize, ConfError> {
    text.parse()
        .map_err(|_| ConfError::NoCount(text.to_owned()))
}

fn is_on(text: &str) -> Result<bool, ConfError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(ConfError::NoSwitch(other.to_owned())),
    }
}

/// Formats an error with its causes on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::v2;

    use super::*;

    const INSTALLED: Release = v2(12);

    fn conf(text: &str) -> Result<Conf, String> {
        let environment = |name: &str| (name == VARIABLE).then(|| text.to_owned());
        Conf::from_env(environment, INSTALLED).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_is_the_reference_with_pytorchs_variable() {
        let expandable = "expandable_segments:True".to_owned();
        let variable = |name: &str| (name == "PYTORCH_CUDA_ALLOC_CONF").then(|| expandable.clone());
        let conf = Conf::from_env(variable, INSTALLED);
        let settings = Settings::of_release(INSTALLED)
            .started_with(&expandable)
            .unwrap();
        let expected = Conf {
            torch: INSTALLED,
            policy: Choice::Reference(settings.into()),
            history: None,
            falls_back: false,
            harden: None,
        };
        assert_eq!(conf, Ok(expected));
    }

    #[test]
    fn all_parts_are_parsed() {
        let asked = conf(" history=7 ;policy=bfc; conf=growth:false; torch=2.9.1; fallback=on;");
        let policy = Choice::Other {
            name: "bfc".to_owned(),
            conf: "growth:false".to_owned(),
        };
        let expected = Conf {
            torch: v2(9),
            policy,
            history: Some(7),
            falls_back: true,
            harden: None,
        };
        assert_eq!(asked.as_ref(), Ok(&expected));
        assert_eq!(asked.unwrap().settings(), Settings::of_release(v2(9)));
        let conf = conf("conf=max_split_size_mb:64,roundup_power2_divisions:[256:1,>:2]").unwrap();
        assert_eq!(conf.settings().to_owned(), {
            let text = "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:2]";
            let settings = Settings::of_release(INSTALLED).started_with(text);
            settings.unwrap()
        });
    }

    #[test]
    fn the_installed_release_decides_unless_another_is_named() {
        let torch = |text: &str, installed| {
            let variable = |name: &str| (name == VARIABLE).then(|| text.to_owned());
            Conf::from_env(variable, installed).map(|conf| (conf.torch, conf.settings().release()))
        };
        assert_eq!(torch("", v2(13)), Ok((v2(13), v2(13))));
        assert_eq!(torch("", v2(5)), Ok((v2(6), v2(6))));
        assert_eq!(torch("", v2(99)), Ok((v2(15), v2(15))));
        assert_eq!(torch("torch=2.8", v2(13)), Ok((v2(8), v2(8))));
        // A key and a variable that other releases lack.
        let key = "conf=throw_on_cudamalloc_oom:True";
        assert!(torch(key, v2(11)).is_err() && torch(key, v2(12)).is_ok());
        let generic =
            |name: &str| (name == "PYTORCH_ALLOC_CONF").then(|| "max_split_size_mb:64".to_owned());
        let limit = |installed| {
            Conf::from_env(generic, installed)
                .unwrap()
                .settings()
                .max_split_size()
        };
        assert_eq!((limit(v2(9)), limit(v2(10))), (None, Some(64 << 20)));
    }

    #[test]
    fn invalid_values_are_reported_with_the_expected_form() {
        for (text, words) in [
            ("pytorch", "'pytorch' is not KEY=VALUE"),
            ("polcy=bfc", "unknown key 'polcy'; expected policy=NAME"),
            ("policy=bfc;policy=bfc", "'policy' is given twice"),
            ("history=many", "history=many is not a number"),
            ("torch=two", "torch=two is not a release from 2.6 to 2.15"),
            ("torch=2.5", "torch=2.5 is not a release from 2.6 to 2.15"),
            (
                "policy=pytroch",
                "unknown policy 'pytroch'; expected one of: pytorch,",
            ),
            (
                "policy=offline",
                "offline is an offline policy: it must know the workload in advance",
            ),
            ("conf=expandable_segment:True", "expandable_segment"),
            ("policy=bfc;conf=what:1", "settings of bfc: "),
            ("harden=on", "harden=on is not a mode; expected poison or"),
            ("harden=poison;policy=quilt", "leave policy out"),
            ("harden=guard;policy=bfc", "as policy=direct"),
            ("harden=poison;fallback=on", "leave fallback out"),
        ] {
            let error = conf(text).unwrap_err();
            assert!(error.starts_with("COALESCE_TORCH_ALLOC: "), "{error}");
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
