//! `coalesce completions`: completions for shells.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Coalesce;
use super::output::print_bytes;

/// Print a script that lets a shell complete commands and options.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  coalesce completions bash > ~/.local/share/bash-completion/completions/coalesce\n  coalesce completions zsh > ~/.zfunc/_coalesce\n  coalesce completions fish > ~/.config/fish/completions/coalesce.fish"
)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut Coalesce::command(),
        "coalesce",
        &mut script,
    );
    print_bytes(&script)?;
    Ok(ExitCode::SUCCESS)
}
