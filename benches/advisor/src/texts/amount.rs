//! Amounts of memory as texts state them.

use std::ops::{Add, Sub};

/// An amount that a text states. It is rounded there, so that only bounds of it are known, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Amount {
    /// What it states.
    pub stated: u64,
    /// At least so much.
    pub least: u64,
    /// At most so much.
    pub most: u64,
}

/// Units in lower case, with their bytes. Programs that write `GB` for GPU memory mean 2³⁰ bytes, as
/// `nvidia-smi` and PyTorch do.
const UNITS: [(&str, u64); 11] = [
    ("bytes", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("byte", 1),
    ("b", 1),
];

impl Amount {
    /// An exact amount.
    pub fn exactly(bytes: u64) -> Self {
        Self {
            stated: bytes,
            least: bytes,
            most: bytes,
        }
    }

    /// A number of units. With decimals, it is rounded to the nearest, as by PyTorch's `format_size`; without, it may be
    /// rounded down, as in `memory_summary()`.
    pub fn of(number: &str, unit: u64) -> Option<Self> {
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = decimals.len() <= 6;
        if whole.is_empty() || !is_number(whole) || !is_number(decimals) || !is_short {
            return None;
        }
        let parts = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
        let digits: u128 = format!("{whole}{decimals}").parse().ok()?;
        // An amount that no machine has is kept as the largest number.
        let scaled = digits.saturating_mul(u128::from(unit));
        let bytes = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let (below, above) = match (unit, decimals) {
            (1, _) => (0, 0),
            (_, "") => (0, u128::from(unit) - 1),
            _ => {
                let half = u128::from(unit) / parts / 2;
                (half, half)
            }
        };
        Some(Self {
            stated: bytes(scaled / parts),
            least: bytes((scaled / parts).saturating_sub(below)),
            most: bytes((scaled / parts).saturating_add(above)),
        })
    }

    /// Reads the amount with which a text starts, such as `35.60gib`. The text is in lower case, without spaces.
    pub fn at_start(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(digits);
        let unit = UNITS.iter().find(|(name, _)| rest.starts_with(name))?;
        Self::of(number, unit.1)
    }

    /// Reads the amount with which a text ends. The text is in lower case, without spaces.
    pub fn at_end(text: &str) -> Option<Self> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|&(name, bytes)| Some((text.strip_suffix(name)?, bytes)))?;
        let digits = number
            .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
            .len();
        // The end of the sentence before belongs to no number.
        Self::of(number.get(digits..)?.trim_start_matches('.'), unit)
    }

    /// Whether it is more than another, however both were rounded.
    pub fn exceeds(self, other: Self) -> bool {
        self.least > other.most
    }

    /// Whether it is no more than another, however both were rounded.
    pub fn fits_into(self, other: Self) -> bool {
        self.most <= other.least
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            stated: self.stated.saturating_add(other.stated),
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

/// What is left of an amount; 0 if nothing is.
impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            stated: self.stated.saturating_sub(other.stated),
            least: self.least.saturating_sub(other.most),
            most: self.most.saturating_sub(other.least),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_known_up_to_their_rounding() {
        let gib = 1_u64 << 30;
        let amount = Amount::at_start("35.60gib.gpu0has").unwrap();
        assert_eq!(amount.stated, gib * 356 / 10);
        assert_eq!(amount.most - amount.least, gib / 100 / 2 * 2);
        let found = Amount::at_end("ofwhich607.00kib");
        assert_eq!(found, Amount::at_start("607.00kib"));
        let found = Amount::at_end("inuse.19.53gib");
        assert_eq!(found, Amount::at_start("19.53gib"));
        assert_eq!(Amount::at_start("0bytesis"), Some(Amount::exactly(0)));
        assert_eq!(Amount::at_end("has12mib").unwrap().most, (13 << 20) - 1);
        let most = Amount::at_start("17179869184.00gib").unwrap();
        assert_eq!(most.most, u64::MAX);
        for text in ["gib", "1.2.3gib", "12", "1e9gib", ".5gib", "-1gib"] {
            assert_eq!(Amount::at_start(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_rounded_proves_nothing_about_what_is_near() {
        let of = |text| Amount::at_start(text).unwrap();
        assert!(of("1.96gib").exceeds(of("1.94gib")) && !of("1.96gib").exceeds(of("1.96gib")));
        assert!(!of("1.96gib").fits_into(of("1.96gib")) && of("1.94gib").fits_into(of("1.96gib")));
        let left = of("2.00gib") - of("1.00gib");
        assert!(left.least < 1 << 30 && left.most > 1 << 30);
        assert_eq!((of("1.00gib") - of("3.00gib")).most, 0);
    }
}
