//! The tables of settings and of other allocators. On a phone each row is a card, whose cells show the titles
//! of their columns.

use coalesce_bench::text::{Unit, escape};

use super::wrapping;
use crate::advise::advice::{Advice, RankedSettings};
use crate::advise::others::OtherPolicy;
use crate::advise::report::text::{self, FIGURES};
use crate::settings_string::label;

/// The mark of rows that are on the Pareto front.
const ON_FRONT: &str = "Pareto-optimal";

/// The table of settings.
pub(super) fn ranking(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let rows: String = advice.ranking.iter().map(|one| row(one, unit)).collect();
    format!(
        "<h2>{}</h2>{}<p class=\"faint\">{}</p>",
        escape(&text::ranking_title(advice)),
        table("PYTORCH_CUDA_ALLOC_CONF", &rows),
        escape(&text::legend(advice, ON_FRONT))
    )
}

/// The table of other policies.
pub(super) fn others(advice: &Advice) -> String {
    if advice.others.is_empty() {
        return String::new();
    }
    let unit = text::unit(advice);
    let rows: String = advice.others.iter().map(|one| other(one, unit)).collect();
    format!("<h2>Other allocators</h2>{}", table("policy", &rows))
}

fn table(first: &str, rows: &str) -> String {
    let titles = [first].into_iter().chain(FIGURES);
    let titles: String = titles
        .map(|title| format!("<th scope=\"col\">{title}</th>"))
        .collect();
    format!("<table class=\"cards\"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>")
}

/// A cell for each figure.
fn cells(figures: [String; 6]) -> String {
    let cells = FIGURES.iter().zip(figures);
    let cells =
        cells.map(|(title, figure)| format!("<td data-title=\"{title}\">{}</td>", escape(&figure)));
    cells.collect()
}

fn row(row: &RankedSettings, unit: Unit) -> String {
    let mut tags = text::notes(row, unit);
    if row.on_front {
        tags.push(ON_FRONT.to_owned());
    }
    let tags = tags
        .iter()
        .map(|tag| format!(" <span class=\"tag\">{}</span>", escape(tag)));
    let class = match row.is_advised {
        true => " class=\"advised\"",
        false => "",
    };
    format!(
        "<tr{class}><td><code>{}</code>{}</td>{}</tr>\n",
        wrapping(label(&row.conf)),
        tags.collect::<String>(),
        cells(text::row_figures(row, unit))
    )
}

fn other(other: &OtherPolicy, unit: Unit) -> String {
    let name = format!(
        "<b>{}</b> <span class=\"faint\">{}</span>",
        escape(other.policy),
        escape(other.summary)
    );
    let figures = match text::other_figures(other, unit) {
        Ok(figures) => cells(figures),
        Err(obstacle) => format!(
            "<td class=\"obstacle\" colspan=\"{}\">{}</td>",
            FIGURES.len(),
            escape(&obstacle)
        ),
    };
    format!("<tr><td>{name}</td>{figures}</tr>\n")
}
