//! `coalesce man`: manual pages.

use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use super::Coalesce;
use super::files::OutputFolder;
use super::output::folder;
use coalesce_alloc::printable;

/// Write the manual pages: coalesce.1, and one for each command.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce man ~/.local/share/man/man1\n  man coalesce-advise")]
pub struct Args {
    /// The folder to write them to. It is created if it does not exist.
    #[arg(value_parser = folder())]
    folder: OutputFolder,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = &args.folder;
    let write = || {
        fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Coalesce::command(), folder)
    };
    write().with_context(|| format!("cannot write to {}", printable::path(folder)))?;
    Ok(ExitCode::SUCCESS)
}
