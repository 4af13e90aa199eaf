//! The largest number with which a program fits.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

/// A number in the command, or in an environment variable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    pub name: String,
    pub first: u64,
    pub last: u64,
}

/// The largest number that was found.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Largest {
    /// The name of the parameter.
    pub name: String,
    /// The smallest number allowed.
    pub first: u64,
    /// The largest number allowed.
    pub last: u64,
    /// The largest with which the program fits; none if it does not fit with the first.
    pub value: Option<u64>,
}

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let (name, range) = text.split_once('=')?;
            let (first, last) = range.split_once("..")?;
            let (first, last) = (first.parse().ok()?, last.parse().ok()?);
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            (!name.is_empty() && name.chars().all(is_name) && first <= last).then(|| Self {
                name: name.to_owned(),
                first,
                last,
            })
        };
        parsed().ok_or_else(|| "expected NAME=FIRST..LAST, such as BATCH=1..256".to_owned())
    }
}

impl Parameter {
    /// The largest number that `fits`, if any: the distance from the first is doubled until one does not fit, and the
    /// gap is halved after that. Assumes that larger numbers need more memory.
    pub fn largest<E>(
        &self,
        mut fits: impl FnMut(u64) -> Result<bool, E>,
    ) -> Result<Option<u64>, E> {
        if !fits(self.first)? {
            return Ok(None);
        }
        let (mut good, mut step) = (self.first, 1);
        let mut bad = loop {
            if good == self.last {
                return Ok(Some(good));
            }
            let next = good.saturating_add(step).min(self.last);
            if !fits(next)? {
                break next;
            }
            (good, step) = (next, step.saturating_mul(2));
        };
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if fits(middle)? {
                good = middle;
            } else {
                bad = middle;
            }
        }
        Ok(Some(good))
    }

    pub fn found(&self, value: Option<u64>) -> Largest {
        Largest {
            name: self.name.clone(),
            first: self.first,
            last: self.last,
            value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_doubled_and_the_gap_is_halved() {
        let tried = |text: &str, limit: u64| {
            let mut tried = Vec::new();
            let parameter: Parameter = text.parse().unwrap();
            let found = parameter.largest(|value| {
                tried.push(value);
                Ok::<_, ()>(value <= limit)
            });
            assert_eq!(found, Ok((limit >= parameter.first).then_some(limit)));
            tried
        };
        assert_eq!(tried("N=3..64", 20), [3, 4, 6, 10, 18, 34, 26, 22, 20, 21]);
        assert_eq!(tried("N=3..64", 64), [3, 4, 6, 10, 18, 34, 64]);
        assert_eq!(
            tried("N=3..64", 63),
            [3, 4, 6, 10, 18, 34, 64, 49, 56, 60, 62, 63]
        );
        assert_eq!(tried("N=3..64", 3), [3, 4]);
        assert_eq!(tried("N=3..64", 2), [3]);
        assert_eq!(tried("N=3..3", 3), [3]);
        assert_eq!(tried("N=0..18446744073709551615", u64::MAX).len(), 65);
        let any: Parameter = "N=5..9".parse().unwrap();
        assert_eq!(any.largest(|_| Err("stop")), Err("stop"));
    }
}
