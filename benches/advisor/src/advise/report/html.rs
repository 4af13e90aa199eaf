//! Advice as a self-contained HTML page.

mod answer;
mod findings;
mod holders;
mod tables;

use std::fmt::Write;

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::text::{escape, percent_of, quoted};

use self::answer::answer;
use self::findings::findings;
use self::holders::holders;
use self::tables::{others, ranking};
use super::chart::{self, Scale, chart};
use super::map::{self, bytes_per_row, map};
use super::picture::Picture;
use super::text;
use crate::advise::advice::Advice;
use crate::advise::request::AdviceRequest;
use crate::advise::simulator::Simulator;
use crate::settings_string::label;

const PAGE: &str = include_str!("report.html");

/// The page, with pictures of replays under the current settings and the advised or else the best other ones. It
/// omits pictures that are not ready by the deadline, and says so. `date` is the day on which it is written.
///
/// # Errors
/// If the workload cannot be read.
pub fn page(
    request: &AdviceRequest<'_>,
    advice: &Advice,
    date: &str,
    deadline: Deadline,
) -> anyhow::Result<String> {
    let simulator = Simulator::of(request)?.until(deadline);
    let (mut pictures, mut missing) = (Vec::new(), Vec::new());
    for (title, conf) in shown(request, advice) {
        match Picture::of(simulator, title, conf) {
            Ok(picture) => pictures.push(picture),
            Err(_) if deadline.has_passed() => missing.push(format!(
                "Time ran out for the pictures of {}; --time-limit sets the limit.",
                quoted(conf)
            )),
            Err(error) => missing.push(format!(
                "There are no pictures of {}: {error:#}.",
                quoted(conf)
            )),
        }
    }
    Ok(with_pictures(advice, &pictures, &missing, date))
}

/// The settings to show, with their titles.
fn shown<'a>(
    request: &AdviceRequest<'a>,
    advice: &'a Advice,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let others = || advice.ranking.iter().filter(|row| !row.is_present);
    let advised = others().find(|row| row.is_advised);
    let other = match advised {
        Some(row) => Some(("Advised settings", &*row.conf)),
        None => others().next().map(|row| ("Other settings", &*row.conf)),
    };
    std::iter::once(("Current settings", request.present)).chain(other)
}

fn with_pictures(advice: &Advice, pictures: &[Picture], missing: &[String], date: &str) -> String {
    let parts = [
        ("title", escape(&advice.workload)),
        ("about", escape(&text::about(advice))),
        ("answer", answer(advice)),
        ("holders", holders(advice)),
        ("conditions", conditions(advice)),
        ("charts", charts(advice, pictures)),
        ("missing", paragraphs(missing)),
        ("peak", peak(advice)),
        ("maps", maps(advice, pictures)),
        ("findings", findings(&advice.findings)),
        ("ranking", ranking(advice)),
        ("others", others(advice)),
        ("reliability", reliability(advice)),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("date", escape(date)),
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

/// Text as HTML. Text between backticks becomes code.
fn prose(text: &str) -> String {
    let escaped = escape(text);
    let parts: Vec<&str> = escaped.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // A backtick without a partner.
        return escaped;
    }
    let parts = parts
        .iter()
        .enumerate()
        .map(|(index, part)| match index % 2 {
            0 => (*part).to_owned(),
            _ => format!("<code>{part}</code>"),
        });
    parts.collect()
}

fn paragraphs(sentences: &[String]) -> String {
    let paragraphs = sentences
        .iter()
        .map(|sentence| format!("<p>{}</p>\n", prose(sentence)));
    paragraphs.collect()
}

/// A settings string or a command as HTML that may wrap between keys, but preferably not within.
fn wrapping(conf: &str) -> String {
    escape(conf).replace(',', ",<wbr>").replace('=', "=<wbr>")
}

/// A list of names with their values, as HTML.
fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let facts = facts.into_iter();
    let facts =
        facts.map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), prose(&value)));
    format!("<dl class=\"facts\">{}</dl>", facts.collect::<String>())
}

/// The conditions under which the workload was replayed.
fn conditions(advice: &Advice) -> String {
    if advice.conditions.is_empty() {
        return String::new();
    }
    let lines = advice.conditions.iter();
    let lines = lines.map(|line| match line.split_once(": ") {
        Some((name, value)) => (name, value.to_owned()),
        None => ("", line.clone()),
    });
    format!("<h2>Conditions of the replays</h2>{}", facts(lines))
}

fn charts(advice: &Advice, pictures: &[Picture]) -> String {
    let scale = Scale::of(pictures, advice);
    let legend = match pictures {
        [] => String::new(),
        // The script, which shows the figures, also shows the hint.
        pictures => format!(
            "<p class=\"faint hint\" hidden>Point at charts and maps or tap them for their figures; the arrow \
             keys step through them.</p><div class=\"legend\">{}</div>",
            chart::legend(pictures, scale)
        ),
    };
    let figures = figures(advice, pictures, |picture| chart(picture, scale));
    legend + &figures
}

fn maps(advice: &Advice, pictures: &[Picture]) -> String {
    if pictures.is_empty() {
        return String::new();
    }
    let per_row = bytes_per_row(pictures);
    format!(
        "<p>The segments one after another, largest first. Each row is {}.</p><div class=\"legend\">{}</div>{}",
        text::unit(advice).amount(per_row),
        map::legend(pictures),
        figures(advice, pictures, |picture| map(picture, per_row))
    )
}

/// Renders each picture as a `<figure>`, with its settings as the title.
fn figures(advice: &Advice, pictures: &[Picture], draw: impl Fn(&Picture) -> String) -> String {
    let unit = text::unit(advice);
    let figures = pictures.iter().map(|picture| {
        format!(
            "<figure><h3>{}: <code>{}</code> <span class=\"faint\">at most {} reserved</span></h3>{}</figure>\n",
            picture.title,
            wrapping(label(&picture.conf)),
            unit.amount(picture.reserved()),
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
        ("requested", peak.requested_bytes, "requested"),
        ("rounding", peak.rounding_bytes, "allocated"),
        ("pending", peak.pending_bytes, "pending"),
        ("fragmented", peak.inactive_split_bytes, "fragmented"),
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
        let _ = writeln!(
            legend,
            "<span><i style=\"background:var(--{colour})\"></i>{name}: {} ({})</span>",
            unit.amount(bytes),
            percent_of(bytes, peak.reserved_bytes)
        );
    }
    format!(
        "<p>Under the current settings, {} is reserved at the peak (event {}). The peak of requested memory is \
         {}; no allocator can use less.</p><div class=\"bar\" aria-hidden=\"true\">{bar}</div>\
         <div class=\"legend\">{legend}</div>",
        unit.amount(peak.reserved_bytes),
        peak.event,
        unit.amount(advice.lower_bound_bytes)
    )
}

fn reliability(advice: &Advice) -> String {
    let sentences = text::reliability(advice);
    let items = sentences
        .iter()
        .map(|sentence| format!("<li>{}</li>\n", prose(sentence)));
    format!("<ul>{}</ul>", items.collect::<String>())
}

#[cfg(test)]
mod tests;
