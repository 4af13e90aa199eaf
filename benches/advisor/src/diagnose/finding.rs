//! What a rule found.

use schemars::JsonSchema;
use serde::Serialize;

use super::call_site::CallSite;

/// The moment that explains the peak of reserved memory: the request that raised it, and why it was not served from free
/// memory. It begins a sentence.
pub(super) const AT_PEAK: &str = "When reserved memory reached its peak";
/// The remedy of a finding about settings. A rule evaluates one alternative; `advise` compares many.
pub(super) const SEE_ADVISE: &str = "`coalesce advise` ranks these settings among others";
/// The same in an advice.
const SEE_RANKING: &str = "The table of settings ranks these among others";

/// A problem that a rule found. It explains the problem. Which settings are best is the answer of `advise`.
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
    /// The call sites that cause it, the largest first. May be empty.
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
