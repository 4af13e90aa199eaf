//! `coalesce compare`: the differences between two tables of results.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use coalesce_bench::measure::record;
use coalesce_bench::report::compare::{Change, Comparison, Limits};

use super::output::print;

/// Compare two tables of results, and fail if the new one differs by more than allowed.
///
/// Rows are matched by workload, seed, policy, setting, capacity and address policy. Deterministic figures are
/// compared exactly, timings by rank (Mann-Whitney, p < 0.01). The exit status is 1 if a row is missing, a figure
/// changed by more than --allow, or a time is significantly longer than --allow-time permits.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce compare results/last.csv results/new.csv --allow 1%")]
pub struct Args {
    /// The old table.
    old: PathBuf,
    /// The new table.
    new: PathBuf,
    /// Allowed change of a figure, in either direction.
    #[arg(long, default_value = "0%", value_parser = percent)]
    allow: f64,
    /// Allowed increase of the time for a malloc and its free.
    #[arg(long, default_value = "5%", value_parser = percent)]
    allow_time: f64,
}

/// Maximum number of lines to print of each kind.
const SHOWN: usize = 40;

fn percent(text: &str) -> Result<f64, &'static str> {
    let number = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number
        .map(|number| number / 100.0)
        .ok_or("expected a percentage such as 5%")
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (old, new) = (record::read_file(&args.old)?, record::read_file(&args.new)?);
    let limits = Limits {
        exact: args.allow,
        time: args.allow_time,
    };
    let comparison = Comparison::of(&old, &new)?;
    print(&describe(&comparison, limits))?;
    Ok(if comparison.is_within(limits) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn describe(comparison: &Comparison, limits: Limits) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} rows in both, {} gone, {} new; {} figures changed; {} of {} times differ",
        comparison.common,
        comparison.lost.len(),
        comparison.added.len(),
        comparison.changes.len(),
        comparison.timings.len(),
        comparison.timed
    );
    list(
        &mut text,
        comparison.lost.iter().map(|key| format!("gone  {key}")),
    );
    list(
        &mut text,
        comparison.added.iter().map(|key| format!("new   {key}")),
    );
    let changes = comparison.changes.iter();
    list(
        &mut text,
        changes.map(|change| describe_change(change, limits)),
    );
    let timings = comparison.timings.iter().map(|timing| {
        let mark = if timing.is_within(limits.time) {
            "     "
        } else {
            "WORSE"
        };
        let ratio = timing.ratio;
        let (value, low, high) = (ratio.value, ratio.low, ratio.high);
        let p = timing.p;
        format!(
            "{mark} {}: time x {value:.3} ({low:.3} to {high:.3}, p = {p:.1e})",
            timing.key
        )
    });
    list(&mut text, timings);
    text
}

fn describe_change(change: &Change, limits: Limits) -> String {
    let mark = if change.is_within(limits.exact) {
        "     "
    } else {
        "OTHER"
    };
    let Change {
        key,
        column,
        old,
        new,
    } = change;
    let shown = |text: &String| {
        if text.is_empty() {
            "none".to_owned()
        } else {
            text.clone()
        }
    };
    let growth = change
        .growth()
        .map_or_else(String::new, |growth| format!(" ({:+.2} %)", 100.0 * growth));
    format!(
        "{mark} {key}: {column} {} -> {}{growth}",
        shown(old),
        shown(new)
    )
}

fn list(text: &mut String, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "... and {more} more");
    }
}
