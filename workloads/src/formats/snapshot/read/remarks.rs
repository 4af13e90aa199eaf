//! Anomalies of a snapshot that do not prevent reading it.

use std::collections::BTreeMap;

use coalesce_alloc::printable::printable;

/// The anomalies, and how often each occurs.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks<'a> {
    /// Entries of each unknown action.
    pub(super) unknown_actions: BTreeMap<&'a [u8], u64>,
    /// Entries without a time.
    pub(super) timeless: u64,
    /// Blocks in use without a requested size.
    pub(super) unsized_blocks: u64,
    /// Segments whose size is not the sum of their blocks.
    pub(super) unfilled_segments: u64,
    /// Annotations that are neither START nor END.
    pub(super) odd_stages: u64,
    /// Whether the ring buffer of entries overflowed.
    pub(super) has_overflowed: bool,
    /// Whether the key of `coalesce.record()` has something else.
    pub(super) has_odd_notes: bool,
}

impl Remarks<'_> {
    /// One sentence for each anomaly.
    pub(super) fn sentences(&self) -> Vec<String> {
        const MOST_ACTIONS: usize = 8;
        let mut sentences = Vec::new();
        let actions = self.unknown_actions.iter();
        sentences.extend(actions.clone().take(MOST_ACTIONS).map(|(action, count)| {
            let action: String = String::from_utf8_lossy(action).chars().take(60).collect();
            let action = printable(action);
            format!("entries of the unknown action '{action}', skipped: {count}")
        }));
        let others: u64 = actions.skip(MOST_ACTIONS).map(|(_, count)| count).sum();
        let counted = [
            ("entries of other unknown actions, skipped", others),
            ("entries without a time", self.timeless),
            (
                "blocks in use without a requested size, taken to be wholly requested",
                self.unsized_blocks,
            ),
            (
                "segments whose size is not the sum of their blocks, which are used instead",
                self.unfilled_segments,
            ),
            (
                "annotations that are neither START nor END, skipped",
                self.odd_stages,
            ),
        ];
        let counted = counted.iter().filter(|(_, count)| *count > 0);
        sentences.extend(counted.map(|(what, count)| format!("{what}: {count}")));
        if self.has_odd_notes {
            sentences.push(
                "the key 'coalesce' does not have what coalesce.record() writes, skipped"
                    .to_owned(),
            );
        }
        if self.has_overflowed {
            sentences.push(
                "the history is longer than PyTorch's ring buffer, so its beginning is lost (max_entries \
                 of _record_memory_history)"
                    .to_owned(),
            );
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_unknown_actions_are_named_in_sixty_letters() {
        let long = "x".repeat(61);
        let actions = [&*long, "a", "b", "c", "d", "e", "f", "g", "y", "z"];
        let remarks = Remarks {
            unknown_actions: actions.iter().map(|name| (name.as_bytes(), 2)).collect(),
            odd_stages: 1,
            ..Remarks::default()
        };
        let sentences = remarks.sentences();
        let of = |name: &str| format!("entries of the unknown action '{name}', skipped: 2");
        assert_eq!(sentences[0], of("a"));
        assert_eq!(sentences[7], of(&long[1..]));
        let others = [
            "entries of other unknown actions, skipped: 4",
            "annotations that are neither START nor END, skipped: 1",
        ];
        assert_eq!(sentences[8..], others);
    }
}
