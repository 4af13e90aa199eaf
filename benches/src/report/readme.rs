//! Tables of results in Markdown files, between marks.

use anyhow::{Context, ensure};

use super::releases::Releases;
use super::table::{Layout, UNSUPPORTED, is_tight};
use super::waste::measured::Measured;
use super::{pareto, waste};
use crate::measure::record::{Fit, RECORDED, Row};
use crate::text::{Cell, Table, percent};

/// Makes a table of results, and of what was measured on a GPU.
pub type Make = fn(&[Row], &Measured) -> String;

const WASTE: &str = "waste.csv";

/// The tables for Markdown files: the name in the mark, the source in a folder of results, and the function that makes it.
pub const TABLES: [(&str, &str, Make); 14] = [
    ("efficiency", "default.csv", |rows, _| efficiencies(rows)),
    ("least", "least.csv", |rows, _| least_capacities(rows)),
    ("policies", "policies.csv", |rows, _| pareto::policies(rows)),
    ("fronts", "policies.csv", |rows, _| pareto::fronts(rows)),
    ("releases", "releases.csv", |rows, _| {
        Releases::of(rows).markdown()
    }),
    ("waste", WASTE, |rows, _| waste::headline(rows)),
    ("waste_groups", WASTE, |rows, _| waste::groups(rows)),
    ("waste_ablation", WASTE, |rows, _| waste::ablation(rows)),
    ("waste_efficiency", WASTE, waste::efficiency),
    ("waste_least", WASTE, |rows, _| waste::on_least(rows)),
    ("waste_late", WASTE, |rows, _| waste::late_calls(rows)),
    ("waste_steps", WASTE, |rows, _| waste::steps(rows)),
    ("waste_pools", WASTE, |rows, _| waste::pools(rows)),
    ("waste_driver", WASTE, |rows, _| waste::driver_time(rows)),
];

/// The command that makes a table from a file in the folder `record`, for its mark.
#[must_use]
pub fn made_by(record: &str, file: &str) -> String {
    format!("`coalesce report --splice` from results/{record}/{file}")
}

/// A table in a Markdown file, between a line `<!-- table NAME: … -->` and a line `<!-- end -->`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Splice {
    /// The name in the mark.
    pub name: &'static str,
    /// The command that makes the table, and its source, for the mark.
    pub made_by: String,
    /// The table itself.
    pub markdown: String,
}

/// The beginning of the mark before a table.
fn mark(name: &str) -> String {
    format!("<!-- table {name}:")
}

/// Whether a text has a mark for the table of that name.
#[must_use]
pub fn has_place(text: &str, name: &str) -> bool {
    text.contains(&mark(name))
}

/// The columns of the table of efficiencies; the CSV has more.
const EFFICIENCIES: [(&str, &str); 8] = [
    ("default", "default"),
    ("split64", "`max_split_size_mb:64`"),
    ("split256", "`max_split_size_mb:256`"),
    ("round8", "`roundup_power2_divisions:8`"),
    ("expand", "`expandable_segments:True`"),
    ("default@110%", "default, tight"),
    ("split64@110%", "`max_split_size_mb:64`, tight"),
    ("expand@110%", "`expandable_segments:True`, tight"),
];

/// The columns of the table of minimum device memory.
const LEAST: [(&str, &str); 4] = [
    ("default@least", "default"),
    ("split64@least", "`max_split_size_mb:64`"),
    ("round8@least", "`roundup_power2_divisions:8`"),
    ("expand@least", "`expandable_segments:True`"),
];

/// The peak requested of each recorded trace, its efficiency under some settings, and whether it fits on a tight
/// device.
#[must_use]
pub fn efficiencies(rows: &[Row]) -> String {
    let recorded = rows.iter().filter(|row| row.family == RECORDED);
    let rows: Vec<Row> = recorded.cloned().collect();
    markdown(&rows, &EFFICIENCIES, efficiency)
}

/// The peak requested of each workload, and its minimum device memory under some settings.
#[must_use]
pub fn least_capacities(rows: &[Row]) -> String {
    markdown(rows, &LEAST, least)
}

