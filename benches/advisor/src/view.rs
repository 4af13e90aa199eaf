//! A replay to look at: every allocation with its holder, and the history of the segments.
//!
//! [`View::bytes`] is all that a viewer needs to show memory after any event: over time by category, the phases of the
//! program, the segments with their blocks, who holds them, and their call stacks. [`web`] is a viewer for browsers.

mod columns;
mod frames;
mod segments;
pub mod web;

use coalesce_alloc::MempoolId;
use coalesce_alloc::stats::PoolKind;
use coalesce_workloads::json;
use serde::Serialize;

pub use self::frames::Frames;
pub use self::segments::{SegmentChange, SegmentHistory};
use crate::diagnose::Evidence;
use crate::diagnose::log::Allocation;
use crate::holders::{Holders, Sources};
use crate::phases::phases;

/// A replay to look at.
pub struct View<'a> {
    evidence: &'a Evidence<'a>,
    sources: Sources,
    segments: SegmentHistory,
}

/// The description of a view, with what its columns refer to.
#[derive(Serialize)]
struct Info<'a> {
    name: &'a str,
    conf: &'a str,
    /// Bytes that the program can reserve.
    available_bytes: u64,
    events: u64,
    /// The columns in order: the name of a table, its length, and the names of its columns.
    tables: [(&'static str, usize, &'static [&'static str]); 2],
    /// The event of the peak of requested memory.
    peak_event: u64,
    /// The event at which the first request failed.
    failed_event: Option<u64>,
    failed_bytes: Option<u64>,
    #[serde(flatten)]
    sources: &'a Sources,
    tags: &'a [String],
    /// The private pools.
    pools: Vec<(u64, u64)>,
    /// The marks, as their event and name.
    marks: Vec<(u64, &'a str)>,
    phases: Vec<PhaseEvents>,
}

/// When a phase is under way.
#[derive(Serialize)]
struct PhaseEvents {
    name: String,
    /// The first event of each time, and the one after the last.
    times: Vec<(u64, u64)>,
}

/// `freed` and `released` are the number of events for a block that stays to the end. A request that failed is freed
/// at once. `stack` is 0 if the stack is unknown, else its number plus 1.
const ALLOCATIONS: &[&str] = &[
    "born", "freed", "released", "address", "bytes", "block", "tag", "source", "stack",
];
/// `taken` is 1 for memory taken from the device and 0 for memory returned. `pool` is 0 for the default pool and n
/// for the n-th private one.
const SEGMENTS: &[&str] = &[
    "event",
    "address",
    "bytes",
    "taken",
    "expandable",
    "small",
    "pool",
    "stream",
];

impl<'a> View<'a> {
    /// The view of a replay.
    ///
    /// # Errors
    /// If the workload cannot be read again.
    pub fn of(evidence: &'a Evidence<'a>) -> anyhow::Result<Self> {
        Ok(Self {
            evidence,
            sources: Sources::of(&Holders::of(evidence)),
            segments: SegmentHistory::of(evidence)?,
        })
    }

    /// The view as bytes: the length of its description as a little-endian 32-bit number, the description as JSON,
    /// and the columns of its tables. `name` is the name of the workload.
    ///
    /// # Errors
    /// Never in practice; see [`json::shown`].
    pub fn bytes(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let log = &self.evidence.log;
        let pools = self.pools();
        let info = json::shown(&self.info(name, &pools))?.into_bytes();
        let mut bytes = u32::try_from(info.len())?.to_le_bytes().to_vec();
        bytes.extend(info);

        let (end, all) = (log.end(), &log.allocations);
        let mut column = |column: &mut dyn Iterator<Item = u64>| columns::push(&mut bytes, column);
        column(&mut all.iter().map(|one| one.born));
        // A request that failed is freed at once.
        let ends =
            |one: &Allocation, event: u64| if one.failed { one.born } else { event.min(end) };
        column(&mut all.iter().map(|one| ends(one, one.freed)));
        let released = all.iter().zip(&self.segments.released);
        column(&mut released.map(|(one, event)| ends(one, *event)));
        column(&mut all.iter().map(|one| one.addr.0));
        column(&mut all.iter().map(|one| one.bytes));
        column(&mut all.iter().map(|one| one.block));
        column(&mut all.iter().map(|one| one.tag.into()));
        column(&mut self.sources.of.iter().map(|&one| one.into()));
        let stacks = (0..all.len()).map(|index| self.evidence.stack_of(index));
        column(&mut stacks.map(|id| id.map_or(0, |id| u64::from(id.0) + 1)));

        let changes = &self.segments.changes;
        let mut column = |of: &dyn Fn(&SegmentChange) -> u64| {
            columns::push(&mut bytes, changes.iter().map(of));
        };
        column(&|one| one.event);
        column(&|one| one.address.0);
        column(&|one| one.bytes);
        column(&|one| one.is_taken.into());
        column(&|one| one.is_expandable.into());
        column(&|one| (one.kind == PoolKind::Small).into());
        column(&|one| {
            let number = pools.iter().position(|pool| *pool == one.pool);
            number.map_or(0, |number| number as u64 + 1)
        });
        column(&|one| one.stream);
        Ok(bytes)
    }

    /// The private pools that segments belong to.
    fn pools(&self) -> Vec<MempoolId> {
        let mut pools: Vec<MempoolId> = Vec::new();
        for change in &self.segments.changes {
            if change.pool != MempoolId::DEFAULT && !pools.contains(&change.pool) {
                pools.push(change.pool);
            }
        }
        pools
    }

    fn info<'i>(&'i self, name: &'i str, pools: &[MempoolId]) -> Info<'i> {
        let log = &self.evidence.log;
        let failure = log.failure();
        let peak = log.peak(&(0..log.end()), |level| level.requested);
        let marks = log.marks.iter();
        Info {
            name,
            conf: self.evidence.subject.conf,
            available_bytes: self.evidence.available(),
            events: log.end(),
            tables: [
                ("allocations", log.allocations.len(), ALLOCATIONS),
                ("segments", self.segments.changes.len(), SEGMENTS),
            ],
            peak_event: peak.map_or(0, |(event, _)| event),
            failed_event: failure.map(|failed| failed.born),
            failed_bytes: failure.map(|failed| failed.bytes),
            sources: &self.sources,
            tags: &log.tags,
            pools: pools.iter().map(|pool| (pool.0, pool.1)).collect(),
            marks: marks.map(|mark| (mark.event, &*mark.tag)).collect(),
            phases: self.phases(),
        }
    }

    /// The phases of the program, if it has several.
    fn phases(&self) -> Vec<PhaseEvents> {
        let log = &self.evidence.log;
        // What is freed before the next request belongs to the phase before.
        let begin = |request: u64| {
            let index = usize::try_from(request).unwrap_or(usize::MAX);
            let first = log
                .allocations
                .get(index)
                .map_or(log.end(), |first| first.born);
            if request == 0 { 0 } else { first }
        };
        let phases = phases(self.evidence);
        let several = phases.iter().filter(|_| phases.len() > 1);
        let events = several.map(|phase| PhaseEvents {
            name: phase.to_string(),
            times: phase
                .times
                .iter()
                .map(|time| (begin(time.start), begin(time.end)))
                .collect(),
        });
        events.collect()
    }
}

#[cfg(test)]
mod tests;
