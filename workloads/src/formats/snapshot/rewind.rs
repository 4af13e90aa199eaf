//! Reconstructs the state at the start of a recording from the state at its end.
//!
//! The entries are undone one by one, starting from the last: undoing an allocation frees its block, and
//! undoing a free takes a block out of a free range. The free ranges are certain, because adjacent free
//! blocks are always coalesced. [`Start::remarks`] lists what remains unknown.

mod kinds;
mod segment;

use std::collections::BTreeMap;
use std::fmt;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::printable::printable;
use coalesce_alloc::pytorch::restore::{self, RestoreError};
use coalesce_alloc::pytorch::size::SMALL_SEGMENT;
use coalesce_alloc::settings::{Settings, SettingsError};
use coalesce_alloc::snapshot::{BlockState, SegmentInfo};
use coalesce_alloc::stats::PoolKind;

pub(super) use self::kinds::kind_of;
use self::kinds::{KindsByAddress, kinds_of_unmapped};
use self::segment::Segment;
use super::settings::KnownSettings;
use super::{Recording, skipped};

/// The state before the first entry.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Start {
    /// The segments, by address.
    pub segments: Vec<SegmentInfo>,
    /// Blocks that may have been up to 1 MiB larger, by address: they were freed before another entry
    /// revealed their end.
    pub guessed: Vec<DeviceAddr>,
    /// Unknown properties of this state, one sentence each.
    pub remarks: Vec<String>,
}

impl Start {
    /// Whether memory was reserved before the first entry.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        !self.segments.is_empty()
    }
}

/// The reason why PyTorch's allocator cannot have made a recording, or why it is incomplete.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// Its settings are invalid.
    #[error("the settings: {0}")]
    Settings(#[from] SettingsError),
    /// Some actions were not recorded.
    #[error(
        "the recording leaves out all entries {} (skip_actions of _record_memory_history), so it cannot be \
         replayed; record without skip_actions",
        names(.0)
    )]
    Skipped(Vec<Action>),
    /// The state at the end is impossible.
    #[error("the state at the end is impossible: {0}")]
    End(#[source] RestoreError),
    /// The state at the start is impossible.
    #[error("the state at the start is impossible: {0}")]
    Start(#[source] RestoreError),
    /// An entry contradicts the entries after it.
    #[error("entry {index} ({}) is impossible: {reason}", Summary(entry))]
    Entry {
        /// Its index, counted from the oldest entry.
        index: usize,
        /// The entry.
        entry: TraceEntry,
        /// The contradiction.
        reason: String,
    },
    /// The time limit of a verification.
    #[error("time ran out")]
    Unfinished,
}

/// The names of actions, in a list.
fn names(actions: &[Action]) -> String {
    let names: Vec<_> = actions.iter().map(|action| action.name()).collect();
    names.join(", ")
}

/// An entry in a line.
struct Summary<'a>(&'a TraceEntry);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceEntry {
            action, addr, size, ..
        } = self.0;
        write!(f, "{} of {size} bytes at {addr}", action.name())
    }
}

/// Undoes all entries of a recording. The `known` settings determine the size of the block for a request.
///
/// # Errors
/// [`RecordingError`] if the state at the end, an entry or the state at the start is impossible.
pub fn rewind(recording: &Recording, known: &KnownSettings) -> Result<Start, RecordingError> {
    let settings = &known.settings;
    restore::ensure_possible(&recording.segments).map_err(RecordingError::End)?;
    let skipped = skipped::actions(&recording.entries);
    if !skipped.is_empty() {
        return Err(RecordingError::Skipped(skipped));
    }
    let mut past = Past {
        settings,
        kinds: KindsByAddress::of(recording, settings),
        unmapped: kinds_of_unmapped(recording, settings),
        segments: recording
            .segments
            .iter()
            .map(|info| (info.address, Segment::new(info)))
            .collect(),
    };
    for (index, entry) in recording.entries.iter().enumerate().rev() {
        let pool = || match entry.action {
            // A segment at the end that has its address was taken later.
            Action::SegmentFree if recording.entry_pools.is_empty() => MempoolId::DEFAULT,
            _ => recording.pool_of(index),
        };
        past.undo(index, entry, pool)
            .map_err(|reason| RecordingError::Entry {
                index,
                entry: *entry,
                reason,
            })?;
    }
    let guessed: Vec<_> = past.segments.values().flat_map(Segment::guessed).collect();
    let remarks = past.remarks(recording, known, guessed.len());
    let segments: Vec<_> = past
        .segments
        .into_values()
        .map(Segment::into_info)
        .collect();
    // Undone segments may overlap; report that here rather than when the state is restored.
    restore::ensure_possible(&segments).map_err(RecordingError::Start)?;
    Ok(Start {
        segments,
        guessed,
        remarks,
    })
}

