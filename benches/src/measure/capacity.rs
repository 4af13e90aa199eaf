//! The capacity of a device, absolute or relative to the workload.

use std::fmt;
use std::str::FromStr;

use coalesce_alloc::bytes;
use coalesce_alloc::driver::GRANULARITY;

/// Bytes of a roomy device, on which every workload fits.
pub const ROOMY: u64 = 1 << 40;
/// Bytes of a device of unknown capacity: 80 GiB.
pub const USUAL: u64 = 80 << 30;

/// The device memory for a workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Capacity {
    /// Bytes, independent of the workload.
    Bytes(u64),
    /// Percent of the peak requested.
    OfDemand(u64),
    /// The minimum device memory of the workload, plus some percent of it.
    Least {
        /// Percent; 0 for the minimum itself.
        more: u64,
    },
}

impl Capacity {
    /// Whether it depends on the workload, so that results show whether and at what cost the workload fits.
    #[must_use]
    pub fn is_tight(self) -> bool {
        !matches!(self, Self::Bytes(_))
    }
}

/// Some percent of `bytes`, rounded up to whole pages of the device.
#[must_use]
pub fn share(bytes: u64, percent: u64) -> u64 {
    let share = u128::from(bytes) * u128::from(percent) / 100;
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    share.checked_next_multiple_of(GRANULARITY).unwrap_or(share)
}

impl fmt::Display for Capacity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Bytes(bytes) => {
                let units = [
                    (1 << 40, "TiB"),
                    (1 << 30, "GiB"),
                    (1 << 20, "MiB"),
                    (1, "B"),
                ];
                let whole = |(scale, _): &(u64, &str)| bytes > 0 && bytes.is_multiple_of(*scale);
                let (scale, unit) = units.into_iter().find(whole).unwrap_or((1, ""));
                write!(out, "{}{unit}", bytes / scale)
            }
            Self::OfDemand(percent) => write!(out, "{percent}%"),
            Self::Least { more: 0 } => write!(out, "least"),
            Self::Least { more } => write!(out, "least+{more}%"),
        }
    }
}

/// The text is not a capacity.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a capacity: expected 80GiB, 110% (of the peak requested), least or least+25%")]
pub struct InvalidCapacity;

impl FromStr for Capacity {
    type Err = InvalidCapacity;

    fn from_str(text: &str) -> Result<Self, InvalidCapacity> {
        let percent = |text: &str| {
            let number = text.strip_suffix('%')?.parse::<u64>().ok()?;
            (number <= 1_000_000).then_some(number)
        };
        if let Some(more) = text.strip_prefix("least") {
            let more = if more.is_empty() {
                0
            } else {
                more.strip_prefix('+')
                    .and_then(percent)
                    .ok_or(InvalidCapacity)?
            };
            return Ok(Self::Least { more });
        }
        if text.ends_with('%') {
            return percent(text).map(Self::OfDemand).ok_or(InvalidCapacity);
        }
        bytes::parse_memory(text)
            .map(Self::Bytes)
            .map_err(|_| InvalidCapacity)
    }
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;

    #[test]
    fn capacities_are_parsed_and_displayed_alike() {
        cases::check("src/measure/cases/capacities.txt", |text| {
            let Ok(capacity) = text.parse::<Capacity>() else {
                return "invalid".to_owned();
            };
            assert_eq!(capacity.to_string(), text);
            format!("{capacity:?}")
        });
        assert_eq!("".parse::<Capacity>(), Err(InvalidCapacity));
    }

    #[test]
    fn only_what_depends_on_the_workload_is_tight() {
        let tight = [
            Capacity::Bytes(1),
            Capacity::OfDemand(1),
            Capacity::Least { more: 0 },
        ];
        assert_eq!(tight.map(Capacity::is_tight), [false, true, true]);
    }

    #[test]
    fn shares_are_whole_pages() {
        for (bytes, percent, expected) in [
            (100 << 20, 110, 110 << 20),
            (100 << 20, 101, 102 << 20),
            (1, 100, 2 << 20),
            (0, 100, 0),
            (u64::MAX, 1000, u64::MAX),
        ] {
            assert_eq!(share(bytes, percent), expected);
        }
    }
}
