//! Finds the recorded entries of a workload's requests.

use std::collections::HashMap;

use coalesce_alloc::history::Action;
use coalesce_workloads::demand::Demand;
use coalesce_workloads::formats::snapshot::{Recording, StackId};
use coalesce_workloads::op::{Workload, WorkloadError};
use coalesce_workloads::replay::Tally;

use super::log::{Allocation, Log};

/// The requests of a recording.
///
/// A recorded workload numbers its requests from 0. The last of them are those of the recording; the blocks that
/// were live when it began precede them. Requests may be missing from a log, because the workload ends or skips
/// requests when one fails.
#[derive(Debug)]
pub(super) struct RecordedRequests<'a> {
    pub recording: &'a Recording,
    /// The entries that end a request, in order.
    entries: Vec<u32>,
    /// Number of requests before the first recorded one.
    before: u64,
}

impl<'a> RecordedRequests<'a> {
    pub(super) fn of(
        recording: &'a Recording,
        workload: &dyn Workload,
        log: &Log,
        tally: &Tally,
    ) -> Result<Self, WorkloadError> {
        let requests = match tally.ooms {
            0 => log.allocations.len() as u64,
            _ => Demand::of(workload)?.allocations,
        };
        let entries: Vec<u32> = (0..)
            .zip(&recording.entries)
            .filter(|(_, entry)| entry.action.ends_request())
            .map(|(index, _)| index)
            .collect();
        Ok(Self {
            recording,
            before: requests.saturating_sub(entries.len() as u64),
            entries,
        })
    }

    /// The entry of a request; `None` for a block that was live when the recording began.
    pub(super) fn entry_of(&self, allocation: &Allocation) -> Option<usize> {
        let index = usize::try_from(allocation.id.checked_sub(self.before)?).ok()?;
        self.entries.get(index).map(|&entry| entry as usize)
    }

    /// The first event at or after a time.
    pub(super) fn event_at(&self, log: &Log, time_us: u64) -> u64 {
        let is_before = |&entry: &u32| {
            let entry = self.recording.entries.get(entry as usize);
            entry.is_some_and(|entry| entry.time_us < time_us)
        };
        let requests = self.entries.partition_point(is_before);
        let next = self.before + requests as u64;
        let index = log.allocations.partition_point(|a| a.id < next);
        let next = log.allocations.get(index).map_or(log.end(), |a| a.born);
        let last = requests
            .checked_sub(1)
            .and_then(|last| self.entries.get(last));
        let (Some(&last), Some(request)) = (last, index.checked_sub(1)) else {
            return next;
        };
        // The frees between two requests are events, too.
        let after = self.recording.entries.iter().skip(last as usize + 1);
        let until = after.take_while(|entry| entry.time_us < time_us);
        let frees = until
            .filter(|entry| entry.action == Action::FreeCompleted)
            .count();
        let request = log.allocations.get(request).map_or(0, |a| a.born);
        next.min(request + 1 + frees as u64)
    }

    /// The stacks of the blocks at the end, by the tag of their requests: blocks that were live when the recording
    /// began have no entry, but a stack if they stay live.
    pub(super) fn stacks_by_tag(&self) -> HashMap<String, StackId> {
        let stacks = self.recording.block_stacks.values();
        let mut ids: Vec<StackId> = stacks.copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let tagged = ids.into_iter().rev().filter_map(|id| {
            let stack = self.recording.stacks.get(id.0 as usize)?;
            Some((stack.origin(), id))
        });
        tagged.filter(|(tag, _)| !tag.is_empty()).collect()
    }
}
