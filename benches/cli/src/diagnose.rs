//! `coalesce diagnose`: problems in a workload's memory use.

use std::process::ExitCode;

use coalesce_advisor::Finding;
use coalesce_advisor::diagnose::steps::Steps;
use coalesce_advisor::diagnose::{self, Evidence};
use coalesce_bench::measure::cell::REFERENCE;
use coalesce_bench::text::coverage::missing;
use coalesce_bench::text::lines::wrapped;
use coalesce_workloads::catalog::Unknown;
use coalesce_workloads::formats::source::Source;

use super::conditions::ConditionFlags;
use super::history;
use super::input;
use super::output::{failed, print_answer};

/// Find problems in a workload's memory use, and suggest remedies.
///
/// Replays the workload under its settings and looks for common mistakes and known pitfalls of PyTorch's
/// allocator. If a setting can help, tries it. Lists findings by the memory they cost, with the figures behind
/// them.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status with --fail-on:\n  0  no such finding\n  1  a finding of one of the rules\n  2  the workload \
                  cannot be diagnosed, or an argument is invalid\n\n\
                  Examples:\n  coalesce diagnose workloads/traces/accum8_gpt2s_forgot_zero_grad.csv.gz\n  \
                  coalesce diagnose snapshot.pickle --fail-on gradients --fail-on growth"
)]
pub struct Args {
    /// A PyTorch memory snapshot, a trace (see workloads/traces/README.md), an RMM log or a MiniMalloc instance,
    /// plain or compressed with gzip, xz, zstd or zip; the name of a preset; or `-` for standard input.
    #[arg(value_parser = input::workload)]
    workload: Source,
    #[command(flatten)]
    conditions: ConditionFlags,
    /// Exit with status 1 if this rule has a finding; `any` for all rules. Can be repeated, or a list with commas.
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = rule)]
    fail_on: Vec<String>,
    /// Print a JSON array, which `coalesce schema diagnose` describes.
    #[arg(long)]
    json: bool,
}

/// The name for all rules.
const ANY: &str = "any";

fn rule(name: &str) -> Result<String, String> {
    let known = || diagnose::rules().chain([ANY]);
    if known().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    Err(format!("no rule {}", Unknown::new(name, known())))
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let findings = match findings(args) {
        Err(error) if !args.fail_on.is_empty() => return Ok(failed(&error, 2)),
        findings => findings?,
    };
    let is_named = |finding: &Finding| {
        let mut rules = args.fail_on.iter();
        rules.any(|rule| rule == ANY || rule == finding.rule)
    };
    Ok(u8::from(findings.iter().any(is_named)).into())
}

/// Prints the findings and returns them.
fn findings(args: &Args) -> anyhow::Result<Vec<Finding>> {
    let input = args.conditions.open(&args.workload)?;
    history::require_or_show(&input, args.json)?;
    let conditions = args.conditions.resolve(&input, REFERENCE)?;
    let evidence = Evidence::gather(conditions.subject(&input))?;
    let findings = diagnose::diagnose(&evidence);
    let sentences = input.coverage.as_ref().map(missing).unwrap_or_default();
    let lacking: String = sentences.iter().map(|line| format!("{line}\n")).collect();
    print_answer(args.json, &findings, || {
        let steps = Steps::line(evidence.steps.as_ref()) + "\n";
        wrapped(&(lacking + &conditions.text() + &steps + &diagnose::text(&findings)))
    })?;
    Ok(findings)
}
