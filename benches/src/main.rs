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
    Advise(cmd::advise::Args),
    Bench(cmd::bench::Args),
    Compare(cmd::compare::Args),
    Convert(cmd::convert::Args),
    Diagnose(cmd::diagnose::Args),
    Merge(cmd::merge::Args),
    Model(cmd::model::Args),
    Place(cmd::place::Args),
    Plot(cmd::plot::Args),
    Policies(cmd::policies::Args),
    Profile(cmd::profile::Args),
    Realism(cmd::realism::Args),
    Replay(cmd::replay::Args),
    Report(cmd::report::Args),
    Script(cmd::script::Args),
    Summary(cmd::summary::Args),
    Sweep(cmd::sweep::Args),
    Verify(cmd::verify::Args),
    Workloads(cmd::workloads::Args),
}

fn main() -> ExitCode {
    let outcome = match Coalesce::parse().verb {
        Verb::Advise(args) => cmd::advise::run(&args),
        Verb::Bench(args) => cmd::bench::run(&args),
        Verb::Compare(args) => cmd::compare::run(&args),
        Verb::Convert(args) => cmd::convert::run(&args),
        Verb::Diagnose(args) => cmd::diagnose::run(&args),
        Verb::Merge(args) => cmd::merge::run(&args),
        Verb::Model(args) => cmd::model::run(&args),
        Verb::Place(args) => cmd::place::run(&args),
        Verb::Plot(args) => cmd::plot::run(&args),
        Verb::Policies(args) => cmd::policies::run(&args),
        Verb::Profile(args) => cmd::profile::run(&args),
        Verb::Realism(args) => cmd::realism::run(&args),
        Verb::Replay(args) => cmd::replay::run(&args),
        Verb::Report(args) => cmd::report::run(&args),
        Verb::Script(args) => cmd::script::run(&args),
        Verb::Summary(args) => cmd::summary::run(&args),
        Verb::Sweep(args) => cmd::sweep::run(&args),
        Verb::Verify(args) => cmd::verify::run(&args),
        Verb::Workloads(args) => cmd::workloads::run(&args),
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
