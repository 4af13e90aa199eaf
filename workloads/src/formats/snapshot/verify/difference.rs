//! The first decision of a replay that differs from the recorded one, and the free blocks it chose from.

use std::fmt;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size;
use coalesce_alloc::snapshot::{BlockState, SegmentInfo};

use super::super::Recording;
use super::super::calls::{Call, CallKind};
use super::super::rewind::RecordingError;
use super::guesses::Guesses;
use super::prepared::Deviation;
use super::trial::Trial;

coalesce_alloc::named! {
    /// What differs first.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum DifferenceKind {
        /// An allocation is at another address.
        #[default]
        Address = "address",
        /// A request fails that was served.
        OutOfMemory = "out of memory",
        /// A request is served that failed.
        Served = "served",
        /// Segments are taken or returned otherwise, or frees complete otherwise.
        Segments = "segments",
        /// The allocator fails.
        Error = "error",
        /// The state at the end.
        End = "end",
    }
}

/// The first decision that differs from the recorded one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Difference {
    /// What differs.
    pub kind: DifferenceKind,
    /// The index of the last entry of the call; none if only the states at the end differ.
    pub entry: Option<usize>,
    /// The difference, in a sentence.
    pub reason: String,
    /// Recorded entries before the call.
    pub before: Vec<TraceEntry>,
    /// The recorded entries of the call.
    pub recorded: Vec<TraceEntry>,
    /// The entries of the replay instead.
    pub ours: Vec<TraceEntry>,
    /// Recorded entries after the call.
    pub after: Vec<TraceEntry>,
    /// For a malloc, the free blocks around the requested size: by size, then address.
    pub candidates: Vec<Candidate>,
}

/// A free block before the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where it begins.
    pub addr: DeviceAddr,
    /// Its size in bytes.
    pub size: u64,
    /// Whether the recorded call took it.
    pub is_recorded: bool,
    /// Whether the replay took it.
    pub is_ours: bool,
}

/// Entries to show before and after the call.
const AROUND: usize = 4;
/// Blocks to show: the smallest that are large enough, and the largest that are not.
const ENOUGH: usize = 4;
const TOO_SMALL: usize = 2;

impl Difference {
    /// Replays up to the call that deviated, and describes the state there.
    pub(super) fn find(
        trial: &Trial<'_>,
        guesses: &Guesses,
        index: usize,
        deviation: Deviation,
    ) -> Result<Self, RecordingError> {
        let prepared = trial.prepared;
        let mut replay = trial.begin(guesses)?;
        for (number, call) in guesses.calls[..index].iter().enumerate() {
            trial.ensure_time(number)?;
            // These calls succeeded in the first replay.
            let _ = replay.make(call);
        }
        let call = &guesses.calls[index];
        let entries = &prepared.recording.entries;
        let end = call.entries().end;
        let recorded = prepared.entries_of(call).to_vec();
        let segments = replay.segments();
        let (kind, mut reason) = reason(call, &recorded, &deviation, &segments);
        if prepared.is_of_unknown_pool(call, &recorded, &deviation.ours) {
            reason.push_str(
                "; this looks like memory of a private pool (torch.cuda.graph or MemPool) that was gone when the \
                 snapshot was written",
            );
        }
        Ok(Self {
            kind,
            entry: Some(end.saturating_sub(1)),
            reason,
            before: entries[call.entries().start.saturating_sub(AROUND)..call.entries().start]
                .to_vec(),
            candidates: candidates(&recorded, &deviation.ours, &segments, |bytes| {
                size::round_size(bytes, &prepared.settings).unwrap_or(bytes)
            }),
            recorded,
            ours: deviation.ours,
            after: entries[end..entries.len().min(end + AROUND)].to_vec(),
        })
    }

    /// The difference between the `replayed` blocks at the end and the recorded ones.
    pub(super) fn at_end(recording: &Recording, replayed: &[SegmentInfo]) -> Option<Self> {
        let (ours, recorded) = (layout(replayed), layout(&recording.segments));
        let same = ours.iter().zip(&recorded);
        let first = same.take_while(|(ours, recorded)| ours == recorded).count();
        let (ours, recorded) = (ours.get(first), recorded.get(first));
        let block = |&(addr, bytes, state): &Block| {
            format!("{bytes} bytes at {addr}, {}", describe_state(state))
        };
        let reason = match (ours, recorded) {
            (None, None) => return None,
            (Some(ours), Some(recorded)) => format!(
                "the replay ends with a block of {} instead of {}",
                block(ours),
                block(recorded)
            ),
            (Some(ours), None) => {
                format!("the replay ends with another block: {}", block(ours))
            }
            (None, Some(recorded)) => {
                format!(
                    "the replay ends without a recorded block: {}",
                    block(recorded)
                )
            }
        };
        let entries = &recording.entries;
        Some(Self {
            kind: DifferenceKind::End,
            entry: None,
            reason,
            before: entries[entries.len().saturating_sub(AROUND)..].to_vec(),
            recorded: Vec::new(),
            ours: Vec::new(),
            after: Vec::new(),
            candidates: Vec::new(),
        })
    }

    /// The place and the reason, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.entry {
            Some(entry) => format!("entry {entry}: {}", self.reason),
            None => format!("at the end: {}", self.reason),
        }
    }
}

/// The address, size and state of a block.
type Block = (DeviceAddr, u64, BlockState);