fn markdown(rows: &[Row], columns: &[(&str, &str)], cell: fn(&Row) -> Cell) -> String {
    let layout = Layout::of(rows);
    let titles = columns.iter().map(|&(_, title)| Cell::marked(title));
    let requested = Cell::from("requested, MiB");
    let mut table = Table::of(["workload"], [requested].into_iter().chain(titles));
    for line in layout.lines() {
        let requested = (layout.demand(&line) >> 20).to_string();
        let at = |(name, _): &(&str, &str)| layout.at(&line, name).map_or_else(|| "".into(), cell);
        let cells: Vec<Cell> = columns.iter().map(at).collect();
        table.row([line.into(), requested.into()].into_iter().chain(cells));
    }
    table.markdown()
}

fn efficiency(row: &Row) -> Cell {
    let text = match (row.fit(), row.efficiency) {
        (Fit::Fails(ooms), _) => format!("{ooms} failed"),
        (Fit::Unsupported, _) => UNSUPPORTED.to_owned(),
        (Fit::FitsWithRetries(retries), _) if is_tight(row) => {
            format!("fits, {}", retried(retries))
        }
        (Fit::Fits, _) if is_tight(row) => "fits".to_owned(),
        (_, Some(share)) => percent(share),
        (_, None) => String::new(),
    };
    text.into()
}

fn least(row: &Row) -> Cell {
    if !row.is_measured() {
        return UNSUPPORTED.into();
    }
    let more = row.capacity_bytes as f64 / row.lower_bound_bytes as f64 - 1.0;
    let retries = match row.retries {
        0 => String::new(),
        retries => format!(", {}", retried(retries)),
    };
    let mark = if row.fails_above_bytes.is_some() {
        "*"
    } else {
        ""
    };
    Cell::marked(format!(
        "{} (+{}{retries}){mark}",
        row.capacity_bytes >> 20,
        percent(more)
    ))
}

fn retried(retries: u64) -> String {
    match retries {
        1 => "1 retry".to_owned(),
        more => format!("{more} retries"),
    }
}

/// The text with a new table in place of the old one; unchanged if it has no mark for that table.
///
/// # Errors
/// If the text has several marks for the table, or no end mark.
pub fn splice(text: &str, table: &Splice) -> anyhow::Result<String> {
    const END: &str = "<!-- end -->";
    let Splice {
        name,
        made_by,
        markdown,
    } = table;
    let begin = mark(name);
    let count = text.matches(&begin).count();
    if count == 0 {
        return Ok(text.to_owned());
    }
    ensure!(
        count == 1,
        "{count} marks for the table '{name}', expected one"
    );
    let (before, rest) = text.split_once(&begin).context("no mark for the table")?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("the table '{name}' has no '{END}' after it"))?;
    let mark = format!("{begin} made by {made_by}, do not edit -->");
    Ok(format!("{before}{mark}\n\n{markdown}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_changes() {
        let text = "# Title\n<!-- table a: old -->\nold\n<!-- end -->\nrest\n<!-- table b: x -->\n\
                    kept\n<!-- end -->\n";
        let table = |markdown: &str| Splice {
            name: "a",
            made_by: "`me`".to_owned(),
            markdown: markdown.to_owned(),
        };
        let spliced = splice(text, &table("new\n")).unwrap();
        let expected = "# Title\n<!-- table a: made by `me`, do not edit -->\n\nnew\n\n<!-- end -->\nrest\n<!-- table b: x -->\nkept\n<!-- end -->\n";
        assert_eq!(spliced, expected);
        assert_eq!(splice(&spliced, &table("new\n")).unwrap(), spliced);
        assert_eq!(splice("no marks", &table("new")).unwrap(), "no marks");
        assert!(
            splice("<!-- table a: -->", &table("new")).is_err(),
            "no end"
        );
        let twice = "<!-- table a: --><!-- end --><!-- table a: --><!-- end -->";
        assert!(splice(twice, &table("new")).is_err());
    }
}
