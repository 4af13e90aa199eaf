//! Input of the verbs: standard input, files, presets and families.

use std::ffi::OsStr;
use std::io::{IsTerminal, stdin};
use std::path::Path;

use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::{Input, InputError, OfDevice};

use super::output::notice;

/// The file that an argument names, or standard input.
pub fn source(name: impl AsRef<Path>) -> Source {
    announce(name.as_ref());
    Source::named(name)
}

/// Opens the workload that an argument names.
pub fn open(name: &str, device: Option<u32>) -> Result<Input, InputError> {
    announce(name);
    Input::open(name, device)
}

/// Opens all devices of the workload that an argument names, with their numbers.
pub fn open_all(name: &str) -> Result<Vec<OfDevice>, InputError> {
    announce(name);
    Input::open_all(name)
}

/// Says that the program waits for a person, if the argument names standard input and that is a terminal.
pub fn announce(name: impl AsRef<OsStr>) {
    if Source::named(name.as_ref()) == Source::StandardInput && stdin().is_terminal() {
        let end = if cfg!(windows) { "Ctrl-Z" } else { "Ctrl-D" };
        notice(&format!(
            "reading standard input from the terminal; {end} ends it"
        ));
    }
}
