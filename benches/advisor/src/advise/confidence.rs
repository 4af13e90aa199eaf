//! How far the answer can be trusted.

use coalesce_bench::text::coverage::missing;
use coalesce_workloads::formats::snapshot::coverage::Coverage;
use schemars::JsonSchema;
use serde::Serialize;

use super::check::RecordingCheck;

/// How far the answer can be trusted, and why.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema, Serialize)]
pub struct Confidence {
    /// The level.
    pub level: ConfidenceLevel,
    /// What must be known before the answer is read, one sentence each: parts that are missing, differences.
    pub caveats: Vec<String>,
    /// What supports the answer, in a sentence; none if nothing does.
    pub assurance: Option<String>,
}

coalesce_alloc::named! {
    /// How far an answer can be trusted, with the words of tables.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ConfidenceLevel {
        /// The workload is not a recording: there is nothing to compare its replay with.
        Unchecked = "not checked",
        /// The replay reproduces the whole program.
        Exact = "exact",
        /// The replay reproduces what is recorded; the beginning of the program is not.
        RecordedPart = "the recorded part",
        /// The replay differs from the recording, or cannot follow all of it: the figures are estimates.
        Estimate = "estimate",
    }
}

impl Confidence {
    /// The confidence in an answer about a recording that covers `coverage` of its program.
    pub(super) fn of(check: Option<&RecordingCheck>, coverage: Option<&Coverage>) -> Self {
        let Some(check) = check else {
            return Self {
                level: ConfidenceLevel::Unchecked,
                caveats: Vec::new(),
                assurance: None,
            };
        };
        let mut caveats = coverage.map(missing).unwrap_or_default();
        if check.is_exact {
            return Self {
                level: match coverage {
                    Some(coverage) if coverage.allows_estimates_only() => ConfidenceLevel::Estimate,
                    Some(coverage) if !coverage.is_complete() => ConfidenceLevel::RecordedPart,
                    _ => ConfidenceLevel::Exact,
                },
                caveats,
                assurance: Some(check.sentence()),
            };
        }
        if !check.is_unfinished() {
            caveats.insert(0, "The figures are estimates.".to_owned());
        }
        caveats.push(check.sentence());
        Self {
            level: ConfidenceLevel::Estimate,
            caveats,
            assurance: None,
        }
    }
}
