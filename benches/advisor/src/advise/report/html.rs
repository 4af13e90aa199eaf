//! Advice as a self-contained HTML page.

use std::fmt::Write;

use coalesce_bench::text::{Unit, duration, escape, percent_of};

use super::chart::{Scale, chart};
use super::map::{bytes_per_row, map};
use super::picture::Picture;
use super::text;
use crate::advise::advice::{Advice, RankedSettings};
use crate::advise::others::OtherPolicy;
use crate::advise::request::{AdviceRequest, Aim};
use crate::diagnose::Finding;
use crate::settings_string::label;

const PAGE: &str = include_str!("report.html");

/// The page, with pictures of replays under the current settings and the advised or else the best other ones.
///
/// # Errors
/// If the workload cannot be replayed under them.
pub fn page(request: &AdviceRequest<'_>, advice: &Advice) -> anyhow::Result<String> {
    let advised = advice.ranking.iter().find(|row| row.is_advised);
    let other = advised.or(advice.ranking.iter().find(|row| !row.is_present));
    let shown = std::iter::once(request.present).chain(other.map(|row| &*row.conf));
    let pictures = shown.map(|conf| Picture::of(request, conf));
    let pictures: Vec<Picture> = pictures.collect::<anyhow::Result<_>>()?;
    Ok(with_pictures(advice, &pictures))
}

fn with_pictures(advice: &Advice, pictures: &[Picture]) -> String {
    let available = advice.capacity_bytes.saturating_sub(advice.others_bytes);
    let scale = Scale::of(pictures, available, advice.lower_bound_bytes);
    let per_row = bytes_per_row(pictures);
    let unit = text::unit(advice);
    let parts = [
        ("title", escape(&advice.workload)),
        ("about", escape(&text::about(advice))),
        ("answer", answer(advice)),
        ("charts", figures(pictures, |picture| chart(picture, scale))),
        ("peak", peak(advice)),
        ("row", unit.amount(per_row)),
        ("maps", figures(pictures, |picture| map(picture, per_row))),
        ("findings", findings(&advice.findings)),
        ("ranking", ranking(advice)),
        ("others", others(advice)),
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

fn answer(advice: &Advice) -> String {
    let answer = &advice.answer;
    let command = text::command(answer).map_or_else(String::new, |command| {
        format!("<pre>{}</pre>", escape(&command))
    });
    let confidence = paragraphs(&answer.confidence.reasons);
    let (before, after) = match answer.confidence.level.is_weak() {
        true => (confidence, String::new()),
        false => (String::new(), confidence),
    };
    format!(
        "<div class=\"answer {}\">{before}{}{command}{}{after}</div>",
        answer.kind.name(),
        paragraphs(&answer.sentences),
        paragraphs(&answer.also)
    )
}

/// Renders each picture as a `<figure>`, with its settings as the title.
fn figures(pictures: &[Picture], draw: impl Fn(&Picture) -> String) -> String {
    let figures = pictures.iter().enumerate().map(|(index, picture)| {
        let which = match index {
            0 => "Current settings",
            _ => "Best settings",
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

fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "<p>No problems found.</p>".to_owned();
    }
    findings.iter().map(finding).collect()
}

fn finding(finding: &Finding) -> String {
    let mut html = format!(
        "<div class=\"finding\"><h3>{}</h3><ul>",
        escape(&finding.headline)
    );
    for sentence in &finding.evidence {
        let _ = write!(html, "<li>{}</li>", escape(sentence));
    }
    let _ = write!(
        html,
        "</ul><p class=\"remedy\">{}</p>",
        escape(&finding.remedy)
    );
    for place in &finding.stacks {
        let line = escape(&place.to_string());
        if place.frames.is_empty() {
            let _ = write!(html, "<p class=\"faint\">{line}</p>");
        } else {
            let frames = escape(&place.frames.join("\n"));
            let _ = write!(
                html,
                "<details><summary class=\"faint\">{line}</summary><pre>{frames}</pre></details>"
            );
        }
    }
    html.push_str("</div>\n");
    html
}

fn ranking(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let rows: String = advice.ranking.iter().map(|one| row(one, unit)).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>PYTORCH_CUDA_ALLOC_CONF</th><th>needs</th>\
         <th>holds</th><th>retries</th><th>OOMs</th><th>driver calls</th><th>driver time</th></tr></thead>\
         <tbody>{rows}</tbody></table></div><p class=\"faint\">{}</p>",
        escape(&text::legend(advice))
    )
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
    tags.extend(text::fails_above(row, unit));
    let tags: String = tags
        .iter()
        .map(|tag| format!("<span class=\"tag\">{}</span>", escape(tag)))
        .collect();
    let class = if row.is_advised {
        " class=\"advised\""
    } else {
        ""
    };
    let figures = &row.on_device;
    format!(
        "<tr{class}><td><code>{}</code>{tags}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{}</td></tr>\n",
        escape(label(&row.conf)),
        escape(&text::needs(row, unit)),
        unit.amount(text::reserved(row)),
        figures.retries,
        figures.ooms,
        figures.driver_calls,
        duration(figures.driver_time_ns)
    )
}

fn others(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let rows: String = advice.others.iter().map(|one| other(one, unit)).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>Allocator</th><th>needs</th><th>holds</th>\
         <th>driver calls</th><th>driver time</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn other(other: &OtherPolicy, unit: Unit) -> String {
    let name = format!(
        "<b>{}</b> <span class=\"faint\">{}</span>",
        escape(other.policy),
        escape(other.summary)
    );
    if let Some(obstacle) = other.obstacle() {
        return format!(
            "<tr><td>{name}</td><td colspan=\"4\">{}</td></tr>\n",
            escape(&obstacle)
        );
    }
    let bytes =
        |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), |bytes| unit.amount(bytes));
    let figures = other.on_device;
    format!(
        "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        bytes(other.least_capacity_bytes),
        bytes(other.peak_reserved_bytes),
        figures.map_or(0, |figures| figures.driver_calls),
        duration(figures.map_or(0, |figures| figures.driver_time_ns))
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
