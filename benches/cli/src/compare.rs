//! `coalesce compare`: the differences between two tables of results.

use std::mem;
use std::process::ExitCode;

use anstyle::Style;
use coalesce_alloc::printable::printable;
use coalesce_bench::measure::record;
use coalesce_bench::report::compare::columns::{Allowed, share};
use coalesce_bench::report::compare::{Change, Comparison, Effect, Limits, Timing};

use super::files::InputPath;
use super::input::source;
use super::output::{failed, print_json, print_styled};
use super::styled::{BAD, GOOD, Styled};

/// Compare two tables of results, and fail if the new one is worse.
///
/// Rows are matched by workload, seed, policy, setting, capacity, address policy and release. Deterministic figures
/// are compared exactly, timings by rank (Mann-Whitney, p < 0.01). Most figures have a better direction: less memory,
/// fewer failures, fewer driver calls, higher efficiency. Figures that say what was run (settings, events, memory of
/// the device) have none, and a change of them fails in both directions. If more or fewer requests of a row fail, or
/// its minimum device memory or largest batch changed, only that figure is judged, because the others describe
/// another run.
///
/// Words in capitals mark the differences that make the comparison fail.
#[derive(clap::Args)]
#[command(
    after_help = "Exit status:\n  0  nothing is worse by more than --allow and --allow-time permit\n  1  a figure is worse, \
                  what was run changed, a row is missing, or a time is significantly longer\n  2  a table cannot be \
                  read, the tables have no common row, or an argument is invalid\n\n\
                  Examples:\n  coalesce compare results/last.csv results/new.csv --allow 1% --allow retries=2\n  \
                  coalesce compare recorded.csv fresh.csv --exact"
)]
pub struct Args {
    /// The old table; `-` for standard input.
    old: InputPath,
    /// The new table; `-` for standard input.
    new: InputPath,
    /// Allowed change: 1% of every figure, or of a column: peak_reserved_bytes=1%, retries=2. Can be repeated.
    #[arg(long, value_name = "[COLUMN=]CHANGE", value_parser = allowed)]
    allow: Vec<Allowed>,
    /// Allowed increase of the time for a malloc and its free.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    allow_time: f64,
    /// Fail for every difference but times: also for improvements and new rows.
    #[arg(long, conflicts_with = "allow")]
    exact: bool,
    /// Show only the differences that make the comparison fail.
    #[arg(long)]
    only_worse: bool,
    /// Print a JSON object, which `coalesce schema compare` describes.
    #[arg(long)]
    json: bool,
}

/// Maximum number of lines to print of each kind.
const SHOWN: usize = 40;

fn allowed(text: &str) -> Result<Allowed, String> {
    text.parse()
        .map_err(|error: anyhow::Error| format!("{error:#}"))
}

fn percent(text: &str) -> Result<f64, String> {
    share(text).map_err(|error| error.to_string())
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let limits = Limits {
        allowed: args.allow.clone(),
        time: args.allow_time,
        is_exact: args.exact,
    };
    let comparison = match compared(args, &limits) {
        Ok(comparison) => comparison,
        Err(error) => return Ok(failed(&error, 2)),
    };
    let fails = comparison.fails;
    let counts = Styled::plain(&counts(&comparison));
    let shown = if args.only_worse {
        comparison.only_failing(&limits)
    } else {
        comparison
    };
    if args.json {
        print_json(&shown)?;
    } else {
        print_styled(&differences(counts, &shown, &limits))?;
    }
    Ok(u8::from(fails).into())
}

fn compared(args: &Args, limits: &Limits) -> anyhow::Result<Comparison> {
    let read = |path| record::read_file(source(path));
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    Comparison::of(&old, &new, limits)
}

fn counts(comparison: &Comparison) -> String {
    let count = |effect| {
        let changes = comparison.changes.iter();
        changes.filter(|change| change.effect == effect).count()
    };
    let changed = comparison.changes.len();
    let effects = [
        (count(Effect::Worse), "worse"),
        (count(Effect::Better), "better"),
        (count(Effect::Other), "other"),
        (count(Effect::Unjudged), "not judged"),
    ];
    let found = effects.into_iter().filter(|(count, _)| *count > 0);
    let counted: Vec<_> = found
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let in_brackets = match counted.as_slice() {
        [] => String::new(),
        counted => format!(" ({})", counted.join(", ")),
    };
    format!(
        "{} rows in both, {} gone, {} new; {changed} figures changed{in_brackets}; {} of {} times differ\n",
        comparison.common,
        comparison.lost.len(),
        comparison.added.len(),
        comparison.timings.len(),
        comparison.timed
    )
}

/// Appends the differences to the text. Those that make the comparison fail come first.
fn differences(mut text: Styled, comparison: &Comparison, limits: &Limits) -> Styled {
    let lost = comparison
        .lost
        .iter()
        .map(|row| (true, "gone", row.to_string()));
    list(&mut text, lost);
    let added = comparison.added.iter();
    list(
        &mut text,
        added.map(|row| (limits.is_exact, "new", row.to_string())),
    );
    let changes = comparison.changes.iter();
    let judged = changes.filter(|change| change.fails || change.effect != Effect::Unjudged);
    list(&mut text, judged.map(described));
    list(&mut text, comparison.timings.iter().map(described_timing));
    text
}

fn described(change: &Change) -> (bool, &'static str, String) {
    let word = match change.effect {
        Effect::Better => "better",
        Effect::Worse => "worse",
        Effect::Other | Effect::Unjudged => "other",
    };
    let shown = |text: &str| match text {
        "" => "none".to_owned(),
        text => printable(text).to_string(),
    };
    let growth = change
        .growth
        .map_or_else(String::new, |growth| format!(" ({:+.2} %)", 100.0 * growth));
    let Change {
        row,
        column,
        old,
        new,
        ..
    } = change;
    let (old, new) = (shown(old), shown(new));
    let text = format!("{row}: {column} {old} -> {new}{growth}");
    (change.fails, word, text)
}

fn described_timing(timing: &Timing) -> (bool, &'static str, String) {
    let Timing {
        row,
        ratio,
        low,
        high,
        p,
        fails,
    } = timing;
    let word = if *ratio > 1.0 { "worse" } else { "better" };
    let text = format!("{row}: time x {ratio:.3} ({low:.3} to {high:.3}, p = {p:.1e})");
    (*fails, word, text)
}

/// Adds a line for each difference: whether it fails, a word for it, and its description.
fn list(text: &mut Styled, lines: impl Iterator<Item = (bool, &'static str, String)>) {
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_key(|(fails, ..)| !fails);
    for (fails, word, line) in lines.iter().take(SHOWN) {
        let style = match *word {
            "worse" | "gone" => BAD,
            "better" => GOOD,
            _ => Style::new(),
        };
        let word = if *fails {
            word.to_uppercase()
        } else {
            (*word).to_owned()
        };
        let line = format!("{word:<6} {line}");
        *text = mem::take(text).and_styled(style, &line).and("\n");
    }
    if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        *text = mem::take(text).and(&format!("... and {more} more\n"));
    }
}
