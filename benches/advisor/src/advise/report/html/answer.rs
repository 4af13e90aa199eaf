//! The answer at the top of the page: what failed, what to do, and how sure that is.

use coalesce_bench::text::{Unit, escape};

use super::paragraphs;
use crate::advise::advice::Advice;
use crate::advise::answer::Answer;
use crate::advise::failure::Failure;
use crate::advise::report::text;

/// The box with the answer.
pub(super) fn answer(advice: &Advice) -> String {
    let answer = &advice.answer;
    let assurance = answer.confidence.assurance.iter();
    let assurance: String = assurance
        .map(|sentence| format!("<p class=\"sure\">{}</p>", escape(sentence)))
        .collect();
    format!(
        "<section class=\"answer {}\">{}{}{}{}{assurance}</section>{}",
        answer.kind.name(),
        paragraphs(&answer.confidence.caveats),
        paragraphs(&answer.sentences),
        command(answer),
        paragraphs(&answer.also),
        failure(advice)
    )
}

/// The command to apply the settings, with a button that copies it.
fn command(answer: &Answer) -> String {
    let Some(command) = text::command(answer) else {
        return String::new();
    };
    format!(
        "<div class=\"command\"><pre>{}</pre><button type=\"button\" class=\"copy\">Copy</button></div>",
        escape(&command)
    )
}

/// The failed request with its figures.
fn failure(advice: &Advice) -> String {
    let Some(failure) = &advice.answer.failure else {
        return String::new();
    };
    let rows = facts(failure, advice, text::unit(advice));
    let rows = rows.map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value)));
    let rows: String = rows.collect();
    format!("<h2>The failed request</h2><dl class=\"facts\">{rows}</dl>")
}

fn facts(
    failure: &Failure,
    advice: &Advice,
    unit: Unit,
) -> impl Iterator<Item = (&'static str, String)> {
    let origin = Some(failure.origin.clone()).filter(|origin| !origin.is_empty());
    let when = format!("event {} of {}", failure.event, advice.events);
    let memory = [
        ("requested", unit.amount(failure.request_bytes)),
        (
            "requested by live tensors",
            unit.amount(failure.requested_bytes),
        ),
        ("both together", unit.amount(failure.demand_bytes())),
        ("available", unit.amount(advice.answer.available_bytes)),
        (
            "reserved by the allocator",
            unit.amount(failure.reserved_bytes),
        ),
        ("of it free, in pieces", unit.amount(failure.free_bytes)),
    ];
    let origin = origin.map(|origin| ("where", origin));
    origin.into_iter().chain([("when", when)]).chain(memory)
}
