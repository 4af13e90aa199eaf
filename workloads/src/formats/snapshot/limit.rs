//! How much memory the recorded process could reserve.
//!
//! Neither the device memory nor a limit (`torch.cuda.set_per_process_memory_fraction`) is recorded, but the
//! history brackets what was possible:
//!
//! - What was reserved was possible.
//! - Reserved memory and a new segment were too much together where a request failed, and where a request
//!   returned cached memory before it took new memory (a retry).
//!
//! An entry about a failed request also contains the free memory of the device. If the segment would have
//! fitted into it, a limit refused the request; otherwise the device was full, and the process could have
//! reserved the free memory as well.
//!
//! Source: PyTorch 2.11, `alloc_block`. The limit is compared with reserved memory and the whole segment,
//! also where an expandable segment needs a page only.

use std::ops::Range;

use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_alloc::pytorch::size;
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::PoolKind;

use super::Recording;
use super::calls::{Call, CallKind, calls};

/// Bytes that the recorded process could reserve, as a bracket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryLimit {
    /// Bytes that the process could reserve.
    pub at_least: u64,
    /// Bytes that it could not reserve.
    pub below: u64,
    /// Why it could not.
    pub cause: LimitCause,
    /// The refusal that `below` follows from.
    pub evidence: Refusal,
    /// The last failed request.
    pub failure: Option<Refusal>,
    /// Whether the bounds of the whole recording contradict each other, so that the limit or the memory of
    /// other processes changed. The bracket is then that of the last refusal.
    pub changed: bool,
}

impl MemoryLimit {
    /// Bytes of the device that this process could use at the last failed request, without a limit.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        self.failure?.device()
    }
}

/// Why memory was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LimitCause {
    /// A limit of the process: the device had enough free memory.
    Limit,
    /// The device was full.
    Device,
    /// Either: no request failed, so the free memory is not recorded.
    Unknown,
}

/// A segment that could not be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Bytes of the request; rounded, if it failed.
    pub requested: u64,
    /// Bytes of the segment for it, or of the pages that it needs at most.
    pub segment: u64,
    /// Bytes reserved when it was refused.
    pub reserved: u64,
    /// Free bytes of the device, if the request failed in the end.
    pub free: Option<u64>,
    /// Whether the device had room for the segment, if its free memory is known.
    pub had_room: Option<bool>,
}

impl Refusal {
    /// Bytes that the process could not reserve.
    fn too_much(&self) -> u64 {
        self.reserved.saturating_add(self.segment)
    }

    /// Bytes of the device that this process could use at that time without a limit: its reserved memory and the
    /// free memory of the device.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        self.free.map(|free| self.reserved.saturating_add(free))
    }
}

