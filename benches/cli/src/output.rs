//! Standard output of the verbs, and their errors.

use std::io::{self, Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use coalesce_alloc::policy::settings::PolicySettingsError;
use coalesce_alloc::settings::SettingsError;
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::formats::snapshot::release::unknown_key_hint;
use serde::Serialize;

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

/// Prints a value as JSON.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Reports an error, and returns the exit status: success if the reader of the output closed it early, as `head`
/// does.
pub fn failed(error: &anyhow::Error, status: u8) -> ExitCode {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    if causes.any(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    let text = without_assertion(&format!("{error:#}"));
    eprintln!("coalesce: {text}{}", hint(error));
    status.into()
}

/// What the message of an error in settings lacks.
fn hint(error: &anyhow::Error) -> String {
    let hint = error.chain().find_map(|cause| {
        if let Some(SettingsError::UnknownKey { key, .. }) = cause.downcast_ref() {
            return unknown_key_hint(key);
        }
        if let Some(PolicySettingsError::UnknownKey { key, known }) = cause.downcast_ref() {
            let nearest = Unknown::new(key, known).nearest()?.to_owned();
            return Some(format!("did you mean '{nearest}'?"));
        }
        // PyTorch's message is the name of a C++ function.
        let is_number = ["stoi", "stoul", "stoull", "stod"].contains(&cause.to_string().as_str());
        is_number.then(|| "a value is not a number".to_owned())
    });
    hint.map_or_else(String::new, |hint| format!(" ({hint})"))
}

/// The text without the C++ assertion around the reason of an error of PyTorch. The assertion asks to report a bug
/// to PyTorch, but the settings are wrong.
fn without_assertion(text: &str) -> String {
    let assertion = text.split_once(" INTERNAL ASSERT FAILED at ");
    let Some((before, after)) = assertion else {
        return text.to_owned();
    };
    let Some((_, reason)) = after.split_once("please report a bug to PyTorch. ") else {
        return text.to_owned();
    };
    // The asserted expression follows the context.
    let context = before.rfind(": ").map_or("", |at| &before[..at + 2]);
    format!("{context}{reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assertions_are_reduced_to_their_reason() {
        let asserted = "replay: --conf 'a:': i < config_.size() INTERNAL ASSERT FAILED at \"/c10/x.h\":1, \
                        please report a bug to PyTorch. Index out of bounds";
        let reason = "replay: --conf 'a:': Index out of bounds";
        assert_eq!(without_assertion(asserted), reason);
        assert_eq!(without_assertion("no such file"), "no such file");
    }
}
