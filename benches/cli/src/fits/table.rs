//! A table of answers, one for each combination of values.

use std::fmt;

use coalesce_advisor::report::text::paragraphs;
use coalesce_alloc::printable::printable;
use coalesce_bench::text::{Column, Table as Text, amount};
use schemars::JsonSchema;
use serde::Serialize;

use super::answer::{FitsReport, Verdict};
use super::vary::Values;

/// The name under which the number of ranks stands in a table.
pub const WORLD: &str = "WORLD";

/// The answers about several variants of a program.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct FitsTable {
    /// The version of this format: 1.
    pub format: u32,
    /// One for each combination of values, the last value changing first.
    pub rows: Vec<Row>,
}

/// The answer about one variant.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Row {
    /// What distinguishes it.
    pub varied: Vec<Varied>,
    /// The answer; none if there is no answer.
    pub answer: Option<FitsReport>,
    /// Why there is none.
    pub error: Option<String>,
}

/// A value of this variant.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Varied {
    /// Its name.
    pub name: String,
    /// What the program gets.
    pub value: String,
}

impl fmt::Display for Varied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, printable(&self.value))
    }
}

impl FitsTable {
    /// The exit status: 0 if a variant fits, 1 if none does, 2 if there is no answer about any.
    pub fn status(&self) -> u8 {
        let answers = self.rows.iter().filter_map(|row| row.answer.as_ref());
        let best = answers.map(|answer| u8::from(!answer.fits())).min();
        best.unwrap_or(2)
    }
}

/// All combinations of values, the last changing first.
pub fn combinations(all: &[Values]) -> Vec<Vec<Varied>> {
    all.iter().fold(vec![Vec::new()], |begun, values| {
        let with_each = |before: Vec<Varied>| {
            values.values.iter().map(move |value| {
                let name = values.name.clone();
                let value = value.clone();
                before
                    .iter()
                    .cloned()
                    .chain([Varied { name, value }])
                    .collect()
            })
        };
        begun.into_iter().flat_map(with_each).collect()
    })
}

/// The table as text.
pub fn page(table: &FitsTable) -> String {
    let [first, ..] = table.rows.as_slice() else {
        return String::new();
    };
    let largest = |row: &Row| row.answer.as_ref()?.largest.clone();
    let ranged = table.rows.iter().find_map(largest);
    let names = first.varied.iter().map(|varied| varied.name.as_str());
    let mut columns: Vec<Column> = names.map(Column::right).collect();
    if let Some(largest) = &ranged {
        columns.push(Column::right(&largest.name));
    }
    columns.extend([
        Column::right("reserved"),
        Column::right("on the device"),
        Column::right("rank"),
        Column::left(""),
    ]);
    let mut text = Text::new(columns);
    for row in &table.rows {
        let mut cells: Vec<String> = row
            .varied
            .iter()
            .map(|varied| printable(&varied.value).to_string())
            .collect();
        if ranged.is_some() {
            let value = largest(row).and_then(|largest| largest.value);
            cells.push(value.map_or_else(String::new, |value| value.to_string()));
        }
        cells.extend(figures(row));
        text.row(cells);
    }
    let explained = ranged.map(|largest| {
        format!(
            "{} is the largest from {} to {} with which it fits, and the figures are those with it.",
            largest.name, largest.first, largest.last
        )
    });
    let remark = paragraphs(explained);
    let gap = if remark.is_empty() { "" } else { "\n" };
    format!("{}{gap}{remark}", text.text())
}

/// What it reserves, what is in use on the device, which rank that is, and whether it fits.
fn figures(row: &Row) -> [String; 4] {
    let Some(answer) = &row.answer else {
        let error = row.error.as_deref().unwrap_or_default();
        let last = error.lines().last().unwrap_or_default();
        let remark = format!("no answer: {}", printable(last));
        return [String::new(), String::new(), String::new(), remark];
    };
    let verdict = match &answer.verdict {
        Verdict::Fits => "fits".to_owned(),
        Verdict::Depends => "only a GPU knows".to_owned(),
        Verdict::FitsWith { conf, .. } => format!("fits with {}", printable(conf)),
        Verdict::DoesNotStart => "does not start".to_owned(),
        Verdict::TooLarge { .. } => "does not fit".to_owned(),
    };
    let rank = answer.ranks.first().map(|ranks| ranks.ranks[0]);
    [
        amount(answer.largest_reserved_bytes()),
        amount(answer.in_use.peak_bytes),
        rank.map_or_else(String::new, |rank| rank.to_string()),
        verdict,
    ]
}
