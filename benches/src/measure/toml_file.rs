//! Reading TOML: what is wrong, and in which line.

use anyhow::anyhow;
use serde::de::DeserializeOwned;

/// What a text means.
///
/// # Errors
/// If it is no TOML, or not of that form, in a line.
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
