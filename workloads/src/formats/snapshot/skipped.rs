//! Actions that a recording leaves out: `skip_actions` of `torch.cuda.memory._record_memory_history`, new in
//! PyTorch 2.11.

use std::collections::{BTreeSet, HashMap};

use coalesce_alloc::history::{Action, TraceEntry};
use foldhash::fast::FixedState;

use Action::{Alloc, FreeCompleted, FreeRequested, SegmentAlloc, SegmentFree};

/// The actions that never occur although other entries prove that they happened, such as an address that is
/// freed twice.
pub(super) fn actions(entries: &[TraceEntry]) -> Vec<Action> {
    let occurs = |action| entries.iter().any(|entry| entry.action == action);
    let all = [
        Alloc,
        FreeRequested,
        FreeCompleted,
        SegmentAlloc,
        SegmentFree,
    ];
    let mut absent = all.to_vec();
    absent.retain(|&action| !occurs(action));
    if absent.is_empty() {
        return absent;
    }
    let is_of_segment = |action| matches!(action, SegmentAlloc | SegmentFree);
    let lacks = |of_segments: bool| absent.iter().any(|&it| is_of_segment(it) == of_segments);
    let (lacks_of_blocks, lacks_of_segments) = (lacks(false), lacks(true));
    let mut proven: BTreeSet<&str> = BTreeSet::new();
    let mut last: HashMap<(bool, u64), Action, FixedState> = HashMap::default();
    for entry in entries {
        let is_segment = is_of_segment(entry.action);
        let can_prove = if is_segment {
            lacks_of_segments
        } else {
            lacks_of_blocks && all.contains(&entry.action)
        };
        if !can_prove {
            continue;
        }
        let before = last.insert((is_segment, entry.addr.0), entry.action);
        let between: &[Action] = match (before, entry.action) {
            (Some(Alloc), Alloc) => &[FreeRequested, FreeCompleted],
            (Some(FreeRequested), Alloc) => &[FreeCompleted],
            (Some(Alloc), FreeCompleted) => &[FreeRequested],
            (Some(FreeCompleted), FreeRequested | FreeCompleted) => &[Alloc],
            (Some(FreeRequested), FreeRequested) => &[FreeCompleted, Alloc],
            (Some(SegmentAlloc), SegmentAlloc) => &[SegmentFree],
            (Some(SegmentFree), SegmentFree) => &[SegmentAlloc],
            _ => &[],
        };
        proven.extend(between.iter().map(|action| action.name()));
    }
    absent.retain(|action| proven.contains(action.name()));
    absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::entries;

    #[test]
    fn actions_are_skipped_if_others_prove_that_they_happened() {
        cases::check("src/formats/snapshot/cases/skipped.txt", |text| {
            let entries = entries(&(text.replace(", ", " 512\n") + " 512"));
            let skipped = actions(&entries);
            if skipped.is_empty() {
                return "nothing".to_owned();
            }
            let names: Vec<&str> = skipped.iter().map(|action| action.name()).collect();
            names.join(", ")
        });
    }
}