/// All blocks, by address.
fn layout(segments: &[SegmentInfo]) -> Vec<Block> {
    let mut blocks: Vec<Block> = segments
        .iter()
        .flat_map(|segment| &segment.blocks)
        .map(|block| (block.address, block.size, block.state))
        .collect();
    blocks.sort_by_key(|&(addr, ..)| addr);
    blocks
}

fn describe_state(state: BlockState) -> &'static str {
    match state {
        BlockState::Inactive => "free",
        BlockState::ActiveAllocated => "in use",
        BlockState::ActivePendingFree => "waiting for a stream",
    }
}

fn reason(
    call: &Call,
    recorded: &[TraceEntry],
    deviation: &Deviation,
    segments: &[SegmentInfo],
) -> (DifferenceKind, String) {
    if let Some(error) = &deviation.error {
        let reason = format!("the allocator failed: {error}");
        return (DifferenceKind::Error, reason);
    }
    let wanted = recorded.last().filter(|last| last.action == Action::Alloc);
    let ours = deviation
        .ours
        .last()
        .filter(|last| last.action == Action::Alloc);
    match (call.kind, wanted, ours) {
        (CallKind::Malloc, Some(wanted), Some(ours)) if wanted.addr != ours.addr => {
            let there = describe_address(wanted.addr, segments, recorded);
            let reason = format!(
                "{} bytes are at {} instead of {}, which is {there}",
                wanted.size, ours.addr, wanted.addr
            );
            (DifferenceKind::Address, reason)
        }
        (CallKind::Malloc, Some(wanted), None) => {
            let there = describe_address(wanted.addr, segments, recorded);
            let reason = format!(
                "no memory for {} bytes, recorded at {}, which is {there}",
                wanted.size, wanted.addr
            );
            (DifferenceKind::OutOfMemory, reason)
        }
        (CallKind::FailedMalloc, ..) if ours.is_some() => {
            let reason = "a request succeeds that failed when recorded";
            (DifferenceKind::Served, reason.to_owned())
        }
        _ => {
            let reason = "other segments are taken or returned, or other frees complete";
            (DifferenceKind::Segments, reason.to_owned())
        }
    }
}

/// Describes an address in the state before the call and its `recorded` entries.
fn describe_address(addr: DeviceAddr, segments: &[SegmentInfo], recorded: &[TraceEntry]) -> String {
    let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
    let around =
        blocks.find(|block| block.address <= addr && addr.offset_from(block.address) < block.size);
    let Some(block) = around else {
        let mut taken = recorded.iter().filter(|entry| entry.action.takes_memory());
        let is_new = taken.any(|new| new.addr <= addr && addr.offset_from(new.addr) < new.size);
        return if is_new {
            "in memory that the same call took from the device".to_owned()
        } else {
            "not in memory of this process".to_owned()
        };
    };
    format!(
        "in a block of {} bytes at {}, {}",
        block.size,
        block.address,
        describe_state(block.state)
    )
}

/// The free blocks around the size of a malloc.
fn candidates(
    recorded: &[TraceEntry],
    ours: &[TraceEntry],
    segments: &[SegmentInfo],
    rounded: impl Fn(u64) -> u64,
) -> Vec<Candidate> {
    let request = recorded.last().filter(|last| last.action.ends_request());
    let Some(request) = request else {
        return Vec::new();
    };
    let size = rounded(request.size);
    let kind = size::pool_kind(size);
    let took = |entries: &[TraceEntry], start: DeviceAddr, bytes: u64| {
        let last = entries.last().filter(|last| last.action == Action::Alloc);
        last.is_some_and(|last| last.addr >= start && last.addr.offset_from(start) < bytes)
    };
    let pool = segments
        .iter()
        .filter(|segment| segment.stream == request.stream && segment.kind == kind);
    let mut free: Vec<Candidate> = pool
        .flat_map(|segment| &segment.blocks)
        .filter(|block| !block.is_active())
        .map(|block| Candidate {
            addr: block.address,
            size: block.size,
            is_recorded: took(recorded, block.address, block.size),
            is_ours: took(ours, block.address, block.size),
        })
        .collect();
    free.sort_by_key(|block| (block.size, block.addr));
    let first_fit = free.partition_point(|block| block.size < size);
    let near = first_fit.saturating_sub(TOO_SMALL)..first_fit.saturating_add(ENOUGH);
    let shown = free
        .into_iter()
        .enumerate()
        .filter(|(place, block)| near.contains(place) || block.is_recorded || block.is_ours);
    shown.map(|(_, block)| block).collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary())?;
        for (title, entries) in [
            ("before", &self.before),
            ("recorded", &self.recorded),
            ("replayed", &self.ours),
            ("after", &self.after),
        ] {
            for (index, entry) in entries.iter().enumerate() {
                let title = if index == 0 { title } else { "" };
                let TraceEntry {
                    action,
                    addr,
                    size,
                    stream,
                    ..
                } = entry;
                let name = action.name();
                writeln!(
                    f,
                    "  {title:<10}{name:<15}{addr}  {size} bytes, stream {:#x}",
                    stream.0
                )?;
            }
        }
        for (index, block) in self.candidates.iter().enumerate() {
            let title = if index == 0 { "free" } else { "" };
            let taken = match (block.is_recorded, block.is_ours) {
                (true, true) => "  taken by both",
                (true, false) => "  taken in the recording",
                (false, true) => "  taken in the replay",
                (false, false) => "",
            };
            writeln!(
                f,
                "  {title:<10}{:>15} bytes at {}{taken}",
                block.size, block.addr
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
