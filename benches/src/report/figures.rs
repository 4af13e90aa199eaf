//! Figures in the prose of Markdown files, between marks.
//!
//! `<!-- = policies.csv pytorch/expand efficiency -->97.0 %<!-- = -->`: a table of results, a column of `coalesce summary`, and
//! what to say of it. A program after these limits the figure to that program.
//!
//! `<!-- = waste.csv quilt worst pools -->75.4 %<!-- = -->`: `mean`, `worst` or `programs` of a set of recorded programs
//! (`of_set`).

use anyhow::{Context, bail};

use super::pareto::is_offline;
use super::summary::{Spread, select, summarize};
use super::table::Layout;
use super::waste::of_set;
use crate::measure::record::Row;
use crate::measure::statistics::median;
use crate::text::percent;

const BEGIN: &str = "<!-- = ";
const END: &str = "<!-- = -->";

/// Whether a text has a figure.
#[must_use]
pub fn has_any(text: &str) -> bool {
    text.contains(END)
}

/// The text with all figures made anew. `read` reads a table of results.
///
/// # Errors
/// If a mark is incomplete or names no figure, or as `read`.
pub fn splice(
    text: &str,
    mut read: impl FnMut(&str) -> anyhow::Result<Vec<Row>>,
) -> anyhow::Result<String> {
    let mut parts = text.split(BEGIN);
    let mut spliced = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        let (mark, _) = part.split_once(" -->").context("a mark without an end")?;
        let rest = parts
            .next()
            .and_then(|rest| rest.strip_prefix("-->"))
            .with_context(|| format!("the figure '{mark}' has no '{END}' after it"))?;
        let (table, words) = mark.split_once(' ').unwrap_or((mark, ""));
        let words: Vec<&str> = words.split_whitespace().collect();
        let figure = figure(&read(table)?, &words).with_context(|| format!("figure '{mark}'"))?;
        spliced += &format!("{BEGIN}{mark} -->{figure}{END}{rest}");
    }
    Ok(spliced)
}

/// The figure of some rows that some words name: a column, what to say of it, and maybe a program.
fn figure(rows: &[Row], words: &[&str]) -> anyhow::Result<String> {
    let (column, name, program) = match *words {
        [way, name @ ("mean" | "worst" | "programs"), set] => {
            return of_set(rows, way, name, set).context("the table has no such set or policy");
        }
        [column, name] => (column, name, None),
        [column, name, program] => (column, name, Some(program)),
        _ => bail!("expected a table, a column, a figure, and maybe a program"),
    };
    let (mut rows, _) = select(rows.to_vec(), None)?;
    if name != "unbeaten" {
        rows.retain(|row| program.is_none_or(|program| row.workload == program));
    }
    let layout = Layout::of(&rows);
    let own: Vec<&Row> = rows
        .iter()
        .filter(|row| layout.column_of(row) == column)
        .filter(|row| row.is_measured())
        .collect();
    let summary = summarize(&rows, None, Vec::new())?;
    let mut ways = summary.ways.into_iter();
    let way = ways
        .find(|way| way.name == column)
        .context("the table has no such column")?;
    let of_each = |figure: fn(&Row) -> Option<f64>| {
        let figures: Vec<f64> = own.iter().filter_map(|row| figure(row)).collect();
        median(&figures)
    };
    let reserved = |row: &Row| Some(row.reserved_of_requested());
    let points = |spread: Option<Spread>, of: fn(Spread) -> f64| {
        spread.map(|spread| format!("{:.1} %", of(spread)))
    };
    let one_digit = |figure: f64| format!("{figure:.1}");
    let figure = match name {
        "efficiency" => points(way.efficiency, |spread| spread.median),
        "lowest" => points(way.efficiency, |spread| spread.extreme),
        "overhead" => points(way.overhead, |spread| spread.median),
        "highest" => points(way.overhead, |spread| spread.extreme),
        "better" => Some(way.better.to_string()),
        "worse" => Some(way.worse.to_string()),
        "retries" => Some(way.retries.to_string()),
        "fits" => Some(way.fit.to_string()),
        "workloads" => Some(way.workloads.to_string()),
        "driver_time" => way.driver_time.map(one_digit),
        "calls" => of_each(|row| row.driver_calls_per_1000).map(one_digit),
        "reserved" => of_each(reserved).map(percent),
        "reserved_gib" => of_each(|row| Some(row.peak_reserved_bytes as f64 / f64::from(1 << 30)))
            .map(|gib| format!("{gib:.0}")),
        "unbeaten" => Some(unbeaten(&own, &rows, program).to_string()),
        _ => bail!("no figure of this name"),
    };
    figure.context("the table does not have this figure")
}

/// How many of some rows need no more device memory than those of the other online policies on the same device. A policy
/// can be left aside.
fn unbeaten(own: &[&Row], rows: &[Row], aside: Option<&str>) -> usize {
    let counts = |other: &&Row| {
        other.is_measured() && !is_offline(&other.policy) && Some(other.policy.as_str()) != aside
    };
    let beats = |other: &Row, row: &Row| {
        other.policy != row.policy
            && other.is_beside(row)
            && other.capacity_bytes < row.capacity_bytes
    };
    let is_unbeaten = |row: &&&Row| !rows.iter().filter(counts).any(|other| beats(other, row));
    own.iter().filter(is_unbeaten).count()
}

#[cfg(test)]
mod tests {
    use coalesce_workloads::cases;

    use super::*;
    use crate::measure::record;
    use crate::measure::results;

    fn spliced(text: &str) -> Result<String, String> {
        let newest = results::newest().unwrap();
        splice(text, |table| record::read_file(newest.join(table))).map_err(|it| format!("{it:#}"))
    }

    #[test]
    fn figures_are_made_of_the_record() {
        let of = |column: &str, names: &str| {
            let marks = names
                .split(", ")
                .map(|name| format!("{name}: <!-- = {column} {name} -->old<!-- = -->\n"));
            marks.collect::<String>()
        };
        let names = "efficiency, lowest, better, worse, fits, retries, workloads, driver_time, calls, reserved, \
                     reserved_gib moe8x_modulelist";
        let on_least = "overhead, highest, unbeaten, unbeaten quilt";
        let of_sets = "mean common, worst common, programs common, mean pools, worst recorded, mean kept, programs kept";
        let text = of("policies.csv tlsf/default", names)
            + &of("policies.csv pytorch/expand@least", on_least)
            + &of("waste.csv quilt", of_sets);
        let fresh = spliced(&text).unwrap();
        insta::assert_snapshot!(fresh);
        assert_eq!(spliced(&fresh), Ok(fresh));
    }

    #[test]
    fn marks_that_name_no_figure_are_errors() {
        cases::check("src/report/cases/not-figures.txt", |text| {
            spliced(text).unwrap_err()
        });
        assert_eq!(spliced("no figure").as_deref(), Ok("no figure"));
    }
}
