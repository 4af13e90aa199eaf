//! Input of the verbs: standard input, files, presets and families.

use std::convert::Infallible;
use std::io::{IsTerminal, stdin};
use std::path::Path;

use coalesce_workloads::formats::source::Source;
use coalesce_workloads::input::{Input, InputError, OfDevice};

use super::output::notice;

/// The workload that an argument names, as a parser for the command line.
pub fn workload(name: &str) -> Result<Source, Infallible> {
    Ok(Source::named(name))
}

/// The file that an argument names, or standard input.
pub fn source(name: impl AsRef<Path>) -> Source {
    let source = Source::named(name);
    announce(&source);
    source
}

/// Opens a workload.
pub fn open(source: &Source, device: Option<u32>) -> Result<Input, InputError> {
    announce(source);
    Input::open(source, device)
}

/// Opens all devices of a workload, with their numbers.
pub fn open_all(source: &Source) -> Result<Vec<OfDevice>, InputError> {
    announce(source);
    Input::open_all(source)
}

/// Says that the program waits for a person, if it reads standard input and that is a terminal.
pub fn announce(source: &Source) {
    if *source == Source::StandardInput && stdin().is_terminal() {
        let end = if cfg!(windows) { "Ctrl-Z" } else { "Ctrl-D" };
        notice(&format!(
            "reading standard input from the terminal; {end} ends it"
        ));
    }
}
