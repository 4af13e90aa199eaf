//! What a policy can be told: `key:value,key:value`, as PyTorch's settings are written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::bytes;

/// The settings of a policy, not read yet.
#[derive(Debug)]
pub struct Knobs<'a> {
    given: BTreeMap<&'a str, &'a str>,
    known: Vec<&'static str>,
}

impl<'a> Knobs<'a> {
    /// Splits `conf` into keys and values. Nothing given is right, too.
    ///
    /// # Errors
    /// If a key has no value or stands twice.
    pub fn parse(conf: &'a str) -> Result<Self, KnobError> {
        let mut given = BTreeMap::new();
        for pair in conf
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let Some((key, value)) = pair.split_once(':') else {
                return Err(KnobError::NoValue(pair.to_owned()));
            };
            let (key, value) = (key.trim(), value.trim());
            if given.insert(key, value).is_some() {
                return Err(KnobError::Twice(key.to_owned()));
            }
        }
        Ok(Self {
            given,
            known: Vec::new(),
        })
    }

    /// The value of `key`, or `default` if it is not given.
    ///
    /// # Errors
    /// If what is given is none.
    pub fn take<T>(&mut self, key: &'static str, default: T) -> Result<T, KnobError>
    where
        T: FromStr<Err: Display>,
    {
        self.take_as(key, default, |text| {
            text.parse().map_err(|error: T::Err| error.to_string())
        })
    }

    /// The same for an amount of memory, `2MiB` or in bytes.
    ///
    /// # Errors
    /// If what is given is none.
    pub fn take_bytes(&mut self, key: &'static str, default: u64) -> Result<u64, KnobError> {
        self.take_as(key, default, |text| {
            bytes::parse(text).map_err(|error| error.to_string())
        })
    }

    /// The same for an amount that need not be given.
    ///
    /// # Errors
    /// If what is given is none.
    pub fn take_limit(&mut self, key: &'static str) -> Result<Option<u64>, KnobError> {
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
    ) -> Result<T, KnobError> {
        self.known.push(key);
        let Some(text) = self.given.remove(key) else {
            return Ok(default);
        };
        parse(text).map_err(|why| KnobError::NoSuchValue {
            key,
            text: text.to_owned(),
            why,
        })
    }

    /// Everything was taken.
    ///
    /// # Errors
    /// If a key was given that nobody took.
    pub fn finish(self) -> Result<(), KnobError> {
        match self.given.keys().next() {
            None => Ok(()),
            Some(&key) => Err(KnobError::Unknown {
                key: key.to_owned(),
                known: self.known,
            }),
        }
    }
}

/// What is wrong with the settings of a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KnobError {
    /// A key alone.
    #[error("'{0}' has no value: write key:value,key:value")]
    NoValue(String),
    /// A key twice.
    #[error("'{0}' is given twice")]
    Twice(String),
    /// A value that the key cannot have.
    #[error("{key}: '{text}' is wrong: {why}")]
    NoSuchValue {
        /// The key.
        key: &'static str,
        /// What was given.
        text: String,
        /// Why not.
        why: String,
    },
    /// A key that the policy does not have.
    #[error("unknown key '{key}': {}", has(.known))]
    Unknown {
        /// The key given.
        key: String,
        /// Those there are.
        known: Vec<&'static str>,
    },
}

fn has(known: &[&str]) -> String {
    match known {
        [] => "this policy has no settings".to_owned(),
        _ => format!("there is {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(conf: &str) -> Result<(bool, u64, Option<u64>), KnobError> {
        let mut knobs = Knobs::parse(conf)?;
        let read = (
            knobs.take("growth", true)?,
            knobs.take_bytes("chunk", 4096)?,
            knobs.take_limit("limit")?,
        );
        knobs.finish()?;
        Ok(read)
    }

    #[test]
    fn what_is_not_given_is_the_default() {
        assert_eq!(read(""), Ok((true, 4096, None)));
        assert_eq!(
            read(" growth: false , chunk:2MiB,limit:1g"),
            Ok((false, 2 << 20, Some(1 << 30)))
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (conf, said) in [
            ("growth", "has no value"),
            ("growth:true,growth:true", "twice"),
            ("growth:yes", "growth: 'yes' is wrong"),
            ("chunk:2MB", "units are binary"),
            ("grow:true", "there is growth, chunk, limit"),
        ] {
            let error = read(conf).unwrap_err().to_string();
            assert!(error.contains(said), "no '{said}' in: {error}");
        }
    }
}
