//! The largest number with which a program fits.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// A number in the command, or in an environment variable. The range counts steps of the last decimal that it is given with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    pub name: String,
    pub first: u64,
    pub last: u64,
    /// Digits after the decimal point.
    decimals: usize,
}

/// Values in the command, or in an environment variable: each is a variant of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Values {
    pub name: String,
    pub values: Vec<String>,
}

/// What varies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vary {
    /// Of these numbers, the largest that fits is wanted.
    Range(Parameter),
    /// The answer for each is wanted.
    Each(Values),
}

/// A number as a program gets it, such as 64 or 0.92.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    steps: u64,
    decimals: usize,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:0width$}", self.steps, width = self.decimals + 1);
        let (whole, part) = digits.split_at(digits.len() - self.decimals);
        match part {
            "" => f.write_str(whole),
            part => write!(f, "{whole}.{part}"),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.decimals {
            0 => self.steps.serialize(serializer),
            decimals => (self.steps as f64 / 10_f64.powi(decimals as i32)).serialize(serializer),
        }
    }
}

impl JsonSchema for Number {
    fn schema_name() -> Cow<'static, str> {
        f64::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        f64::json_schema(generator)
    }

    fn inline_schema() -> bool {
        true
    }
}

/// What a run with a number showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried {
    pub fits: bool,
    /// The number that is likely to be the largest; none if the run does not say.
    pub promises: Option<u64>,
}

/// The largest number that was found.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Largest {
    /// The name of the parameter.
    pub name: String,
    /// The smallest number allowed.
    pub first: Number,
    /// The largest number allowed.
    pub last: Number,
    /// The largest with which the program fits; none if it does not fit with the first.
    pub value: Option<Number>,
}

impl Largest {
    /// What was found.
    pub fn sentence(&self) -> String {
        let Self {
            name, first, last, ..
        } = self;
        match self.value {
            Some(value) if value == *last => {
                format!("It fits with every {name} from {first} to {last}.")
            }
            Some(value) => format!("{value} is the largest {name} with which it fits."),
            None => format!("It does not fit with the smallest {name}, {first}."),
        }
    }
}

const EXPECTED: &str =
    "expected a range, such as BATCH=1..256 or UTIL=0.80..0.99, or values, such as TP=1,2,4";

/// Digits after the decimal point at most.
const MOST_DECIMALS: usize = 6;

/// The number of steps in a number without a sign or an exponent.
fn steps(text: &str, decimals: usize) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let digits = format!("{whole}{part:0<decimals$}");
    is_number.then(|| digits.parse().ok()).flatten()
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_part)
}

impl FromStr for Vary {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("..") {
            return text.parse().map(Self::Range);
        }
        let values = || {
            let (name, values) = text.split_once('=').filter(|(name, _)| is_name(name))?;
            let values: Vec<String> = values.split(',').map(str::to_owned).collect();
            let name = name.to_owned();
            (!values.contains(&String::new())).then_some(Self::Each(Values { name, values }))
        };
        values().ok_or_else(|| EXPECTED.to_owned())
    }
}

impl FromStr for Parameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = || {
            let (name, range) = text.split_once('=')?;
            let (first, last) = range.split_once("..")?;
            let decimals =
                [first, last].map(|text| text.split_once('.').map_or(0, |(_, part)| part.len()));
            let decimals = decimals
                .into_iter()
                .max()
                .filter(|&most| most <= MOST_DECIMALS)?;
            let (first, last) = (steps(first, decimals)?, steps(last, decimals)?);
            (is_name(name) && first <= last).then(|| Self {
                name: name.to_owned(),
                first,
                last,
                decimals,
            })
        };
        parsed().ok_or_else(|| EXPECTED.to_owned())
    }
}

impl Parameter {
    /// The largest number that `fits`, if any: the distance from the first is doubled until one does not fit, and the
    /// gap is halved after that. A run can know better what to try next. Assumes that larger numbers need more memory.
    pub fn largest<E>(
        &self,
        mut fits: impl FnMut(u64) -> Result<Tried, E>,
    ) -> Result<Option<u64>, E> {
        let (mut good, mut bad) = (None, None);
        let (mut next, mut step) = (self.first, 1_u64);
        loop {
            let Tried { fits, promises } = fits(next)?;
            *(if fits { &mut good } else { &mut bad }) = Some(next);
            let Some(good) = good else { return Ok(None) };
            let highest = bad.map_or(self.last, |bad: u64| bad - 1);
            if good >= highest || promises.is_some_and(|number| number <= good) {
                return Ok(Some(good));
            }
            next = match (promises, bad) {
                (Some(number), _) => number.min(highest),
                (None, Some(bad)) => good + (bad - good) / 2,
                (None, None) => good.saturating_add(step).min(highest),
            };
            step = step.saturating_mul(2);
        }
    }

    /// The number that the program gets.
    pub fn number(&self, steps: u64) -> Number {
        Number {
            steps,
            decimals: self.decimals,
        }
    }

    pub fn found(&self, value: Option<u64>) -> Largest {
        Largest {
            name: self.name.clone(),
            first: self.number(self.first),
            last: self.number(self.last),
            value: value.map(|steps| self.number(steps)),
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
                let fits = value <= limit;
                Ok::<_, ()>(Tried {
                    fits,
                    promises: None,
                })
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

    #[test]
    fn what_a_run_promises_is_tried_next() {
        let tried = |promises: fn(u64) -> u64, limit: u64| {
            let mut tried = Vec::new();
            let parameter: Parameter = "N=3..64".parse().unwrap();
            let found = parameter.largest(|value| {
                tried.push(value);
                Ok::<_, ()>(Tried {
                    fits: value <= limit,
                    promises: Some(promises(value)),
                })
            });
            (tried, found.unwrap())
        };
        assert_eq!(tried(|_| 20, 20), (vec![3, 20], Some(20)));
        assert_eq!(tried(|_| 99, 99), (vec![3, 64], Some(64)));
        // What is promised for a larger number is less.
        assert_eq!(
            tried(|value| 30 - value / 9, 27),
            (vec![3, 30, 27], Some(27))
        );
        assert_eq!(tried(|_| 20, 2), (vec![3], None));
    }

    #[test]
    fn a_range_of_decimals_has_the_steps_of_the_last_one() {
        let parameter: Parameter = "UTIL=0.8..0.99".parse().unwrap();
        let shown =
            [parameter.first, 85, parameter.last].map(|it| parameter.number(it).to_string());
        assert_eq!(shown, ["0.80", "0.85", "0.99"]);
        let parameter: Parameter = "N=1..64".parse().unwrap();
        assert_eq!(parameter.number(parameter.last).to_string(), "64");
        for text in [
            "N=1.5e1..20",
            "N=.5..1",
            "N=-1..2",
            "N=0.1234567..1",
            "N=2..1.5",
        ] {
            assert!(text.parse::<Parameter>().is_err(), "{text}");
        }
    }
}
