//! The answer at the top of the page: what failed, what to do about it, and how reliable the advice is.

use super::{facts, paragraphs, prose, wrapping};
use crate::advise::advice::Advice;
use crate::advise::answer::{Answer, amounts};
use crate::advise::failure::Failure;
use crate::advise::report::text;

/// The box with the answer.
pub(super) fn answer(advice: &Advice) -> String {
    let answer = &advice.answer;
    let (lead, rest) = match answer.sentences.as_slice() {
        [lead, rest @ ..] => (format!("<p class=\"lead\">{}</p>", prose(lead)), rest),
        [] => (String::new(), [].as_slice()),
    };
    let assurance = answer.confidence.assurance.iter();
    let assurance: String = assurance
        .map(|sentence| format!("<p class=\"sure\">{}</p>", prose(sentence)))
        .collect();
    format!(
        "<section class=\"answer {}\" aria-label=\"Answer\">{}{lead}{}{}{}{assurance}</section>{}",
        answer.kind.name(),
        paragraphs(&answer.confidence.caveats),
        paragraphs(rest),
        command(answer),
        paragraphs(&answer.also),
        failure(advice)
    )
}

/// The command to apply the settings. A script shows the button that copies it.
fn command(answer: &Answer) -> String {
    let Some(command) = text::command(answer) else {
        return String::new();
    };
    format!(
        "<div class=\"command\"><pre>{}</pre><button type=\"button\" class=\"copy\" aria-live=\"polite\" hidden>\
         Copy</button></div>",
        wrapping(&command)
    )
}

/// The failed request with its figures.
fn failure(advice: &Advice) -> String {
    match &advice.answer.failure {
        Some(failure) => format!(
            "<h2>The failed request</h2>{}",
            facts(figures(failure, advice))
        ),
        None => String::new(),
    }
}

fn figures(failure: &Failure, advice: &Advice) -> Vec<(&'static str, String)> {
    let unit = text::unit(advice);
    let answer = &advice.answer;
    let available = amounts(unit, answer.available_bytes, answer.available_at_most_bytes);
    let mut figures = vec![
        (
            "when",
            format!("event {} of {}", failure.event, advice.events),
        ),
        ("size of the request", unit.amount(failure.request_bytes)),
        ("live tensors", unit.amount(failure.requested_bytes)),
        ("both together", unit.amount(failure.demand_bytes())),
        ("available", available),
        ("reserved", unit.amount(failure.reserved_bytes)),
        ("free within reserved", unit.amount(failure.free_bytes)),
    ];
    if !failure.origin.is_empty() {
        figures.insert(0, ("where", failure.origin.clone()));
    }
    figures
}
