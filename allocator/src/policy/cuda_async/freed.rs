//! Memory freed on one stream, apart from other free memory.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::base::gaps::Gaps;
use crate::driver::{Driver, EventId, StreamId};
use crate::policy::Served;

use super::marks::Marks;

/// The stream itself may use all of it. Other streams may use the complete gaps: those whose mark, an event behind the
/// work that the stream had at the free, is complete.
///
/// Invariant: `turns` has exactly the starts of the gaps.
#[derive(Debug, Default)]
pub(super) struct Freed {
    gaps: Gaps,
    /// When each gap was freed, by its start. A gap that grows is freed anew, and what remains of a gap keeps its turn.
    turns: HashMap<u64, u64>,
    /// Turns are counted from 1.
    last_turn: u64,
    /// The marks of the gaps, by turn.
    marks: Marks,
}

impl Freed {
    /// All gaps: start and bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.gaps.iter()
    }

    /// Adds a freed range, joined with the gaps beside it. If the device fails, nothing is added.
    pub(super) fn give(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
        start: u64,
        bytes: u64,
    ) -> Served {
        let turn = self.last_turn + 1;
        self.marks.set(device, stream, turn)?;
        self.last_turn = turn;
        let after = self.turns.remove(&(start + bytes));
        let gap = self.gaps.give(start, bytes, 0..u64::MAX);
        let before = self.turns.insert(gap, turn);
        for joined in after.into_iter().chain(before) {
            self.marks.remove(joined);
        }
        Ok(())
    }

    /// Makes all gaps wait for the last mark.
    pub(super) fn keep_last_mark(&mut self) {
        self.marks.keep_last();
    }

    /// Queries which gaps are complete.
    pub(super) fn query(&mut self, device: &mut dyn Driver) -> Served {
        self.marks.query(device)
    }

    /// Takes the first `bytes` of the smallest gap that is large enough. Among equal gaps it is the oldest. Returns its
    /// start.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let (start, length) = self.gaps.fitting(bytes).next()?;
        Some(self.take_of(start, length, bytes))
    }

    /// Takes the first `bytes` of the smallest gap that is large enough, if it is complete. Otherwise it takes those of the
    /// complete gap that was freed first. Returns the start.
    pub(super) fn take_complete(&mut self, bytes: u64) -> Option<u64> {
        let is_complete = |start: u64| self.marks.is_complete(self.turns[&start]);
        let (best, length) = self.gaps.fitting(bytes).next()?;
        let (start, length) = if is_complete(best) {
            (best, length)
        } else {
            let others = self.gaps.fitting(bytes).skip(1);
            others
                .filter(|&(start, _)| is_complete(start))
                .min_by_key(|(start, _)| self.turns[start])?
        };
        Some(self.take_of(start, length, bytes))
    }

    fn take_of(&mut self, start: u64, length: u64, bytes: u64) -> u64 {
        self.gaps.take(start, bytes);
        if let Some(turn) = self.turns.remove(&start) {
            if length > bytes {
                self.turns.insert(start + bytes, turn);
            } else {
                self.marks.remove(turn);
            }
        }
        start
    }

    /// Returns the mark that a stream must wait for before it takes `bytes`. `None` if no gap is large enough, or the gap is
    /// complete.
    pub(super) fn mark_of(&self, bytes: u64) -> Option<EventId> {
        let (start, _) = self.gaps.fitting(bytes).next()?;
        self.marks.pending(self.turns[&start])
    }

    /// Removes the complete gaps. Returns them, those freed last first: start and bytes.
    pub(super) fn drain_complete(&mut self) -> Vec<(u64, u64)> {
        let turns = self.turns.iter().map(|(&start, &turn)| (turn, start));
        let mut complete: Vec<(u64, u64)> = turns
            .filter(|&(turn, _)| self.marks.is_complete(turn))
            .collect();
        complete.sort_unstable_by_key(|&(turn, _)| Reverse(turn));
        let gap = |(_, start)| {
            self.turns.remove(&start);
            Some((start, self.gaps.remove(start)?))
        };
        complete.into_iter().filter_map(gap).collect()
    }

    /// Removes all gaps, as all work is complete. Returns them, those freed last first: start and bytes.
    pub(super) fn drain(&mut self) -> Vec<(u64, u64)> {
        self.marks.clear();
        self.drain_complete()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};

    const STREAM: StreamId = StreamId::nth(1);

    /// A device on which work is pending until it is completed.
    fn device() -> SimDevice {
        SimDevice::new(&SimConfig {
            hold_events: true,
            ..SimConfig::default()
        })
    }

    fn freed(device: &mut SimDevice, gaps: &[(u64, u64)]) -> Freed {
        let mut freed = Freed::default();
        for &(start, bytes) in gaps {
            freed.give(device, STREAM, start, bytes).unwrap();
        }
        freed
    }

    fn complete(device: &mut SimDevice, freed: &mut Freed, frees: u64) {
        device.streams_mut().complete(STREAM, frees);
        freed.query(device).unwrap();
    }

    #[test]
    fn if_the_best_fit_is_pending_the_complete_gap_freed_first_is_taken() {
        let mut device = device();
        let mut freed = freed(&mut device, &[(0, 8), (10, 6), (20, 4), (30, 5)]);
        complete(&mut device, &mut freed, 3);
        assert_eq!(freed.take_complete(4), Some(20), "the best fit");
        assert_eq!(freed.take_complete(5), Some(0), "neither 5 nor 6");
    }

    #[test]
    fn the_last_mark_can_hold_for_all_gaps() {
        let mut device = device();
        let mut freed = freed(&mut device, &[(0, 5), (10, 6)]);
        freed.keep_last_mark();
        complete(&mut device, &mut freed, 1);
        assert_eq!(freed.take_complete(5), None);
        assert!(freed.mark_of(5).is_some());
        complete(&mut device, &mut freed, 1);
        assert_eq!(freed.take_complete(5), Some(0));
    }
}
