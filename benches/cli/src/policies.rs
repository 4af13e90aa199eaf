//! `coalesce policies`: lists the allocation policies.

use std::process::ExitCode;

use coalesce_alloc::registry::POLICIES;
use schemars::JsonSchema;
use serde::Serialize;

use super::output::{print, print_json};

/// List the allocation policies.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce policies")]
pub struct Args {
    /// Print a JSON array, which `coalesce schema policies` describes.
    #[arg(long)]
    json: bool,
}

/// A policy.
#[derive(JsonSchema, Serialize)]
pub struct ListedPolicy {
    /// Its name on the command line and in results.
    name: &'static str,
    /// What it is, in a line.
    summary: &'static str,
    /// Whether it must know the workload in advance.
    offline: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.json {
        let policies = POLICIES.iter().map(|policy| ListedPolicy {
            name: policy.name,
            summary: policy.summary,
            offline: policy.offline,
        });
        print_json(&policies.collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = POLICIES
        .iter()
        .map(|policy| format!("{:20} {}\n", policy.name, policy.summary));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
