//! Releases of PyTorch.
//!
//! The reference makes the decisions of the release that its [`Settings`](crate::settings::Settings)
//! name. What changed between releases is listed in `pytorch/rules.rs` and
//! `settings/rules.rs`.

use std::fmt;
use std::str::FromStr;

/// A release of PyTorch without its patch level: 2.11.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Release {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Release {
    /// The releases that the reference reproduces, oldest first. Of each, the last patch level is meant.
    pub const REPRODUCED: [Self; 10] = [
        v2(6),
        v2(7),
        v2(8),
        v2(9),
        v2(10),
        v2(11),
        v2(12),
        v2(13),
        v2(14),
        v2(15),
    ];

    /// The oldest release that the reference reproduces.
    pub const OLDEST: Self = Self::REPRODUCED[0];

    /// The newest release that the reference reproduces.
    pub const NEWEST: Self = Self::REPRODUCED[Self::REPRODUCED.len() - 1];

    /// The newest, for workloads that no release recorded.
    pub const DEFAULT: Self = Self::NEWEST;

    /// The release after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        let Self { major, minor } = self;
        Self {
            major,
            minor: minor.saturating_add(1),
        }
    }

    /// The release that the reference reproduces in place of this one: itself, or the nearest.
    #[must_use]
    pub fn reproduced(self) -> Self {
        self.clamp(Self::OLDEST, Self::NEWEST)
    }
}

/// 2.`minor`.
#[must_use]
pub const fn v2(minor: u16) -> Release {
    Release { major: 2, minor }
}

/// What is in force in a release: the last of the `later` entries, oldest first, that began by then, or
/// the `oldest`.
pub(crate) fn in_force<T: Copy>(oldest: T, later: &[(Release, T)], release: Release) -> T {
    let began = later.iter().rev().find(|&&(since, _)| since <= release);
    began.map_or(oldest, |&(_, entry)| entry)
}

/// Whether a release writes this key of a report. `added` lists the keys that a release after the oldest
/// added, with the first release that writes them.
pub(crate) fn is_written(added: &[(&str, Release)], key: &str, release: Release) -> bool {
    let entry = added.iter().find(|&&(name, _)| name == key);
    entry.is_none_or(|&(_, since)| since <= release)
}

impl Default for Release {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The text is not a release.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a release of PyTorch; expected for example 2.8")]
pub struct ParseReleaseError;

impl FromStr for Release {
    type Err = ParseReleaseError;

    /// Parses `2.8`, `2.8.1`, `v2.8.0+cu128`.
    fn from_str(text: &str) -> Result<Self, ParseReleaseError> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.splitn(3, '.');
        let mut number = || parts.next()?.parse().ok();
        let release = number().zip(number());
        let (major, minor) = release.ok_or(ParseReleaseError)?;
        let is_patch = |patch: &str| patch.starts_with(|c: char| c.is_ascii_digit());
        match parts.next() {
            Some(patch) if !is_patch(patch) => Err(ParseReleaseError),
            _ => Ok(Self { major, minor }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_written_as_people_write_them() {
        for text in [
            "2.11",
            "2.11.0",
            "v2.11.0+cu130",
            "2.11.0+cpu",
            " 2.11.0a0+git1 ",
        ] {
            assert_eq!(text.parse(), Ok(v2(11)), "{text}");
        }
        for text in ["", "2", "2.x", "11", "2.11.x", "2.11.x1"] {
            assert_eq!(text.parse::<Release>(), Err(ParseReleaseError), "{text}");
        }
    }

    #[test]
    fn other_releases_are_reproduced_by_the_nearest() {
        let reproduced = |text: &str| text.parse::<Release>().unwrap().reproduced();
        assert_eq!(reproduced("2.13"), v2(13));
        assert_eq!(reproduced("1.13"), v2(6));
        assert_eq!(reproduced("3.0"), v2(15));
    }
}
