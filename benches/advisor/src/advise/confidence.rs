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
    /// The reasons, one sentence each; empty for a workload that is not a recording.
    pub reasons: Vec<String>,
}

/// How far an answer can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfidenceLevel {
    /// The workload is not a recording: there is nothing to compare its replay with.
    Unchecked,
    /// The replay reproduces the whole program.
    Exact,
    /// The replay reproduces what is recorded; the beginning of the program is not.
    RecordedPart,
    /// The replay differs from the recording: the figures are estimates.
    Estimate,
}

impl ConfidenceLevel {
    /// The level in a table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unchecked => "not checked",
            Self::Exact => "exact",
            Self::RecordedPart => "the recorded part",
            Self::Estimate => "estimate",
        }
    }

    /// Whether the answer must be read with care, so that the reasons come before it.
    #[must_use]
    pub fn is_weak(self) -> bool {
        self >= Self::RecordedPart
    }
}

impl Confidence {
    /// The confidence in an answer about a recording that covers `coverage` of its program.
    pub(super) fn of(check: Option<&RecordingCheck>, coverage: Option<&Coverage>) -> Self {
        let Some(check) = check else {
            return Self {
                level: ConfidenceLevel::Unchecked,
                reasons: Vec::new(),
            };
        };
        let mut reasons = coverage.map(missing).unwrap_or_default();
        let level = match check.is_exact {
            true if reasons.is_empty() => ConfidenceLevel::Exact,
            true => ConfidenceLevel::RecordedPart,
            false => ConfidenceLevel::Estimate,
        };
        if level == ConfidenceLevel::Estimate && !check.is_unfinished() {
            reasons.insert(0, "The figures are estimates.".to_owned());
        }
        reasons.push(check.sentence());
        Self { level, reasons }
    }
}
