//! Parses TOML, with line numbers in errors.

use anyhow::anyhow;
use serde::de::DeserializeOwned;

/// Parses a text.
///
/// # Errors
/// If the text is not TOML or has another structure, with the line number.
pub fn parse<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    toml::from_str(text).map_err(|error| {
        let what = error.message().lines().collect::<Vec<_>>().join(" ");
        match error.span() {
            Some(span) => {
                let before = text.get(..span.start).unwrap_or(text);
                let line = 1 + before.matches('\n').count();
                anyhow!("line {line}: {what}")
            }
            None => anyhow!("{what}"),
        }
    })
}
