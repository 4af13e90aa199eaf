//! Standard output of the verbs.

use std::io::{Write, stdout};

use anyhow::Context;

/// Prints text.
///
/// # Errors
/// If standard output cannot be written, as when its reader closed it.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints bytes.
///
/// # Errors
/// As [`print()`].
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let written = stdout().write_all(bytes);
    written.context("cannot write to standard output")
}
