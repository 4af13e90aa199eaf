//! What is wrong with how a program uses its memory, and what helps: known traps of PyTorch's allocator
//! and common mistakes of programs, each by a rule that says what it saw in this program.
//!
//! [`Evidence`] is gathered by replaying the program with the settings it has; [`diagnose`] puts it to the
//! rules, one a file. A rule is silent rather than wrong: it names the figures it rests on, and where
//! another setting is the remedy, it has tried it.

mod conf;
pub mod evidence;
pub mod log;
pub mod place;
pub mod relief;
mod rules;
pub mod steps;
#[cfg(test)]
mod testing;
mod words;

use std::cmp::Reverse;

use serde::Serialize;

pub use self::evidence::{Evidence, Subject};
pub use self::place::Place;

/// Something that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The rule that found it.
    pub rule: &'static str,
    /// What it is, in a sentence with the figure that matters.
    pub headline: String,
    /// What was seen in this program, one sentence each.
    pub evidence: Vec<String>,
    /// What to do, as it is typed where it can be.
    pub remedy: String,
    /// Bytes of memory it is about: findings are ordered by them.
    pub bytes: u64,
    /// The places of the program it is about, the heaviest first; may be empty.
    pub stacks: Vec<Place>,
}

/// All that is found: that memory was short first, then the heaviest.
#[must_use]
pub fn diagnose(evidence: &Evidence<'_>) -> Vec<Finding> {
    let found = rules::RULES.iter().filter_map(|rule| rule(evidence));
    let mut findings: Vec<Finding> = found.collect();
    let order = |finding: &Finding| (finding.rule != rules::MOST_URGENT, Reverse(finding.bytes));
    findings.sort_by_key(order);
    findings
}

/// Findings as text.
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
        for place in stacks {
            text.push_str(&format!("     {place}\n"));
        }
        text.push_str(&format!("   > {remedy}\n"));
    }
    if findings.is_empty() {
        text.push_str("Nothing found.\n");
    }
    text
}
