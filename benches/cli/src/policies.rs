//! `coalesce policies`: lists the allocation policies.

use std::process::ExitCode;

use coalesce_alloc::policy::POLICIES;

use super::output::print;

/// List the allocation policies.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce policies")]
pub struct Args {}

pub fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let lines = POLICIES
        .iter()
        .map(|policy| format!("{:20} {}\n", policy.name, policy.summary));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
