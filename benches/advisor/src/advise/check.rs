//! Checks whether the replay reproduces the recording.

use coalesce_workloads::clock::Instant;
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::rewind::RecordingError;
use coalesce_workloads::formats::snapshot::verify::{Difference, Known, Verification, verify};
use schemars::JsonSchema;
use serde::Serialize;

/// The result of replaying a recording at its own addresses under its own settings. See
/// [`verify`](mod@coalesce_workloads::formats::snapshot::verify).
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct RecordingCheck {
    /// `exact`, `different`, `nothing to verify`, `unfinished` if time ran out, or `impossible` if PyTorch's
    /// allocator cannot have made the recording.
    pub verdict: &'static str,
    /// Whether the recording contains allocations and everything matches.
    pub is_exact: bool,
    /// The figures of the replay.
    #[serde(flatten)]
    pub counts: Verification,
    /// The first difference, or why nothing can be compared.
    pub difference: Option<String>,
}

const UNFINISHED: &str = "unfinished";

impl RecordingCheck {
    /// Checks a recording, until the given time.
    #[must_use]
    pub fn of(recording: &Recording, until: Option<Instant>) -> Self {
        let known = Known {
            until,
            ..Known::default()
        };
        let (verification, error) = match verify(recording, known) {
            Ok(verification) => (verification, None),
            Err(error) => (Verification::default(), Some(error)),
        };
        let difference = verification.difference.as_ref().map(Difference::summary);
        Self {
            verdict: match &error {
                Some(RecordingError::Unfinished) => UNFINISHED,
                Some(_) => "impossible",
                None => verification.verdict().name(),
            },
            is_exact: error.is_none() && verification.is_exact(),
            difference: error.map(|error| error.to_string()).or(difference),
            counts: verification,
        }
    }

    /// Whether time ran out.
    pub(super) fn is_unfinished(&self) -> bool {
        self.verdict == UNFINISHED
    }

    /// The result in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Verification {
            allocations,
            exact,
            segment_events,
            predicted,
            ..
        } = self.counts;
        match (&self.difference, self.is_exact) {
            (None, false) => {
                "There is nothing to verify: the recording contains no allocation.".to_owned()
            }
            (_, true) => format!(
                "The replay under the recorded settings matches the recording: all {allocations} allocations \
                 have their recorded addresses, and all {segment_events} segment and page events are the same."
            ),
            (Some(_), _) if self.is_unfinished() => {
                "The replay was not compared with the recording: time ran out. `coalesce verify` compares it."
                    .to_owned()
            }
            (Some(difference), _) if self.verdict == "impossible" => {
                format!("The recording could not be verified: {difference}.")
            }
            (Some(difference), _) => format!(
                "The replay under the recorded settings differs from the recording: {exact} of {allocations} \
                 allocations have their recorded addresses, and {predicted} of {segment_events} segment and \
                 page events are the same. First difference: {difference}. Run `coalesce verify` for details."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::history::Action;

    use super::*;
    use crate::advise::confidence::{Confidence, ConfidenceLevel};
    use crate::diagnose::testing::{MIB, recording};

    #[test]
    fn a_check_without_time_claims_no_difference() {
        use Action::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};
        let block = [Alloc, FreeRequested, FreeCompleted].map(|action| (action, 1 << 40, 2 * MIB));
        let segment = |action| (action, 1 << 40, 20 * MIB);
        let ends = [segment(SegmentAlloc), segment(SegmentFree)];
        let recording = recording(&[&ends[..1], &block, &ends[1..]].concat());
        let check = RecordingCheck::of(&recording, None);
        assert_eq!(check.verdict, "exact", "{check:?}");
        let check = RecordingCheck::of(&recording, Some(Instant::now()));
        assert_eq!(check.verdict, UNFINISHED, "{check:?}");
        assert!(!check.is_exact && check.sentence().contains("was not compared"));
    }

    #[test]
    fn the_confidence_tells_why_it_is_an_estimate() {
        let check = |verdict, is_exact, difference: Option<&str>| RecordingCheck {
            verdict,
            is_exact,
            counts: Verification {
                allocations: 7,
                exact: 5,
                segment_events: 3,
                predicted: 2,
                ..Verification::default()
            },
            difference: difference.map(str::to_owned),
        };
        let confidence = |check: &RecordingCheck| Confidence::of(Some(check), None);
        let exact = confidence(&check("exact", true, None));
        assert_eq!(exact.level, ConfidenceLevel::Exact);
        assert!(exact.caveats.is_empty());
        let assurance = exact.assurance.unwrap();
        assert!(assurance.contains("all 7 allocations") && assurance.contains("all 3 segment"));
        let estimates = [
            check("impossible", false, Some("x")),
            check("different", false, Some("x")),
            check("nothing to verify", false, None),
        ];
        let caveats = estimates.map(|check| {
            let estimate = confidence(&check);
            assert_eq!(estimate.level, ConfidenceLevel::Estimate);
            assert_eq!(estimate.assurance, None);
            estimate.caveats.join("\n")
        });
        insta::assert_snapshot!(caveats.join("\n"));
        // Whether they are is unknown.
        let unfinished = confidence(&check(UNFINISHED, false, Some("time ran out")));
        assert_eq!(unfinished.caveats.len(), 1);
        assert!(unfinished.caveats[0].contains("was not compared"));
        let unchecked = Confidence::of(None, None);
        let found = (unchecked.level, unchecked.caveats.len());
        assert_eq!(found, (ConfidenceLevel::Unchecked, 0));
    }
}
