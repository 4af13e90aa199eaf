//! What a search found out about itself, and what it had no time for.

use coalesce_bench::measure::deadline::Deadline;
use coalesce_workloads::formats::snapshot::release::Releases;

use super::others::{self, OtherPolicy};
use super::request::AdviceRequest;
use super::search::{PRESENT, Search};
use super::stability::Stability;
use super::{COPIED, EXPLAINED};
use crate::settings_string::unknown_keys;

/// What the advice lacks.
#[derive(Default)]
pub(super) struct LeftOut {
    /// What the time limit left out.
    pub skipped: Vec<String>,
    /// Why there are no findings.
    error: Option<String>,
}

impl LeftOut {
    /// Notes that there are no findings, because of an error.
    pub fn findings(&mut self, error: &anyhow::Error, deadline: Deadline) {
        if deadline.at_percent(EXPLAINED).has_passed() {
            self.skipped.push("the findings".to_owned());
        } else {
            self.error = Some(format!("There are no findings: {error:#}."));
        }
    }

    /// Notes what is missing after the search.
    pub fn after_search(
        &mut self,
        stability: Option<&Stability>,
        others: &[OtherPolicy],
        deadline: Deadline,
    ) {
        if stability.is_none() && deadline.at_percent(COPIED).has_passed() {
            self.skipped.push("perturbed runs".to_owned());
        }
        let missing: Vec<&str> = others::missing(others).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            self.skipped.push(format!("other allocators ({missing})"));
        }
    }
}

/// What the search found out about itself, one sentence each.
pub(super) fn of(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    left_out: &LeftOut,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let unknown = unknown_keys(request.present);
    if !unknown.is_empty() {
        remarks.push(format!(
            "PyTorch 2.11, the release that is simulated, does not know {} in the current settings. The replays \
             ignore it, and the advised settings keep it.",
            unknown.join(", ")
        ));
    }
    let unoffered = search.unoffered();
    if !unoffered.is_empty() && request.releases != Releases::REFERENCE {
        remarks.push(format!(
            "The program runs under {}: {} cannot be set there and was not tried.",
            request.releases.range(),
            listed(&unoffered)
        ));
    }
    let present = search.tried.get(PRESENT);
    if let Some(error) = present.and_then(|present| present.error.as_ref()) {
        remarks.push(format!(
            "The replay under the current settings failed: {error}."
        ));
    }
    remarks.extend(left_out.error.clone());
    if !left_out.skipped.is_empty() {
        remarks.push(format!(
            "Time ran out for {}; --time-limit sets the limit.",
            listed(&left_out.skipped)
        ));
    }
    remarks
}

/// The items as part of a sentence: `a, b and c`.
fn listed(items: &[String]) -> String {
    match items {
        [all @ .., before, last] => {
            let all = all.iter().map(|item| format!("{item}, "));
            format!("{}{before} and {last}", all.collect::<String>())
        }
        items => items.concat(),
    }
}