impl Recording {
    /// How much memory the process could reserve, if memory was refused.
    #[must_use]
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        let settings = self.settings().ok()?.settings;
        let reserved = self.reserved_before_entries();
        let collects_garbage = settings.garbage_collection_threshold() > 0.0;
        let calls = calls(self, collects_garbage);
        let refusals: Vec<Refusal> = calls
            .iter()
            .filter_map(|call| self.refusal(call, &reserved, &settings))
            .collect();
        let last = refusals.last()?;
        let failed = || refusals.iter().filter(|refusal| refusal.free.is_some());
        let failure = failed().next_back().copied();
        let cause = match failure.and_then(|refusal| refusal.had_room) {
            Some(true) => LimitCause::Limit,
            Some(false) => LimitCause::Device,
            None => LimitCause::Unknown,
        };
        // A full device held what was reserved and what was free.
        let possible = |refusal: &Refusal| match refusal.had_room {
            Some(false) => refusal.device(),
            _ => None,
        };
        let granted = calls.iter().filter_map(|call| {
            let taken = self.granted(call, &reserved, &settings)?;
            Some(match cause {
                LimitCause::Device => taken.after,
                LimitCause::Limit | LimitCause::Unknown => taken.checked,
            })
        });
        // The last page of expandable segments may exceed a limit.
        let unsure = if settings.expandable_segments() {
            size::page_size(PoolKind::Large, &settings)
        } else {
            0
        };
        let at_start = reserved.first().map(|start| start.saturating_sub(unsure));
        let granted = granted.chain(at_start);
        let at_least = granted.chain(failed().filter_map(possible)).max()?;
        let tightest = refusals.iter().min_by_key(|refusal| refusal.too_much())?;
        let changed = at_least >= tightest.too_much();
        let (at_least, evidence) = if changed {
            (possible(last).unwrap_or(last.reserved), last)
        } else {
            (at_least, tightest)
        };
        Some(MemoryLimit {
            at_least,
            below: evidence.too_much().max(at_least.saturating_add(1)),
            cause,
            evidence: *evidence,
            failure,
            changed,
        })
    }

    /// The entries about failed requests.
    pub fn failures(&self) -> impl DoubleEndedIterator<Item = &TraceEntry> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.action == Action::Oom)
    }

    /// The most bytes that were reserved at any time.
    #[must_use]
    pub fn peak_reserved(&self) -> u64 {
        let reserved = self.reserved_before_entries().into_iter();
        reserved.max().unwrap_or_default()
    }

    /// The reserved bytes before each entry, and after the last.
    pub(super) fn reserved_before_entries(&self) -> Vec<u64> {
        let segments = self.segments.iter().map(SegmentInfo::total_size);
        let mut reserved = segments.fold(0, u64::saturating_add);
        let mut before = vec![reserved];
        // Backwards, because only the state at the end is known.
        for entry in self.entries.iter().rev() {
            match entry.action {
                action if action.takes_memory() => reserved = reserved.saturating_sub(entry.size),
                action if action.returns_memory() => reserved = reserved.saturating_add(entry.size),
                _ => {}
            }
            before.push(reserved);
        }
        before.reverse();
        before
    }

    /// The memory that a call was granted.
    fn granted(&self, call: &Call, reserved: &[u64], settings: &Settings) -> Option<Granted> {
        let Range { start, end } = call.entries();
        let entries = self.entries.get(start..end)?;
        let last = entries.last().filter(|_| call.kind == CallKind::Malloc)?;
        let takes = |entry: &TraceEntry| entry.action.takes_memory();
        let first = start + entries.iter().position(takes)?;
        let segment = size::segment_size(size::round_size(last.size, settings)?, settings)?;
        Some(Granted {
            after: *reserved.get(end)?,
            checked: reserved.get(first)?.saturating_add(segment),
        })
    }

    /// The refusal in a call: of a request that failed, or that returned memory because it was refused some.
    fn refusal(&self, call: &Call, reserved: &[u64], settings: &Settings) -> Option<Refusal> {
        let Range { start, end } = call.entries();
        let entries = self.entries.get(start..end)?;
        let last = entries.last()?;
        let refused_at = match (call.kind, last.action) {
            // Refused again after everything was returned.
            (CallKind::FailedMalloc, Action::Oom) => end - 1,
            // The garbage collector returns memory before any is refused.
            (CallKind::Malloc, Action::Alloc)
                if settings.garbage_collection_threshold() == 0.0 && retried(entries) =>
            {
                start
            }
            _ => return None,
        };
        let block = size::round_size(last.size, settings)?;
        let segment = size::segment_size(block, settings)?;
        // From the device, expandable segments take whole pages.
        let most = if settings.expandable_segments() {
            let page = size::page_size(size::pool_kind(block), settings);
            block.checked_next_multiple_of(page)?.max(segment)
        } else {
            segment
        };
        let free = (last.action == Action::Oom).then_some(last.addr.0);
        let had_room = free.map(|free| free >= most);
        Some(Refusal {
            requested: last.size,
            segment: if had_room == Some(true) {
                segment
            } else {
                most
            },
            reserved: *reserved.get(refused_at)?,
            free,
            had_room,
        })
    }
}

/// Memory that a request was granted.
struct Granted {
    /// Bytes reserved after it.
    after: u64,
    /// Bytes that did not exceed the limit. With expandable segments fewer or more are reserved, because these
    /// take whole pages, and only where memory is missing.
    checked: u64,
}

