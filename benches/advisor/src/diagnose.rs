//! Reports what is wrong with how a program uses its memory, and what helps.
//!
//! [`Evidence::gather`] replays the workload under its settings. [`diagnose`] then applies the rules in
//! `rules/`, one kind of problem each, and returns their findings. A rule reports a problem only if its
//! figures prove it. Where other settings are the remedy, the rule has replayed the workload under them.

pub mod call_site;
pub mod evidence;
mod finding;
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

pub use self::call_site::CallSite;
pub use self::evidence::Evidence;
pub use self::finding::Finding;
pub use self::rules::{Leak, leak};
pub use self::subject::Subject;

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
