//! Reports what is wrong with how a program uses its memory, and what helps.
//!
//! [`Evidence::gather`] replays the workload under its settings. [`diagnose`] then applies the rules in
//! `rules/`, one kind of problem each, and returns their findings. A rule reports a problem only if its
//! figures prove it. Where other settings are the remedy, the rule has replayed the workload under them.

pub mod call_site;
pub mod evidence;
pub mod improvement;
pub mod log;
mod origins;
mod recorded;
mod rules;
pub mod steps;
pub mod subject;
#[cfg(test)]
pub(crate) mod testing;

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::call_site::CallSite;
pub use self::evidence::Evidence;
pub use self::rules::{Leak, leak};
pub use self::subject::Subject;

/// The moment that explains the peak of reserved memory: the request that raised it, and why it was not served from free
/// memory. It begins a sentence.
const AT_PEAK: &str = "When reserved memory reached its peak";
/// The remedy of a finding about settings. A rule evaluates one alternative; `advise` compares many.
const SEE_ADVISE: &str = "`coalesce advise` ranks these settings among others";
/// The same in an advice.
const SEE_RANKING: &str = "The table of settings ranks these among others";

/// A problem that a rule found. It explains; `advise` decides which settings are best.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize)]
pub struct Finding {
    /// The name of the rule.
    pub rule: &'static str,
    /// The problem in one sentence, with the most important figure.
    pub headline: String,
    /// The facts that prove it, one sentence each.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
    /// The settings string that the rule evaluated; `None` if the remedy changes the program.
    pub conf: Option<String>,
    /// Bytes of memory that the problem concerns. Findings are sorted by it.
    pub bytes: u64,
    /// The call sites responsible, largest first; may be empty.
    pub stacks: Vec<CallSite>,
}

impl Finding {
    /// The finding as a part of an advice, which has no use for the command that gives it.
    #[must_use]
    pub(crate) fn in_advice(self) -> Self {
        let remedy = self.remedy.replace(SEE_ADVISE, SEE_RANKING);
        Self { remedy, ..self }
    }
}

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    rules::RULES.iter().map(|(name, _)| *name)
}

/// All findings: out of memory first, then by bytes.
#[must_use]
pub fn diagnose(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = rules::RULES.iter().filter_map(|(name, find)| {
        let finding = find(evidence)?;
        Some(Finding {
            rule: name,
            ..finding
        })
    });
    let mut findings: Vec<Finding> = found.collect();
    let order = |finding: &Finding| (finding.rule != rules::MOST_URGENT, Reverse(finding.bytes));
    findings.sort_by_key(order);
    findings
}

/// The findings as text.
#[must_use]
pub fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for (number, finding) in findings.iter().enumerate() {
        let Finding {
            rule,
            headline,
            evidence,
            remedy,
            stacks,
            ..
        } = finding;
        text.push_str(&format!("{}. {headline} [{rule}]\n", number + 1));
        for sentence in evidence {
            text.push_str(&format!("   - {sentence}\n"));
        }
        for call_site in stacks {
            text.push_str(&format!("     {call_site}\n"));
        }
        text.push_str(&format!("   > {remedy}\n"));
    }
    if findings.is_empty() {
        text.push_str("No problems found.\n");
    }
    text
}
