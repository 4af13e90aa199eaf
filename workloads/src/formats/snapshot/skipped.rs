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
    use coalesce_alloc::driver::{DeviceAddr, StreamId};

    use super::*;

    #[test]
    fn actions_are_skipped_if_others_prove_that_they_happened() {
        let life = [Alloc, FreeRequested, FreeCompleted];
        let history = [[SegmentAlloc].as_slice(), &life, &life, &[SegmentFree]].concat();
        let skipped = |without: &[Action], history: &[Action]| {
            let kept = history.iter().filter(|action| !without.contains(action));
            let entry = |&action| TraceEntry {
                action,
                addr: DeviceAddr(512),
                size: 512,
                stream: StreamId::DEFAULT,
                time_us: 0,
            };
            actions(&kept.map(entry).collect::<Vec<_>>())
        };
        for without in [
            &[][..],
            &[Alloc],
            &[FreeRequested],
            &[FreeCompleted],
            &[FreeRequested, FreeCompleted],
        ] {
            assert_eq!(skipped(without, &history), without);
        }
        let twice = [&history[..], &history].concat();
        assert_eq!(skipped(&[SegmentFree], &twice), [SegmentFree]);
        assert_eq!(skipped(&[SegmentAlloc], &twice), [SegmentAlloc]);
        // The beginning is missing, or the end was not reached.
        for history in [&history[3..4], &history[2..4], &history[..3], &history[..2]] {
            assert_eq!(skipped(&[], history), []);
        }
    }

    /// The skipped actions of a history of these entries about some addresses.
    fn skipped(history: &[(Action, u64)]) -> Vec<Action> {
        let entries = history.iter().map(|&(action, addr)| TraceEntry {
            action,
            addr: DeviceAddr(addr),
            size: 512,
            stream: StreamId::DEFAULT,
            time_us: 0,
        });
        actions(&entries.collect::<Vec<_>>())
    }

    #[test]
    fn each_proof_is_about_one_address() {
        for (first, then, proven) in [
            (Alloc, Alloc, &[FreeRequested, FreeCompleted][..]),
            (FreeRequested, Alloc, &[FreeCompleted]),
            (Alloc, FreeCompleted, &[FreeRequested]),
            (FreeCompleted, FreeRequested, &[Alloc]),
            (FreeCompleted, FreeCompleted, &[Alloc]),
            (FreeRequested, FreeRequested, &[Alloc, FreeCompleted]),
            (SegmentAlloc, SegmentAlloc, &[SegmentFree]),
            (SegmentFree, SegmentFree, &[SegmentAlloc]),
        ] {
            assert_eq!(
                skipped(&[(first, 1), (then, 1)]),
                proven,
                "{first:?} {then:?}"
            );
            assert_eq!(skipped(&[(first, 1), (then, 2)]), [], "{first:?} {then:?}");
            // Entries that say nothing about the block come between.
            let between = [Action::Snapshot, Action::Oom, Action::SegmentMap].map(|it| (it, 1));
            let apart = [&[(first, 1)][..], &between, &[(then, 1)]].concat();
            assert_eq!(skipped(&apart), proven, "{first:?} {then:?}");
            // Other blocks show that nothing is skipped.
            let others = proven.iter().map(|&action| (action, 9));
            let others: Vec<_> = others.chain([(first, 1), (then, 1)]).collect();
            assert_eq!(skipped(&others), [], "{first:?} {then:?}");
        }
        for (first, then) in [
            (Alloc, FreeRequested),
            (SegmentFree, SegmentAlloc),
            (SegmentAlloc, Alloc),
        ] {
            assert_eq!(skipped(&[(first, 1), (then, 1)]), [], "{first:?} {then:?}");
        }
    }

    #[test]
    fn blocks_and_segments_at_one_address_are_told_apart() {
        // Blocks prove nothing about segments that begin at their addresses, and the other way round.
        assert_eq!(
            skipped(&[
                (Alloc, 1),
                (SegmentAlloc, 1),
                (FreeRequested, 1),
                (FreeCompleted, 1)
            ]),
            []
        );
        let history = [
            (SegmentAlloc, 1),
            (Alloc, 1),
            (SegmentFree, 1),
            (SegmentAlloc, 1),
            (Alloc, 1),
        ];
        assert_eq!(skipped(&history), [FreeRequested, FreeCompleted]);
        let history = [
            (SegmentAlloc, 1),
            (Alloc, 1),
            (FreeRequested, 1),
            (FreeCompleted, 1),
            (SegmentAlloc, 1),
        ];
        assert_eq!(skipped(&history), [SegmentFree]);
    }
}
