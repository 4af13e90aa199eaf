//! The tables of settings and of other allocators. On a phone each row is a card, whose cells show the titles
//! of their columns.

use coalesce_bench::text::{Unit, duration, escape};

use crate::advise::advice::{Advice, RankedSettings};
use crate::advise::others::OtherPolicy;
use crate::advise::report::text;
use crate::advise::request::Aim;
use crate::settings_string::label;

const FIGURES: [&str; 6] = [
    "needs",
    "holds",
    "retries",
    "OOMs",
    "driver calls",
    "driver time",
];

/// The table of settings.
pub(super) fn ranking(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let rows: String = advice.ranking.iter().map(|one| row(one, unit)).collect();
    format!(
        "{}<p class=\"faint\">{}</p>",
        table("PYTORCH_CUDA_ALLOC_CONF", &rows),
        escape(&text::legend(advice))
    )
}

/// The table of other policies.
pub(super) fn others(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let rows: String = advice.others.iter().map(|one| other(one, unit)).collect();
    table("Allocator", &rows)
}

fn table(first: &str, rows: &str) -> String {
    let titles = [first].into_iter().chain(FIGURES);
    let titles: String = titles.map(|title| format!("<th>{title}</th>")).collect();
    format!("<table class=\"cards\"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>")
}

/// A cell for each figure.
fn cells(figures: [String; FIGURES.len()]) -> String {
    let cells = FIGURES.iter().zip(figures);
    let cells =
        cells.map(|(title, figure)| format!("<td data-title=\"{title}\">{}</td>", escape(&figure)));
    cells.collect()
}

fn row(row: &RankedSettings, unit: Unit) -> String {
    let mut tags = Vec::new();
    if row.is_present {
        tags.push("current".to_owned());
    }
    if row.is_advised {
        tags.push("advised".to_owned());
    }
    tags.extend(
        row.best_for
            .iter()
            .map(|aim: &Aim| format!("best for {}", aim.name())),
    );
    if row.on_front {
        tags.push("Pareto-optimal".to_owned());
    }
    let rules = row.suggested_by.iter();
    tags.extend(rules.map(|rule| format!("evaluated by the finding {rule}")));
    tags.extend(text::fails_above(row, unit));
    let tags: String = tags
        .iter()
        .map(|tag| format!("<span class=\"tag\">{}</span>", escape(tag)))
        .collect();
    let class = match row.is_advised {
        true => " class=\"advised\"",
        false => "",
    };
    let figures = &row.on_device;
    format!(
        "<tr{class}><td><code>{}</code>{tags}</td>{}</tr>\n",
        escape(label(&row.conf)),
        cells([
            text::needs(row, unit),
            unit.amount(text::reserved(row)),
            figures.retries.to_string(),
            figures.ooms.to_string(),
            figures.driver_calls.to_string(),
            duration(figures.driver_time_ns),
        ])
    )
}

fn other(other: &OtherPolicy, unit: Unit) -> String {
    let name = format!(
        "<b>{}</b> <span class=\"faint\">{}</span>",
        escape(other.policy),
        escape(other.summary)
    );
    let figures = match (other.obstacle(), other.on_device) {
        (None, Some(figures)) => figures,
        (obstacle, _) => {
            let obstacle = escape(&obstacle.unwrap_or_default());
            let columns = FIGURES.len();
            return format!("<tr><td>{name}</td><td colspan=\"{columns}\">{obstacle}</td></tr>\n");
        }
    };
    let bytes =
        |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), |bytes| unit.amount(bytes));
    format!(
        "<tr><td>{name}</td>{}</tr>\n",
        cells([
            bytes(other.least_capacity_bytes),
            bytes(other.peak_reserved_bytes),
            figures.retries.to_string(),
            figures.ooms.to_string(),
            figures.driver_calls.to_string(),
            duration(figures.driver_time_ns),
        ])
    )
}
