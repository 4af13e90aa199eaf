//! Advice as a self-contained HTML page.

mod answer;
mod findings;
mod holders;
mod tables;

use std::fmt::Write;

use coalesce_bench::text::{escape, percent_of};

use self::answer::answer;
use self::findings::findings;
use self::holders::holders;
use self::tables::{others, ranking};
use super::chart::{Scale, chart, legend};
use super::map::{bytes_per_row, map};
use super::picture::Picture;
use super::text;
use crate::advise::advice::Advice;
use crate::advise::request::AdviceRequest;
use crate::settings_string::label;

const PAGE: &str = include_str!("report.html");

/// The page, with pictures of replays under the current settings and the advised or else the best other ones.
/// `date` is the day on which it is written.
///
/// # Errors
/// If the workload cannot be replayed under them.
pub fn page(request: &AdviceRequest<'_>, advice: &Advice, date: &str) -> anyhow::Result<String> {
    let advised = advice.ranking.iter().find(|row| row.is_advised);
    let other = advised.or(advice.ranking.iter().find(|row| !row.is_present));
    let shown = std::iter::once(request.present).chain(other.map(|row| &*row.conf));
    let pictures = shown.map(|conf| Picture::of(request, conf));
    let pictures: Vec<Picture> = pictures.collect::<anyhow::Result<_>>()?;
    Ok(with_pictures(advice, &pictures, date))
}

fn with_pictures(advice: &Advice, pictures: &[Picture], date: &str) -> String {
    let available = advice.answer.available_bytes;
    let scale = Scale::of(pictures, available, advice.lower_bound_bytes);
    let per_row = bytes_per_row(pictures);
    let is_advised = advice.ranking.iter().any(|row| row.is_advised);
    let unit = text::unit(advice);
    let parts = [
        ("title", escape(&advice.workload)),
        ("about", about(advice)),
        ("answer", answer(advice)),
        ("holders", holders(advice)),
        ("legend", legend(pictures, scale)),
        (
            "charts",
            figures(pictures, is_advised, |picture| chart(picture, scale)),
        ),
        ("peak", peak(advice)),
        ("row", unit.amount(per_row)),
        (
            "maps",
            figures(pictures, is_advised, |picture| map(picture, per_row)),
        ),
        ("findings", findings(&advice.findings)),
        ("ranking", ranking(advice)),
        ("others", others(advice)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("date", escape(date)),
        ("reliability", paragraphs(&text::reliability(advice))),
    ];
    fill(PAGE, &parts)
}

/// Replaces every `@name@` in the template once; the inserted text is not searched.
fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        page.push_str(before);
        let part = after.split_once('@').and_then(|(name, after)| {
            let (_, part) = parts.iter().find(|(known, _)| *known == name)?;
            Some((part, after))
        });
        match part {
            Some((part, after)) => {
                page.push_str(part);
                rest = after;
            }
            None => {
                page.push('@');
                rest = after;
            }
        }
    }
    page + rest
}

fn paragraphs(sentences: &[String]) -> String {
    let paragraphs = sentences
        .iter()
        .map(|sentence| format!("<p>{}</p>\n", escape(sentence)));
    paragraphs.collect()
}

/// The workload, and the conditions under which it was replayed.
fn about(advice: &Advice) -> String {
    let lines = std::iter::once(text::about(advice)).chain(advice.conditions.iter().cloned());
    let lines: Vec<String> = lines.map(|line| escape(&line)).collect();
    lines.join("<br>\n")
}

/// Renders each picture as a `<figure>`, with its settings as the title. `is_advised` tells whether those after
/// the current ones are.
fn figures(pictures: &[Picture], is_advised: bool, draw: impl Fn(&Picture) -> String) -> String {
    let figures = pictures.iter().enumerate().map(|(index, picture)| {
        let which = match (index, is_advised) {
            (0, _) => "Current settings",
            (_, true) => "Advised settings",
            (_, false) => "Other settings",
        };
        let conf = escape(label(&picture.conf));
        format!(
            "<figure><h3>{which}: <code>{conf}</code></h3>{}</figure>\n",
            draw(picture)
        )
    });
    figures.collect()
}

fn peak(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let peak = &advice.peak;
    let (mut bar, mut legend) = (String::new(), String::new());
    for (name, bytes, colour) in [
        ("requested", peak.requested_bytes, "active"),
        ("rounding", peak.rounding_bytes, "allocated"),
        ("pending", peak.pending_bytes, "pending"),
        ("fragmented", peak.inactive_split_bytes, "stuck"),
        ("cached", peak.cached_bytes, "cached"),
    ] {
        if bytes == 0 {
            continue;
        }
        let share = 100.0 * bytes as f64 / peak.reserved_bytes.max(1) as f64;
        // Writing to a string cannot fail.
        let _ = write!(
            bar,
            "<i style=\"width:{share:.2}%;background:var(--{colour})\"></i>"
        );
        let _ = write!(
            legend,
            "<span><i style=\"background:var(--{colour})\"></i>{name}: {} ({})</span>",
            unit.amount(bytes),
            percent_of(bytes, peak.reserved_bytes)
        );
    }
    format!(
        "<p>Under the current settings, {} is reserved at the peak (event {}). The peak of requested memory is \
         {}.</p><div class=\"bar\">{bar}</div><div class=\"legend\">{legend}</div>",
        unit.amount(peak.reserved_bytes),
        peak.event,
        unit.amount(advice.lower_bound_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_once() {
        let parts = [("a", "x @b@ y".to_owned()), ("b", "z".to_owned())];
        assert_eq!(
            fill("1@a@2@b@3 me@c @media", &parts),
            "1x @b@ y2z3 me@c @media"
        );
    }
}
