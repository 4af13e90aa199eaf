//! `coalesce policies`: the allocators that can be measured.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use coalesce_alloc::policy::POLICIES;

/// List the policies, the allocators that can be measured.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce policies")]
pub struct Args {}

pub fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let lines = POLICIES
        .iter()
        .map(|policy| format!("{:20} {}\n", policy.name, policy.summary));
    stdout()
        .write_all(lines.collect::<String>().as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
