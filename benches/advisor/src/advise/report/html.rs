//! Advice as one HTML page that works offline: the viewer with its data inside.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coalesce_alloc::printable::printable;
use coalesce_bench::measure::deadline::{Deadline, UntilDeadline};
use coalesce_bench::text::{amount, escape, quoted};
use coalesce_workloads::json;
use coalesce_workloads::op::Workload;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::text;
use crate::advise::advice::Advice;
use crate::advise::request::AdviceRequest;
use crate::diagnose::Evidence;
use crate::settings_string::known_part;
use crate::view::{Frames, View, web};

/// The most bytes of replays in a page. Browsers open larger pages slowly or not at all.
const MOST: usize = 50_000_000;

/// The page, with replays under the current settings and the advised or else the best other ones. It omits replays
/// that are not ready by the deadline or would make it too large, and says so. `date` is the day on which it is
/// written.
///
/// # Errors
/// If the advice cannot be written as JSON.
pub fn page(
    request: &AdviceRequest<'_>,
    advice: &Advice,
    date: &str,
    deadline: Deadline,
) -> anyhow::Result<String> {
    let data = Data::of(request, advice, deadline, MOST)?;
    let missing: String = data
        .missing
        .iter()
        .map(|sentence| format!("<p>{}</p>\n", escape(sentence)))
        .collect();
    let parts = [
        ("title", &*escape(&printable(&advice.workload).to_string())),
        ("about", &escape(&text::about(advice))),
        ("text", &escape(&text::page(advice))),
        ("style", web::STYLE),
        ("sections", web::SECTIONS),
        ("missing", &missing),
        ("version", env!("CARGO_PKG_VERSION")),
        ("date", &escape(date)),
        ("advice", &as_json(advice)?),
        ("replays", &as_json(&data.replays)?),
        ("data", &data.elements),
        ("script", &web::script(&[include_str!("html/report.js")])),
    ];
    Ok(web::fill(include_str!("html/report.html"), &parts))
}

/// A replay that the page contains.
#[derive(Serialize)]
struct Replay<'a> {
    title: &'static str,
    conf: &'a str,
}

/// The replays in a page.
#[derive(Default)]
struct Data<'a> {
    replays: Vec<Replay<'a>>,
    /// The elements with their bytes: `replay-0`, … and `frames`, to which all refer.
    elements: String,
    /// Why others are missing, one sentence each.
    missing: Vec<String>,
}

impl<'a> Data<'a> {
    /// The data, of at most `most` bytes.
    fn of(
        request: &AdviceRequest<'a>,
        advice: &'a Advice,
        deadline: Deadline,
        most: usize,
    ) -> anyhow::Result<Self> {
        let mut shown = shown(request, advice).into_iter();
        let replayed = |shown: Option<(&'static str, &'a str)>| {
            shown.map(|(title, conf)| (title, conf, replay(request, conf, deadline)))
        };
        let (present, other) = (shown.next(), shown.next());
        let (present, other) = request.jobs.join(|| replayed(present), || replayed(other));
        let mut data = Self::default();
        let frames = compressed(json::shown(&Frames::of(request.recording))?.as_bytes())?;
        let mut bytes = frames.len();
        for (title, conf, replay) in [present, other].into_iter().flatten() {
            let reason = match replay {
                Ok(replay) if bytes + replay.len() <= most => {
                    bytes += replay.len();
                    let id = format!("replay-{}", data.replays.len());
                    data.elements.push_str(&element(&id, &replay));
                    data.replays.push(Replay { title, conf });
                    continue;
                }
                Ok(replay) => format!(
                    "with its {}, this page would have more than {}, too much for some browsers. The page that \
                     scripts/page/build writes shows it",
                    amount(replay.len() as u64),
                    amount(most as u64)
                ),
                Err(_) if deadline.has_passed() => {
                    "time ran out; --time-limit sets the limit".to_owned()
                }
                Err(error) => format!("{error:#}"),
            };
            let settings = quoted(conf);
            data.missing.push(format!(
                "The replay under {settings} is not shown: {reason}."
            ));
        }
        if !data.replays.is_empty() {
            data.elements.push_str(&element("frames", &frames));
        }
        Ok(data)
    }
}

/// The settings to show, with their titles.
fn shown<'a>(request: &AdviceRequest<'a>, advice: &'a Advice) -> Vec<(&'static str, &'a str)> {
    let others = || advice.ranking.iter().filter(|row| !row.is_present);
    let advised = others().find(|row| row.is_advised);
    let other = match advised {
        Some(row) => Some(("Advised settings", &*row.conf)),
        None => others().next().map(|row| ("Other settings", &*row.conf)),
    };
    let present = ("Current settings", request.present);
    std::iter::once(present).chain(other).collect()
}

/// A replay under some settings, compressed.
fn replay(request: &AdviceRequest<'_>, conf: &str, deadline: Deadline) -> anyhow::Result<String> {
    let workload = UntilDeadline {
        workload: request.reactive,
        deadline,
    };
    let known = known_part(conf, request.conditions.release);
    let evidence = Evidence::gather(request.subject(&workload, &known))?;
    compressed(&View::of(&evidence)?.bytes(request.workload.name())?)
}

/// Bytes compressed with gzip, in base64.
fn compressed(bytes: &[u8]) -> anyhow::Result<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(STANDARD.encode(encoder.finish()?))
}

/// An element that holds a text, which needs no escapes.
fn element(id: &str, text: &str) -> String {
    format!("<script id=\"{id}\" type=\"text/plain\">{text}</script>\n")
}

/// A value as JSON that may stand in a script element: no tag begins or ends in it, and its texts may be shown.
fn as_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(json::shown(value)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests;
