//! The program `coalesce`: one verb a file.
//!
//! # Adding a verb
//!
//! 1. Write `NAME.rs` as in the example, with `Args` and `run`. The documentation of `Args` and of its fields
//!    is the verb's `--help`. Print with `output::print`: it removes control characters, and a closed pipe ends the program
//!    quietly. Report what happens with `output::notice`, which respects `--quiet`. Make a name from outside `printable`, so
//!    that it stays in its line. The type of an argument that names a file is one of `files`, so that the verb never
//!    replaces what it reads.
//! 2. Add a line to the list below, under the heading for its users: `mod hello; Hello`
//! 3. Show what it answers on a page of `tests/cmd`, which `tests/verbs/transcripts.rs` describes.
//!
//! `scripts/howto/check.py verb` checks these steps with this example:
//!
//! ```ignore
//! //! `coalesce hello`: greets.
//!
//! use std::process::ExitCode;
//!
//! use super::output::print;
//!
//! /// Greet somebody.
//! #[derive(clap::Args)]
//! #[command(after_help = "Example:\n  coalesce hello --name Ada")]
//! pub struct Args {
//!     /// Whom to greet.
//!     #[arg(long, default_value = "world")]
//!     name: String,
//! }
//!
//! pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
//!     print(&format!("Hello, {}!\n", args.name))?;
//!     Ok(ExitCode::SUCCESS)
//! }
//! ```
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod conditions;
mod files;
mod history;
mod inherited;
mod input;
mod markdown;
mod output;
mod pasted;
mod ranks;
mod recordings;
mod styled;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Replay, measure and explain the memory use of GPU caching allocators
#[derive(Parser)]
#[command(name = "coalesce", version, arg_required_else_help = true)]
struct Coalesce {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    output: output::Flags,
}

/// Declares the module of each verb, its subcommand, the call that runs it, and the headings of the help.
macro_rules! verbs {
    ($($heading:literal: $(mod $module:ident; $verb:ident)+)+) => {
        $($(mod $module;)+)+

        #[derive(Subcommand)]
        enum Verb {
            $($($verb($module::Args),)+)+
        }

        impl Verb {
            fn run(&self) -> anyhow::Result<ExitCode> {
                match self {
                    $($(Self::$verb(args) => $module::run(args),)+)+
                }
            }
        }

        /// The verbs below each heading of the help.
        const HEADINGS: &[(&str, &[&str])] = &[$(($heading, &[$(stringify!($module)),+])),+];
    };
}

verbs! {
    "For a training that ran out of memory, or may":
    mod advise; Advise
    mod diagnose; Diagnose
    mod diff; Diff
    mod fits; Fits
    mod verify; Verify
    mod convert; Convert

    "For an allocator's policy or settings":
    mod replay; Replay
    mod policies; Policies
    mod workloads; Workloads
    mod bench; Bench
    mod sweep; Sweep
    mod merge; Merge
    mod summary; Summary
    mod plot; Plot
    mod compare; Compare
    mod place; Place

    "For maintainers, shells and other programs":
    mod report; Report
    mod realism; Realism
    mod profile; Profile
    mod model; Model
    mod script; Script
    mod schema; Schema
    mod completions; Completions
    mod man; Man
}

/// The program's arguments, with the verbs under their headings in the help. The parser knows headings of flags only.
fn command() -> clap::Command {
    let command = Coalesce::command();
    let header = command.get_styles().get_header();
    let verb = command.get_styles().get_literal();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in HEADINGS {
        template += &format!("\n{header}{heading}:{header:#}\n");
        for name in *names {
            let of_verb = command.find_subcommand(name);
            let about = of_verb.and_then(clap::Command::get_about).cloned();
            template += &format!(
                "  {verb}{name:<11}{verb:#}  {}\n",
                about.unwrap_or_default()
            );
        }
    }
    template += &format!("\n{header}Options:{header:#}\n{{options}}");
    command.help_template(template)
}

/// The program that arguments ask for.
fn parsed(arguments: impl IntoIterator<Item = OsString>) -> Result<Coalesce, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(arguments)?;
    files::check(&mut command, &matches)?;
    Coalesce::from_arg_matches(&matches)
}

fn main() -> ExitCode {
    // A library that runs as a policy has a process of this program for itself.
    if let Some(status) = coalesce_plugin::serve_if_asked() {
        return status;
    }
    // Before the arguments are parsed, because their errors and the help have colours as well.
    output::choose_color(std::env::args_os());
    let program = match parsed(std::env::args_os()) {
        Ok(program) => program,
        Err(error) => return output::invalid_arguments(error, std::env::args_os()),
    };
    program.output.apply();
    let ended = program.verb.run();
    ended.unwrap_or_else(|error| output::failed(&error, 1))
}
