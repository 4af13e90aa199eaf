//! Output of the verbs: text, files, notices and errors. Only this file knows `--quiet` and `--color`.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ColorChoice;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use coalesce_alloc::policy::settings::PolicySettingsError;
use coalesce_alloc::printable::{self, is_unprintable, printable};
use coalesce_alloc::settings::SettingsError;
use coalesce_bench::measure::progress::{be_quiet, is_quiet};
use coalesce_bench::measure::record::{self, Row};
use coalesce_bench::measure::results;
pub use coalesce_bench::measure::results::ensure_folder;
use coalesce_bench::text::lines;
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::formats::snapshot::release::unknown_key_hint;
use coalesce_workloads::formats::source::STANDARD_STREAM;
use coalesce_workloads::json;
use serde::Serialize;
use terminal_size::{Width, terminal_size};

use super::files::OutputFolder;
use super::inherited;
use super::styled::{BAD, Styled};

/// The flags of all verbs.
#[derive(clap::Args)]
pub struct Flags {
    /// Print only errors on standard error: no progress, no remarks.
    #[arg(short, long, global = true)]
    quiet: bool,
    /// When to use colours. By default on a terminal; the variables NO_COLOR and CLICOLOR_FORCE change that.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

impl Flags {
    /// Lets the flags hold from now on.
    #[expect(clippy::disallowed_methods, reason = "nothing is printed")]
    pub fn apply(&self) {
        use_color(self.color);
        if stdout().is_terminal()
            && let Some((Width(columns), _)) = terminal_size()
        {
            lines::fit(columns.into());
        }
        if self.quiet {
            be_quiet();
        }
    }
}

/// Lets `--color` among the arguments hold, also if others are invalid.
pub fn choose_color(arguments: impl Iterator<Item = OsString>) {
    let words = arguments
        .skip(1)
        .map(|one| one.to_string_lossy().into_owned());
    let mut flags = words.take_while(|one| one != "--");
    while let Some(argument) = flags.next() {
        let when = match argument.strip_prefix("--color=") {
            None if argument == "--color" => flags.next(),
            when => when.map(str::to_owned),
        };
        // The parser reports an invalid value.
        if let Some(Ok(when)) = when.map(|when| when.parse()) {
            use_color(when);
        }
    }
}

/// Sets the choice for all streams, also those of the parser of the arguments.
fn use_color(when: ColorChoice) {
    let choice = match when {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
}

/// Prints text with styles, without them where colours are not wanted.
///
/// # Errors
/// As [`print()`].
pub fn print_styled(text: &Styled) -> anyhow::Result<()> {
    ensure_stdout()?;
    let written = anstream::stdout().write_all(text.as_str().as_bytes());
    written.context(CANNOT_PRINT)
}

/// Prints a line about the work on standard error, unless it is to be quiet.
pub fn notice(text: &str) {
    if !is_quiet() {
        say(&Styled::plain(&format!("coalesce: {text}")));
    }
}

/// As [`notice`], below the line of progress that is shown.
pub fn notice_below(text: &str) {
    if !is_quiet() {
        say(&Styled::plain(&format!("\ncoalesce: {text}")));
    }
}

/// Prints a line on standard error, also if the program is to be quiet.
pub fn complain(line: &str) {
    say(&Styled::plain(line));
}

/// Prints a line on standard error. Nobody can be told if that fails.
fn say(line: &Styled) {
    let _ = writeln!(anstream::stderr(), "{}", line.as_str());
}

/// Whether the name of an output file is that of standard output.
pub fn is_stdout(path: &Path) -> bool {
    path == STANDARD_STREAM
}

/// Writes a file, or prints it if its name is `-`.
///
/// # Errors
/// As [`ensure_folder`], [`results::write`] and [`print()`].
pub fn write(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    if is_stdout(path) {
        return print_bytes(contents);
    }
    ensure_folder(path)?;
    results::write(path, contents)
}

/// Writes a table of results, or prints it if its name is `-`.
///
/// # Errors
/// As [`write()`].
pub fn write_table(path: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let mut csv = Vec::new();
    record::write(rows, &mut csv)?;
    write(path, &csv)
}

/// Says how many rows a table has that was written.
pub fn notice_table(path: &Path, rows: &[Row]) {
    notice(&format!("{} rows in {}", rows.len(), printable::path(path)));
}

/// Checks that [`write()`] can write a file.
///
/// # Errors
/// As [`ensure_folder`] and [`results::ensure_writable`].
pub fn ensure_writable(path: &Path) -> anyhow::Result<()> {
    if is_stdout(path) {
        return Ok(());
    }
    ensure_folder(path)?;
    results::ensure_writable(path)
}

/// Parses the name of an output folder, which cannot be standard output.
pub fn folder() -> impl TypedValueParser<Value = OutputFolder> {
    PathBufValueParser::new().try_map(|path| {
        if is_stdout(&path) {
            return Err("expected a folder, not standard output; a folder called '-' is './-'");
        }
        Ok(path.into_os_string().into())
    })
}

const CANNOT_PRINT: &str = "cannot write to standard output";

/// Checks that the program has a standard output. Rust's library pretends so if it has none.
///
/// # Errors
/// If it was closed when the program started.
pub fn ensure_stdout() -> anyhow::Result<()> {
    ensure!(
        !inherited::stdout_is_closed(),
        "{CANNOT_PRINT}: it is closed"
    );
    Ok(())
}

/// Prints text for people, or [JSON](json) that can be printed.
///
/// # Errors
/// If standard output cannot be written, as when its reader closed it.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(Styled::plain(text).as_str().as_bytes())
}

/// Prints bytes as they are: the contents of a file, or text without any from outside.
///
/// # Errors
/// As [`print()`].
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    ensure_stdout()?;
    #[expect(clippy::disallowed_methods, reason = "this is how text is printed")]
    let mut stdout = stdout().lock();
    // The last line may lack its end and would be kept in a buffer.
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.context(CANNOT_PRINT)
}

