//! The program `coalesce`: one verb a file under `cmd/`.

mod cmd;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure and examine GPU caching allocators, on any machine.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Coalesce {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Replay(cmd::replay::Args),
    Report(cmd::report::Args),
    Script(cmd::script::Args),
}

fn main() -> ExitCode {
    let outcome = match Coalesce::parse().verb {
        Verb::Replay(args) => cmd::replay::run(&args),
        Verb::Report(args) => cmd::report::run(&args),
        Verb::Script(args) => cmd::script::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        eprintln!("coalesce: {error:#}");
        ExitCode::FAILURE
    })
}

/// Whether somebody, as `head` does, has seen enough of the output: no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
