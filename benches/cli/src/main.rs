//! The program `coalesce`: one verb a file.
//!
//! # Adding a verb
//!
//! 1. Write `NAME.rs` as in the example, with `Args` and `run`. The documentation of `Args` and of its fields
//!    is the verb's `--help`. Print with `output::print`, which lets a closed pipe end the program quietly and takes
//!    control characters out, and say what happens with `output::notice`, which respects `--quiet`. A name from outside is
//!    `printable`, so that it stays in its line.
//! 2. Add a line to the list below: `mod hello; Hello`
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
mod history;
mod input;
mod markdown;
mod output;
mod styled;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Replay, measure and explain the memory use of GPU caching allocators
#[derive(Parser)]
#[command(name = "coalesce", version, arg_required_else_help = true)]
struct Coalesce {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    output: output::Flags,
}

/// Declares the module of each verb, its subcommand, and the call that runs it.
macro_rules! verbs {
    ($(mod $module:ident; $verb:ident)+) => {
        $(mod $module;)+

        #[derive(Subcommand)]
        enum Verb {
            $($verb($module::Args),)+
        }

        impl Verb {
            fn run(&self) -> anyhow::Result<ExitCode> {
                match self {
                    $(Self::$verb(args) => $module::run(args),)+
                }
            }
        }
    };
}

verbs! {
    mod advise; Advise
    mod bench; Bench
    mod compare; Compare
    mod completions; Completions
    mod convert; Convert
    mod diagnose; Diagnose
    mod diff; Diff
    mod fits; Fits
    mod man; Man
    mod merge; Merge
    mod model; Model
    mod place; Place
    mod plot; Plot
    mod policies; Policies
    mod profile; Profile
    mod realism; Realism
    mod replay; Replay
    mod report; Report
    mod schema; Schema
    mod script; Script
    mod summary; Summary
    mod sweep; Sweep
    mod verify; Verify
    mod workloads; Workloads
}

fn main() -> ExitCode {
    // A library that runs as a policy has a process of this program for itself.
    if let Some(status) = coalesce_plugin::serve_if_asked() {
        return status;
    }
    // Before the arguments are parsed, because their errors and the help have colours as well.
    output::choose_color(std::env::args_os());
    let program = match Coalesce::try_parse() {
        Ok(program) => program,
        Err(error) => return output::invalid_arguments(error, std::env::args_os()),
    };
    program.output.apply();
    let ended = program.verb.run();
    ended.unwrap_or_else(|error| output::failed(&error, 1))
}
