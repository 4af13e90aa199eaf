//! How far the answer can be trusted.

use coalesce_bench::text::Unit;
use coalesce_workloads::formats::snapshot::coverage::Coverage;
use serde::Serialize;

use super::check::RecordingCheck;

/// How far the answer can be trusted, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Confidence {
    /// The level.
    pub level: ConfidenceLevel,
    /// The reasons, one sentence each; empty for a workload that is not a recording.
    pub reasons: Vec<String>,
}

/// How far an answer can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
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
        let (Some(check), Some(coverage)) = (check, coverage) else {
            return Self {
                level: ConfidenceLevel::Unchecked,
                reasons: Vec::new(),
            };
        };
        let level = match (check.is_exact, coverage.is_complete()) {
            (true, true) => ConfidenceLevel::Exact,
            (true, false) => ConfidenceLevel::RecordedPart,
            (false, _) => ConfidenceLevel::Estimate,
        };
        let missing = (!coverage.is_complete()).then(|| missing_part(coverage));
        let estimate = (!check.is_exact).then(|| "The figures are estimates.".to_owned());
        let reasons = estimate.into_iter().chain(missing);
        Self {
            level,
            reasons: reasons.chain([check.sentence()]).collect(),
        }
    }
}

/// What is known about a program whose beginning is not recorded.
fn missing_part(coverage: &Coverage) -> String {
    let start = coverage.start;
    let unit = Unit::of(coverage.peak_reserved_bytes);
    format!(
        "The beginning of the program is not recorded: at the first entry it already held {}, {} of it in use. \
         All figures are of the recorded part, in which it held up to {}; the program as a whole may need more.",
        unit.amount(start.reserved_bytes),
        unit.amount(start.in_use_bytes),
        unit.amount(coverage.peak_reserved_bytes)
    )
}
