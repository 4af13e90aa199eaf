//! The tokens of a settings string, as PyTorch splits it.
//!
//! Separators are tokens, but the parsers from 2.10 on do not check them: they skip one token, whatever
//! it is (`max_split_size_mb,200` is accepted).

use super::SettingsError;
use super::numbers::{is_space, stod, stoull};

/// Splits a settings string. Each of `, : [ ]` is a token; the characters to drop do not end a word.
pub(super) fn split(conf: &str, is_dropped: impl Fn(char) -> bool) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let finish = |word: &mut String, tokens: &mut Vec<String>| {
        if !word.is_empty() {
            tokens.push(std::mem::take(word));
        }
    };
    for c in conf.chars() {
        match c {
            ',' | ':' | '[' | ']' => {
                finish(&mut word, &mut tokens);
                tokens.push(c.to_string());
            }
            _ if is_dropped(c) => {}
            _ => word.push(c),
        }
    }
    finish(&mut word, &mut tokens);
    tokens
}

/// A tokenised settings string. Each of `, : [ ]` is a token; white space is dropped, even inside a
/// word.
#[derive(Debug)]
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    pub(super) fn new(conf: &str) -> Self {
        Self(split(conf, is_space))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, index: usize) -> Result<&str, SettingsError> {
        self.token(index, "AllocatorConfig.h\":124")
    }

    /// Like [`Self::get`], for which PyTorch asserts at another line.
    pub(super) fn at(&self, index: usize) -> Result<&str, SettingsError> {
        self.token(index, "AllocatorConfig.h\":55")
    }

    fn token(&self, index: usize, place: &'static str) -> Result<&str, SettingsError> {
        self.0
            .get(index)
            .map(String::as_str)
            .ok_or(SettingsError::EndsEarly {
                length: "config_.size()",
                place,
                reason: "Index out of bounds in ConfigTokenizer",
            })
    }

    /// Skips a separator, which may be any token.
    pub(super) fn separator(&self, index: usize) -> Result<(), SettingsError> {
        self.get(index).map(|_| ())
    }

    pub(super) fn unsigned(&self, index: usize) -> Result<u64, SettingsError> {
        stoull(self.get(index)?).ok_or(SettingsError::NotANumber { function: "stoull" })
    }

    pub(super) fn double(&self, index: usize) -> Result<f64, SettingsError> {
        stod(self.get(index)?).ok_or(SettingsError::NotANumber { function: "stod" })
    }

    pub(super) fn boolean(&self, index: usize) -> Result<bool, SettingsError> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(SettingsError::NotABoolean {
                index,
                token: other.to_owned(),
            }),
        }
    }

    /// The index of the last token of the value for the key at `index`.
    pub(super) fn skip_value(&self, index: usize) -> Result<usize, SettingsError> {
        let value = index + 2;
        if self.get(value)? != "[" {
            return Ok(value);
        }
        (value + 1..self.len())
            .find(|&i| self.0[i] == "]")
            .ok_or(list_not_closed("config_.size()", "AllocatorConfig.h\":115"))
    }
}

/// PyTorch asserts both where it skips a list and where it reads one.
pub(super) fn list_not_closed(length: &'static str, place: &'static str) -> SettingsError {
    SettingsError::EndsEarly {
        length,
        place,
        reason: "Expected closing bracket ']' in ConfigTokenizer but reached end of config",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_vanishes_even_inside_a_word() {
        assert_eq!(Tokens::new(" a b:\t1 0 [,").0, ["ab", ":", "10", "[", ","]);
    }
}
