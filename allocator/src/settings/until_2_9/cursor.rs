//! Reads the tokens of a settings string one after another.

use std::iter::Peekable;
use std::vec;

use super::super::SettingsError;
use super::super::tokens::split;
use super::{malformed, out_of_range};

/// The tokens that are not yet read. Each of `, : [ ]` is a token; spaces are dropped, even inside a
/// word. Other white space is kept.
pub(super) struct Cursor(Peekable<vec::IntoIter<String>>);

impl Cursor {
    pub(super) fn new(conf: &str) -> Self {
        Self(split(conf, |c| c == ' ').into_iter().peekable())
    }

    pub(super) fn next(&mut self) -> Option<String> {
        self.0.next()
    }

    pub(super) fn peek(&mut self) -> Option<&str> {
        self.0.peek().map(String::as_str)
    }

    /// Skips a separator.
    pub(super) fn expect(&mut self, separator: &str) -> Result<(), SettingsError> {
        if self.next().as_deref() == Some(separator) {
            return Ok(());
        }
        Err(malformed(format!(
            "Error parsing CachingAllocator settings, expected {separator}"
        )))
    }

    /// The first token of the value.
    pub(super) fn value(&mut self, key: &str) -> Result<String, SettingsError> {
        self.expect(":")?;
        self.next()
            .ok_or_else(|| malformed(format!("Error, expecting {key} value")))
    }

    /// A boolean.
    pub(super) fn boolean(&mut self, key: &str) -> Result<bool, SettingsError> {
        boolean(&self.value(key)?, key)
    }

    /// A boolean. PyTorch reports a missing one like any other wrong value.
    pub(super) fn required_boolean(&mut self, key: &str) -> Result<bool, SettingsError> {
        self.expect(":")?;
        boolean(&self.next().unwrap_or_default(), key)
    }
}

fn boolean(text: &str, key: &str) -> Result<bool, SettingsError> {
    match text {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(out_of_range(format!(
            "Expected a single True/False argument for {key}"
        ))),
    }
}
