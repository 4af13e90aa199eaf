//! The settings of a policy: `key:value,key:value`, the syntax of PyTorch's settings.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::bytes;
use crate::printable::printable;

/// The settings given for a policy. The policy takes each of its keys; a key left over is an error.
#[derive(Debug)]
pub struct PolicySettings<'a> {
    given: BTreeMap<&'a str, &'a str>,
    known: Vec<&'static str>,
}

impl<'a> PolicySettings<'a> {
    /// Reads `conf`, from which `take` takes every key that the policy has.
    ///
    /// # Errors
    /// If a key has no value, is given twice or is left over; and what `take` returns.
    pub fn read<T>(
        conf: &'a str,
        take: impl FnOnce(&mut Self) -> Result<T, PolicySettingsError>,
    ) -> Result<T, PolicySettingsError> {
        let mut settings = Self::parse(conf)?;
        let taken = take(&mut settings)?;
        match settings.given.keys().next() {
            None => Ok(taken),
            Some(&key) => Err(PolicySettingsError::UnknownKey {
                key: key.to_owned(),
                known: settings.known,
            }),
        }
    }

    fn parse(conf: &'a str) -> Result<Self, PolicySettingsError> {
        let mut given = BTreeMap::new();
        for pair in conf
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let Some((key, value)) = pair.split_once(':') else {
                return Err(PolicySettingsError::NoValue(pair.to_owned()));
            };
            let (key, value) = (key.trim(), value.trim());
            if given.insert(key, value).is_some() {
                return Err(PolicySettingsError::Duplicate(key.to_owned()));
            }
        }
        Ok(Self {
            given,
            known: Vec::new(),
        })
    }

    /// Takes the value of `key`, or `default` if it is not given.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn take<T>(&mut self, key: &'static str, default: T) -> Result<T, PolicySettingsError>
    where
        T: FromStr<Err: Display>,
    {
        self.take_as(key, default, |text| {
            text.parse().map_err(|error: T::Err| error.to_string())
        })
    }

    /// Takes an amount of memory in bytes, written as `2097152` or `2MiB`.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn take_bytes(
        &mut self,
        key: &'static str,
        default: u64,
    ) -> Result<u64, PolicySettingsError> {
        self.take_as(key, default, |text| {
            bytes::parse(text).map_err(|error| error.to_string())
        })
    }

    /// Takes an amount of memory that has no default.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn take_limit(&mut self, key: &'static str) -> Result<Option<u64>, PolicySettingsError> {
        self.take_as(key, None, |text| {
            bytes::parse(text)
                .map(Some)
                .map_err(|error| error.to_string())
        })
    }

    fn take_as<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, PolicySettingsError> {
        self.known.push(key);
        let Some(text) = self.given.remove(key) else {
            return Ok(default);
        };
        parse(text).map_err(|why| PolicySettingsError::invalid(key, text, why))
    }
}

/// Why a policy does not take a settings string.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicySettingsError {
    /// A key without a value.
    #[error("'{}' has no value; expected key:value,key:value", printable(.0))]
    NoValue(String),
    /// A key given twice.
    #[error("'{}' is given twice", printable(.0))]
    Duplicate(String),
    /// A value that the key does not take.
    #[error("{key}: invalid value '{}': {why}", printable(text))]
    InvalidValue {
        /// The key.
        key: &'static str,
        /// The value given.
        text: String,
        /// Why the key does not take it.
        why: String,
    },
    /// A key that the policy does not have.
    #[error("unknown key '{}'; {}", printable(key), expected(.known))]
    UnknownKey {
        /// The key given.
        key: String,
        /// The policy's keys.
        known: Vec<&'static str>,
    },
}

impl PolicySettingsError {
    /// `key` does not take the value `text`.
    pub(super) fn invalid(key: &'static str, text: impl Display, why: impl Into<String>) -> Self {
        Self::InvalidValue {
            key,
            text: text.to_string(),
            why: why.into(),
        }
    }
}

fn expected(known: &[&str]) -> String {
    match known {
        [] => "this policy has no settings".to_owned(),
        _ => format!("expected one of: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(conf: &str) -> Result<(bool, u64, Option<u64>), PolicySettingsError> {
        PolicySettings::read(conf, |settings| {
            Ok((
                settings.take("growth", true)?,
                settings.take_bytes("chunk", 4096)?,
                settings.take_limit("limit")?,
            ))
        })
    }

    #[test]
    fn settings_default_unless_given() {
        assert_eq!(read(""), Ok((true, 4096, None)));
        let found = read(" growth: false , chunk:2MiB,limit:1g");
        assert_eq!(found, Ok((false, 2 << 20, Some(1 << 30))));
    }
}
