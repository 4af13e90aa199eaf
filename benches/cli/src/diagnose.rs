//! `coalesce diagnose`: problems in a workload's memory use.

use std::process::ExitCode;

use coalesce_advisor::diagnose::steps::Steps;
use coalesce_advisor::diagnose::{self, Evidence};
use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::text::coverage::missing;

use super::conditions::ConditionFlags;
use super::history;
use super::output::print;

/// Find problems in a workload's memory use, and suggest remedies.
///
/// Replays the workload under its settings and looks for common mistakes and known pitfalls of PyTorch's
/// allocator. If a setting can help, tries it. Lists findings by the memory they cost, with the figures behind
/// them.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  coalesce diagnose workloads/traces/accum8_gpt2s_forgot_zero_grad.csv.gz"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or gzip-compressed; or the name of a preset.
    workload: String,
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let input = args.conditions.open(&args.workload)?;
    history::require_or_show(&input, &args.workload, args.json)?;
    let conditions = args.conditions.resolve(&input, REFERENCE)?;
    let evidence = Evidence::gather(conditions.subject(&input))?;
    let findings = diagnose::diagnose(&evidence);
    let missing = input.coverage.as_ref().map(missing).unwrap_or_default();
    let missing: String = missing.iter().map(|line| format!("{line}\n")).collect();
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings)? + "\n",
        false => {
            let steps = Steps::line(evidence.steps.as_ref()) + "\n";
            missing + &conditions.text() + &steps + &diagnose::text(&findings)
        }
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}