/// Whether a request returned memory and then took some.
fn retried(entries: &[TraceEntry]) -> bool {
    let returned = entries
        .iter()
        .position(|entry| entry.action.returns_memory());
    returned.is_some_and(|at| {
        entries[at..]
            .iter()
            .any(|entry| entry.action.takes_memory())
    })
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::PyTorch;
    use coalesce_alloc::driver::StreamId;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::error::Error;
    use coalesce_alloc::history::HistoryOptions;

    use super::*;
    use crate::families::rng::Rng;

    const MIB: u64 = 1 << 20;
    const ROOM: u64 = 1 << 36;

    fn allocator(conf: &str, capacity: u64, others: u64) -> PyTorch<SimDevice> {
        let device = SimDevice::new(&SimConfig {
            foreign: others,
            ..SimConfig::with_capacity(capacity)
        });
        let mut allocator = PyTorch::new(device, Settings::from_conf(conf).unwrap());
        allocator.record_history(Some(HistoryOptions::default()));
        allocator
    }

    fn recording(conf: &str, allocator: &PyTorch<SimDevice>) -> Recording {
        Recording {
            conf: Some(conf.to_owned()),
            entries: allocator.history().copied().collect(),
            segments: allocator.segments(),
            ..Recording::default()
        }
    }

    /// Runs a random program that survives failed requests.
    fn run(allocator: &mut PyTorch<SimDevice>, seed: u64) {
        let mut rng = Rng::new(seed);
        let mut live = Vec::new();
        for _ in 0..300 {
            if live.is_empty() || rng.happens(5, 9) {
                match allocator.malloc(rng.log_uniform(1, 64 * MIB), StreamId::DEFAULT) {
                    Ok(addr) => live.push(addr),
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            } else {
                let freed = rng.below(live.len() as u64) as usize;
                allocator.free(live.swap_remove(freed)).unwrap();
            }
        }
    }

    /// The last entries of a recording.
    fn end(recording: &Recording, dropped: usize) -> Recording {
        let mut recording = recording.clone();
        recording.entries.drain(..dropped);
        recording
    }

    const CONFS: [&str; 3] = ["", "expandable_segments:True", "max_split_size_mb:32"];

    #[test]
    fn a_limit_is_bracketed_while_the_device_has_room() {
        let mut failed = 0;
        for (seed, conf) in (0..30).zip(CONFS.into_iter().cycle()) {
            let limit = (150 + 5 * seed) * MIB + 12345;
            let mut allocator = allocator(conf, ROOM, 0);
            let fraction = limit as f64 / ROOM as f64;
            allocator.set_memory_fraction(fraction).unwrap();
            run(&mut allocator, seed);
            let recording = recording(conf, &allocator);
            for dropped in [0, recording.entries.len() / 2] {
                let recording = end(&recording, dropped);
                let Some(found) = recording.memory_limit() else {
                    assert_eq!(recording.failures().count(), 0);
                    continue;
                };
                let bracket = found.at_least..found.below;
                assert!(bracket.contains(&limit), "{conf}, {seed}: {found:?}");
                assert!(!found.changed, "{found:?}");
                if recording.failures().count() > 0 {
                    failed += 1;
                    assert_eq!(found.cause, LimitCause::Limit);
                    assert_eq!(found.device(), Some(ROOM));
                }
            }
        }
        assert!(failed > 20, "{failed} recordings with failed requests");
    }

    #[test]
    fn a_full_device_is_told_from_a_limit() {
        let (capacity, others) = (512 * MIB, 130 * MIB);
        let mut failed = 0;
        for (seed, conf) in (0..30).zip(CONFS.into_iter().cycle()) {
            let mut allocator = allocator(conf, capacity, others);
            run(&mut allocator, seed);
            let recording = recording(conf, &allocator);
            let Some(found) = recording.memory_limit() else {
                continue;
            };
            if recording.failures().count() > 0 {
                failed += 1;
                assert_eq!(found.cause, LimitCause::Device, "{conf}, {seed}");
                assert_eq!(found.at_least, capacity - others);
                assert_eq!(found.device(), Some(capacity - others));
            }
            assert!(found.below > capacity - others, "{conf}, {seed}: {found:?}");
        }
        assert!(failed > 10, "{failed} recordings with failed requests");
    }

    #[test]
    fn returned_memory_brackets_the_limit_unless_the_program_returned_it() {
        let program = |limit: u64, empties: bool| {
            let mut allocator = allocator("", ROOM, 0);
            let fraction = limit as f64 / ROOM as f64;
            allocator.set_memory_fraction(fraction).unwrap();
            for bytes in [100 * MIB, 120 * MIB] {
                let addr = allocator.malloc(bytes, StreamId::DEFAULT).unwrap();
                allocator.free(addr).unwrap();
                if empties {
                    allocator.empty_cache().unwrap();
                    allocator.malloc(90 * MIB, StreamId::DEFAULT).unwrap();
                }
            }
            recording("", &allocator).memory_limit()
        };
        let found = program(150 * MIB, false).unwrap();
        assert_eq!((found.at_least, found.below), (120 * MIB, 220 * MIB));
        assert_eq!(found.cause, LimitCause::Unknown);
        assert_eq!(program(1000 * MIB, false), None);
        // A segment of 100 MiB would have served the request of 90 MiB.
        assert_eq!(program(ROOM, true), None);
    }

    #[test]
    fn a_limit_that_changed_is_the_last_one() {
        let mut allocator = allocator("", ROOM, 0);
        let first = allocator.malloc(500 * MIB, StreamId::DEFAULT).unwrap();
        allocator.free(first).unwrap();
        allocator.empty_cache().unwrap();
        allocator
            .set_memory_fraction(100.0 * MIB as f64 / ROOM as f64)
            .unwrap();
        allocator.malloc(60 * MIB, StreamId::DEFAULT).unwrap();
        allocator.malloc(80 * MIB, StreamId::DEFAULT).unwrap_err();
        let found = recording("", &allocator).memory_limit().unwrap();
        assert!(found.changed);
        assert_eq!((found.at_least, found.below), (60 * MIB, 140 * MIB));
    }
}