/// Prints a value as JSON.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    write_json(Path::new(STANDARD_STREAM), value)
}

/// Prints an answer as JSON or as text.
///
/// # Errors
/// As [`print()`].
pub fn print_answer(
    as_json: bool,
    answer: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if as_json {
        print_json(answer)
    } else {
        print(&text())
    }
}

/// Checks that at most one of two outputs goes to standard output.
///
/// # Errors
/// If both do; the error names their flags.
pub fn ensure_apart(
    (one, one_is_printed): (&str, bool),
    (other, other_is_printed): (&str, bool),
) -> anyhow::Result<()> {
    ensure!(
        !(one_is_printed && other_is_printed),
        "{one} and {other} both go to standard output"
    );
    Ok(())
}

/// Writes a value as JSON to a file, or prints it if its name is `-`.
///
/// # Errors
/// As [`write()`].
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    write(path, json::pretty(value)?.as_bytes())
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
    let name = Styled::default().and_styled(BAD.bold(), "coalesce:");
    say(&name.and(&format!(" {text}{}", hint(error))));
    status.into()
}

/// Prints an error of the arguments or the help, and returns the exit status. The parser of the arguments repeats them
/// unaltered, so its text is printed without styles if an argument contains control characters.
pub fn invalid_arguments(
    mut error: clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> ExitCode {
    let one_line = |text: &String| printable(text).to_string();
    let shown = |(kind, value): (ContextKind, &ContextValue)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(one_line(text)))),
        ContextValue::Strings(texts) => {
            let texts = texts.iter().map(one_line).collect();
            Some((kind, ContextValue::Strings(texts)))
        }
        _ => None,
    };
    let printable_context: Vec<_> = error.context().filter_map(shown).collect();
    for (kind, value) in printable_context {
        error.insert(kind, value);
    }
    let mut words = arguments.map(|one| one.to_string_lossy().into_owned());
    let is_printable = !words.any(|one| one.contains(is_unprintable));
    if !error.use_stderr() {
        let printed = if is_printable {
            ensure_stdout().and_then(|()| error.print().context(CANNOT_PRINT))
        } else {
            print(&error.render().to_string())
        };
        if let Err(error) = printed {
            return failed(&error, 1);
        }
    } else if is_printable {
        drop(error.print()); // Nobody can be told if that fails.
    } else {
        complain(error.render().to_string().trim_end());
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
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

    #[test]
    fn what_is_no_whole_assertion_stays() {
        for text in [
            "a INTERNAL ASSERT FAILED at \"/c10/x.h\":1",
            "please report a bug to PyTorch. b",
        ] {
            assert_eq!(without_assertion(text), text);
        }
        let bare =
            "x < 1 INTERNAL ASSERT FAILED at \"/c10/x.h\":1, please report a bug to PyTorch. why";
        assert_eq!(without_assertion(bare), "why");
        // The reason may repeat the words.
        let twice = format!("{bare}: {bare}");
        assert_eq!(without_assertion(&twice), format!("why: {bare}"));
    }
}
