//! What is strange in a snapshot but can be done without.

use std::collections::BTreeMap;

/// What was met, and how often.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks<'a> {
    /// Entries by their action, which is unknown.
    pub(super) unknown_actions: BTreeMap<&'a [u8], u64>,
    /// Entries without a time.
    pub(super) timeless: u64,
    /// Blocks that do not say how much was asked for.
    pub(super) unsized_blocks: u64,
    /// Segments whose blocks are more or fewer bytes than they.
    pub(super) unfilled_segments: u64,
    /// Annotations that are neither START nor END.
    pub(super) odd_stages: u64,
    /// The ring of entries was too small.
    pub(super) has_overflowed: bool,
}

impl Remarks<'_> {
    /// One sentence each.
    pub(super) fn sentences(&self) -> Vec<String> {
        const MOST_ACTIONS: usize = 8;
        let mut sentences = Vec::new();
        let actions = self.unknown_actions.iter();
        sentences.extend(actions.clone().take(MOST_ACTIONS).map(|(action, count)| {
            let action: String = String::from_utf8_lossy(action).chars().take(60).collect();
            format!("entries of the unknown action '{action}', left out: {count}")
        }));
        let others: u64 = actions.skip(MOST_ACTIONS).map(|(_, count)| count).sum();
        let counted = [
            ("entries of more unknown actions, left out", others),
            ("entries that do not say when", self.timeless),
            (
                "blocks that do not say how much was asked for, so that all of their bytes count",
                self.unsized_blocks,
            ),
            (
                "segments that are not as large as their blocks, which are believed",
                self.unfilled_segments,
            ),
            (
                "annotations that are neither START nor END, left out",
                self.odd_stages,
            ),
        ];
        let counted = counted.iter().filter(|(_, count)| *count > 0);
        sentences.extend(counted.map(|(what, count)| format!("{what}: {count}")));
        if self.has_overflowed {
            sentences.push(
                "the history was longer than PyTorch kept: its beginning is lost (max_entries of \
                 _record_memory_history)"
                    .to_owned(),
            );
        }
        sentences
    }
}