/// The state while entries are undone.
struct Past<'a> {
    settings: &'a Settings,
    kinds: KindsByAddress,
    /// The pool kinds of the pages that entries unmap, by the index of the entry.
    unmapped: BTreeMap<usize, PoolKind>,
    segments: BTreeMap<DeviceAddr, Segment>,
}

impl Past<'_> {
    fn undo(
        &mut self,
        index: usize,
        entry: &TraceEntry,
        pool: impl FnOnce() -> MempoolId,
    ) -> Result<(), String> {
        let &TraceEntry { addr, size, .. } = entry;
        match entry.action {
            Action::Alloc => self.segment_around(addr)?.undo_alloc(addr, size),
            Action::FreeRequested => self.segment_around(addr)?.undo_free_request(addr),
            Action::FreeCompleted => {
                let settings = self.settings;
                self.segment_around(addr)?.undo_free(addr, size, settings)
            }
            Action::SegmentAlloc => self.undo_segment_alloc(addr, size),
            Action::SegmentFree => self.undo_segment_free(entry, pool()),
            Action::SegmentMap => self.undo_map(addr, size),
            Action::SegmentUnmap => self.undo_unmap(index, entry, pool()),
            Action::Snapshot | Action::Oom => Ok(()),
        }
    }

    fn segment_around(&mut self, addr: DeviceAddr) -> Result<&mut Segment, String> {
        let below = self.segments.range_mut(..=addr).next_back();
        below
            .map(|(_, segment)| segment)
            .filter(|segment| addr < segment.end())
            .ok_or_else(|| "no segment is there after it".to_owned())
    }

    fn undo_segment_alloc(&mut self, addr: DeviceAddr, size: u64) -> Result<(), String> {
        let segment = self.segment_around(addr)?;
        if segment.start() != addr || segment.size() != size || segment.info.is_expandable {
            let (start, bytes) = (segment.start(), segment.size());
            return Err(format!("the segment after it has {bytes} bytes at {start}"));
        }
        if !segment.is_wholly_free() {
            return Err("blocks of the segment are in use before it was taken".to_owned());
        }
        self.segments.remove(&addr);
        Ok(())
    }

    fn undo_segment_free(&mut self, entry: &TraceEntry, pool: MempoolId) -> Result<(), String> {
        let kind = match entry.size {
            SMALL_SEGMENT => PoolKind::Small,
            _ => PoolKind::Large,
        };
        let info = SegmentInfo {
            device: 0,
            address: entry.addr,
            stream: entry.stream,
            kind,
            pool,
            is_expandable: false,
            blocks: Vec::new(),
        };
        self.insert(Segment::free(info, entry.size)?)
    }

    fn insert(&mut self, segment: Segment) -> Result<(), String> {
        let below = self.segments.range(..segment.end()).next_back();
        if let Some((start, other)) = below
            && other.end() > segment.start()
        {
            return Err(format!("the segment at {start} overlaps it"));
        }
        self.segments.insert(segment.start(), segment);
        Ok(())
    }

    /// Removes the pages; the pages before and behind them become separate runs.
    fn undo_map(&mut self, addr: DeviceAddr, size: u64) -> Result<(), String> {
        let run = self.segment_around(addr)?;
        if !run.info.is_expandable {
            return Err("the segment after it is not expandable".to_owned());
        }
        let start = run.start();
        let rest = run.without(addr, size)?;
        self.segments.remove(&start);
        for run in rest {
            self.segments.insert(run.start(), run);
        }
        Ok(())
    }

    /// Adds the pages and joins them with the runs before and behind them.
    fn undo_unmap(
        &mut self,
        index: usize,
        entry: &TraceEntry,
        pool: MempoolId,
    ) -> Result<(), String> {
        let &TraceEntry { addr, size, .. } = entry;
        let end = DeviceAddr(
            addr.0
                .checked_add(size)
                .ok_or("its end exceeds the address space")?,
        );
        let known = self.unmapped.get(&index).copied();
        let kind = known.or_else(|| self.kinds.within(addr, end));
        let is_same = |run: &Segment| {
            let info = &run.info;
            let fits = kind.is_none_or(|kind| kind == info.kind);
            info.is_expandable && info.stream == entry.stream && fits
        };
        let below = self.segments.range(..addr).next_back();
        let before = below
            .map(|(_, run)| run)
            .filter(|run| is_same(run) && run.end() == addr);
        let behind = self.segments.get(&end).filter(|run| is_same(run));
        let touching = before.or(behind);
        let of_touching = touching.map(|run| run.info.kind);
        // For unused pages, the size decides: pages of large blocks are larger.
        let by_size = if size.is_multiple_of(self.settings.large_segment_size()) {
            PoolKind::Large
        } else {
            PoolKind::Small
        };
        let info = SegmentInfo {
            device: 0,
            address: addr,
            stream: entry.stream,
            kind: of_touching.or(kind).unwrap_or(by_size),
            pool: touching.map_or(pool, |run| run.info.pool),
            is_expandable: true,
            blocks: Vec::new(),
        };
        let joins = |other: &&Segment| other.info.kind == info.kind && other.info.pool == info.pool;
        let (before, behind) = (before.filter(joins), behind.filter(joins));
        let (before, behind) = (before.map(Segment::start), behind.map(Segment::start));
        let mut run = Segment::free(info, size)?;
        if let Some(behind) = behind.and_then(|start| self.segments.remove(&start)) {
            run.append(behind);
        }
        if let Some(mut before) = before.and_then(|start| self.segments.remove(&start)) {
            before.append(run);
            run = before;
        }
        self.insert(run)
    }

    /// The unknown properties of this state, the one before the first entry.
    fn remarks(&self, recording: &Recording, known: &KnownSettings, guessed: usize) -> Vec<String> {
        let unknown = known.unknown.iter();
        let release = self.settings.release();
        let unknown = unknown.map(|key| {
            let key = printable(key);
            format!("PyTorch {release} does not know the setting '{key}', which is not simulated")
        });
        let mut remarks: Vec<String> = unknown.collect();
        if recording.conf.is_none() {
            let guess = if self.settings.expandable_segments() {
                "expandable_segments:True, because it has expandable segments"
            } else {
                "the defaults"
            };
            remarks.push(format!(
                "the settings are not recorded; taken to be {guess}"
            ));
        }
        let private = recording
            .segments
            .iter()
            .any(|s| s.pool != MempoolId::DEFAULT);
        let mut entries = recording.entries.iter();
        let returns = entries.any(|entry| entry.action.returns_memory());
        if private && returns && recording.entry_pools.is_empty() {
            remarks.push(
                "the pools of returned segments are not recorded; taken to be the default pool unless \
                 trials show otherwise"
                    .to_owned(),
            );
        }
        if self.segments.is_empty() {
            return remarks;
        }
        if self.settings.garbage_collection_threshold() > 0.0 {
            remarks.push(
                "the ages of free blocks at the first entry, which the garbage collector uses, are not \
                 recorded"
                    .to_owned(),
            );
        }
        if guessed > 0 {
            remarks.push(format!(
                "the exact sizes of {guessed} blocks in use before the first entry are unknown; they may be \
                 up to 1 MiB larger"
            ));
        }
        let pending: usize = self
            .segments
            .values()
            .map(|s| s.count_of(BlockState::ActivePendingFree))
            .sum();
        if pending > 0 {
            remarks.push(format!(
                "blocks freed before the first entry that wait for a stream: {pending}"
            ));
        }
        remarks
    }
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::Release;

    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::{recording, shown};

    /// The segments at the start and what is unknown of it.
    fn rewound(text: &str) -> Result<Vec<String>, RecordingError> {
        let recording = recording(text);
        let start = rewind(&recording, &recording.settings_in(Release::DEFAULT)?)?;
        assert_eq!(start.is_warm(), !start.segments.is_empty());
        let segments = start
            .segments
            .iter()
            .map(|segment| shown(segment, &start.guessed));
        Ok(segments.chain(start.remarks).collect())
    }

    #[test]
    fn entries_are_undone() {
        cases::check(
            "src/formats/snapshot/cases/rewind.txt",
            |text| match rewound(text) {
                Ok(start) if start.is_empty() => "nothing".to_owned(),
                Ok(start) => start.join("\n"),
                Err(error) => error.to_string(),
            },
        );
    }
}
