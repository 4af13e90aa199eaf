//! Whether the allocator that is replayed is the one that was recorded: a recording put to the test.

use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::formats::snapshot::verify::{Known, Verification, verify};
use serde::Serialize;

/// A recording replayed at its own addresses, under its own settings. See
/// [`verify`](mod@workloads::recording::verify).
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// Whether everything came out as recorded.
    pub is_exact: bool,
    /// Allocations of the recording.
    pub allocations: usize,
    /// Those of them that lie where they were recorded.
    pub exact: usize,
    /// Segments and pages of the recording that were taken or returned.
    pub segment_events: usize,
    /// Those of them that came about, in kind, place and size.
    pub predicted: usize,
    /// Times all cached memory was returned because there was no more.
    pub retries: u64,
    /// Requests of the recording that failed.
    pub ooms: usize,
    /// What came out differently first, or why nothing can be compared.
    pub difference: Option<String>,
}

impl Check {
    /// Puts a recording to the test.
    #[must_use]
    pub fn of(recording: &Recording) -> Self {
        match verify(recording, Known::default()) {
            Ok(verdict) => Self::told(&verdict),
            Err(error) => Self::told(&Verification::default()).because(error.to_string()),
        }
    }

    fn told(verdict: &Verification) -> Self {
        let difference = verdict.difference.as_ref();
        Self {
            is_exact: verdict.is_exact(),
            allocations: verdict.allocations,
            exact: verdict.exact,
            segment_events: verdict.segment_events,
            predicted: verdict.predicted,
            retries: verdict.retries,
            ooms: verdict.ooms,
            difference: difference.map(|first| format!("entry {}: {}", first.entry, first.reason)),
        }
    }

    fn because(self, difference: String) -> Self {
        Self {
            is_exact: false,
            difference: Some(difference),
            ..self
        }
    }

    /// The same in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self {
            allocations,
            exact,
            segment_events,
            predicted,
            ..
        } = self;
        match (&self.difference, self.is_exact) {
            (_, true) => format!(
                "Replayed under the settings it was recorded with, every one of its {allocations} \
                 allocations lies where it lay, and all {segment_events} segments and pages came and went \
                 as they did."
            ),
            (Some(difference), _) if *allocations == 0 => {
                format!("The recording could not be put to the test: {difference}.")
            }
            (difference, _) => format!(
                "Replayed under the settings it was recorded with, {exact} of its {allocations} allocations \
                 lie where they lay and {predicted} of {segment_events} segments and pages came and went as \
                 they did; the first difference: {}. `coalesce verify` says more.",
                difference.as_deref().unwrap_or("blocks at the end")
            ),
        }
    }
}
