//! Replays a workload with an allocator.

use std::collections::HashMap;
use std::sync::Arc;

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::snapshot::BlockInfo;
use coalesce_alloc::stats::{DeviceStats, PoolKind};
use foldhash::fast::FixedState;

use crate::budget::MOST_LIVE;
use crate::live::LiveTable;
use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::start::StartState;
use crate::surroundings::Surroundings;

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The allocation has this address.
    Placed(DeviceAddr),
    /// The request failed for lack of memory. Later operations on it are skipped.
    OutOfMemory,
    /// The operation was skipped because its allocation failed.
    Skipped,
    /// The operation succeeded.
    Done,
}

/// A replayed operation.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its index, counted from 0.
    pub event: u64,
    /// The operation.
    pub op: Op<'a>,
    /// What became of it.
    pub outcome: Outcome,
    /// Bytes of the request that it makes or frees, also of a request that failed; 0 for other operations.
    pub bytes: u64,
    /// The statistics of the allocator after it.
    pub stats: &'a DeviceStats,
}

/// Observes a replay.
pub trait Observer {
    /// Called after each operation.
    ///
    /// # Errors
    /// To end the replay.
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError>;
}

/// No observer.
impl Observer for () {
    fn after(&mut self, _: &Step<'_>) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// What a closure does after each operation.
impl<F: FnMut(&Step<'_>) -> Result<(), WorkloadError>> Observer for F {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        self(step)
    }
}

/// Two observers of the same replay.
impl<A: Observer, B: Observer + ?Sized> Observer for (A, &mut B) {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        self.0.after(step)?;
        self.1.after(step)
    }
}

/// Counts of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations of the workload, including marks.
    pub events: u64,
    /// Requests that failed for lack of memory, including those of 2^60 bytes and more, which PyTorch
    /// rejects without counting them.
    pub ooms: u64,
    /// Frees that were skipped because the allocation failed.
    pub skipped_frees: u64,
    /// The first failed request.
    pub first_oom: Option<FirstOom>,
    /// Whether the allocator began with the [recorded segments](crate::start).
    pub begins_as_recorded: bool,
}

/// The state of the allocator at a failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstOom {
    /// The index of the operation.
    pub event: u64,
    /// Bytes of all free blocks.
    pub free_bytes: u64,
    /// Bytes of the largest free block.
    pub largest_free_bytes: u64,
}

impl FirstOom {
    /// The state of `allocator` at `event`.
    fn of<A: Allocator + ?Sized>(event: u64, allocator: &A) -> Self {
        let segments = allocator.segments();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let free = blocks
            .filter(|block| !block.is_active())
            .map(|block| block.size);
        Self {
            event,
            free_bytes: free.clone().sum(),
            largest_free_bytes: free.max().unwrap_or(0),
        }
    }

    /// **Shatter**: 1 − largest free / free, the fragmentation of free memory. None if nothing is free.
    #[must_use]
    pub fn shatter(&self) -> Option<f64> {
        let (largest, free) = (self.largest_free_bytes, self.free_bytes);
        (free > 0).then(|| 1.0 - largest as f64 / free as f64)
    }
}

/// Replays a whole workload. A request that fails for lack of memory does not end the replay. If the
/// allocator was [restored](crate::start) for the workload, the first requests get the restored blocks.
///
/// # Errors
/// If the workload cannot be read, the allocator fails for another reason than lack of memory, or the
/// observer ends the replay.
pub fn replay<A: Allocator + ?Sized, O: Observer + ?Sized>(
    workload: &dyn Workload,
    allocator: &mut A,
    observer: &mut O,
) -> Result<Tally, WorkloadError>
where
    A::Driver: Surroundings,
{
    replay_with(workload, allocator, observer, &mut |_, _| {})
}

/// As [`replay`], and shows `watch` each operation and the allocator after it, for what a [`Step`] does not have.
///
/// # Errors
/// As [`replay`].
pub fn replay_with<A: Allocator + ?Sized, O: Observer + ?Sized>(
    workload: &dyn Workload,
    allocator: &mut A,
    observer: &mut O,
    watch: &mut dyn FnMut(Op<'_>, &A),
) -> Result<Tally, WorkloadError>
where
    A::Driver: Surroundings,
{
    let mut live = LiveTable::default();
    let is_limited = workload.budget().is_limited();
    let mut restored = RestoredBlocks::of(workload, allocator);
    let mut tally = Tally {
        begins_as_recorded: restored.is_some(),
        ..Tally::default()
    };
    workload.emit(&mut |op: Op<'_>| {
        let event = tally.events;
        tally.events += 1;
        let block = restored.as_mut().and_then(|restored| restored.take(op));
        let performed = perform(op, block, allocator, &mut live);
        let (outcome, bytes) =
            performed.map_err(|source| WorkloadError::Allocator { event, source })?;
        match (op, outcome) {
            (_, Outcome::OutOfMemory) => {
                tally.ooms += 1;
                let first = || FirstOom::of(event, allocator);
                tally.first_oom.get_or_insert_with(first);
            }
            (Op::Free { .. }, Outcome::Skipped) => tally.skipped_frees += 1,
            _ => {}
        }
        watch(op, allocator);
        // Between two looks there are not many more.
        const INTERVAL: u64 = 1 << 12;
        if is_limited && event.is_multiple_of(INTERVAL) {
            check_blocks(allocator.stats(), event)?;
        }
        restored.take_if(|restored| restored.blocks.is_empty());
        let partial = restored
            .as_ref()
            .map(|restored| restored.reported(allocator.stats()));
        observer.after(&Step {
            event,
            op,
            outcome,
            bytes,
            stats: partial.as_ref().unwrap_or_else(|| allocator.stats()),
        })?;
        Ok(match outcome {
            Outcome::OutOfMemory => Answer::OutOfMemory,
            _ => Answer::Done,
        })
    })?;
    Ok(tally)
}

/// Fails if too many blocks of an input are allocated or wait for a stream.
fn check_blocks(stats: &DeviceStats, event: u64) -> Result<(), WorkloadError> {
    const MOST_BLOCKS: i64 = 2 * MOST_LIVE as i64;
    if stats.active().all().current > MOST_BLOCKS {
        Err(WorkloadError::Stopped(format!(
            "event {event}: more than {MOST_BLOCKS} blocks are allocated or wait for a stream, the most that are kept; do \
             frees that wait never complete?"
        )))
    } else {
        Ok(())
    }
}

/// As [`replay`], but ends after the operation `event`.
///
/// # Errors
/// As [`replay`].
pub fn replay_until<A: Allocator + ?Sized, O: Observer + ?Sized>(
    workload: &dyn Workload,
    allocator: &mut A,
    event: u64,
    observer: &mut O,
) -> Result<(), WorkloadError>
where
    A::Driver: Surroundings,
{
    let mut until = Until {
        event,
        is_reached: false,
        observer,
    };
    match replay(workload, allocator, &mut until) {
        Err(_) if until.is_reached => Ok(()),
        ended => ended.map(|_| ()),
    }
}

/// Ends a replay after an operation.
struct Until<'o, O: ?Sized> {
    event: u64,
    is_reached: bool,
    observer: &'o mut O,
}

impl<O: Observer + ?Sized> Observer for Until<'_, O> {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        self.observer.after(step)?;
        self.is_reached = step.event >= self.event;
        if self.is_reached {
            Err(WorkloadError::Stopped("seen enough".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// The blocks that were restored with the allocator and not requested yet, by address. The requests for
/// them are answered one by one, and the statistics that observers see count a block from its request on.
struct RestoredBlocks<'w> {
    start: &'w StartState,
    blocks: HashMap<DeviceAddr, (PoolKind, BlockInfo), FixedState>,
    /// The number, bytes and requested bytes of `blocks`, by kind.
    sums: [(PoolKind, [u64; 3]); 2],
}

impl<'w> RestoredBlocks<'w> {
    /// The blocks of a restored allocator; none for any other.
    fn of<A: Allocator + ?Sized>(workload: &'w dyn Workload, allocator: &A) -> Option<Self> {
        let is_reserved = |_: &&Arc<StartState>| allocator.stats().reserved_bytes.all().current > 0;
        let start = workload.start().filter(is_reserved)?;
        let segments = allocator.segments();
        let blocks: HashMap<_, _, FixedState> = segments
            .iter()
            .flat_map(|segment| {
                let allocated = segment.blocks.iter().filter(|block| block.is_allocated());
                allocated.map(|&block| (block.address, (segment.kind, block)))
            })
            .collect();
        let mut sums = [PoolKind::Small, PoolKind::Large].map(|kind| (kind, [0; 3]));
        for &block in blocks.values() {
            add(&mut sums, block, u64::wrapping_add);
        }
        Some(Self {
            start,
            blocks,
            sums,
        })
    }

    /// The address of the restored block that this operation requests, if any.
    fn take(&mut self, op: Op<'_>) -> Option<DeviceAddr> {
        let Op::Malloc { id, .. } = op else {
            return None;
        };
        let addr = self.start.address_of(id)?;
        let block = self.blocks.remove(&addr)?;
        add(&mut self.sums, block, u64::wrapping_sub);
        Some(addr)
    }

    /// The statistics without the blocks that were not requested yet. Until all are, only the requested
    /// blocks count as reserved, so that memory is at its peak no sooner than the program uses it.
    fn reported(&self, stats: &DeviceStats) -> DeviceStats {
        let mut stats = stats.clone();
        for (kind, [number, bytes, requested]) in self.sums {
            stats.allocation.take_back(kind, number);
            stats.allocated_bytes.take_back(kind, bytes);
            stats.requested_bytes.take_back(kind, requested);
            let allocated = stats.allocated_bytes.of(kind).current;
            stats.reserved_bytes.set_current(kind, allocated);
            stats.inactive_split.set_current(kind, 0);
            stats.inactive_split_bytes.set_current(kind, 0);
        }
        stats
    }
}

/// Adds a block to the sums of its kind, or subtracts it.
fn add(
    sums: &mut [(PoolKind, [u64; 3]); 2],
    (kind, block): (PoolKind, BlockInfo),
    by: fn(u64, u64) -> u64,
) {
    for (_, [number, bytes, requested]) in sums.iter_mut().filter(|(other, _)| *other == kind) {
        *number = by(*number, 1);
        *bytes = by(*bytes, block.size);
        *requested = by(*requested, block.requested_size);
    }
}

/// A request whose free has not come.
struct Live {
    /// None if it failed.
    addr: Option<DeviceAddr>,
    bytes: u64,
}

/// Performs an operation. A malloc gets the restored `block`, if there is one. Returns the outcome and the bytes of the
/// request that the operation makes or frees.
fn perform<A: Allocator + ?Sized>(
    op: Op<'_>,
    block: Option<DeviceAddr>,
    allocator: &mut A,
    live: &mut LiveTable<Live>,
) -> Result<(Outcome, u64), Error>
where
    A::Driver: Surroundings,
{
    let mut size = 0;
    let outcome = match op {
        Op::Malloc {
            id, bytes, stream, ..
        } => {
            size = bytes;
            let placed = match block {
                Some(addr) => Ok(addr),
                None => allocator.malloc(bytes, StreamId::nth(stream)),
            };
            let (addr, outcome) = match placed {
                Ok(addr) => (Some(addr), Outcome::Placed(addr)),
                Err(error) if error.is_out_of_memory() => (None, Outcome::OutOfMemory),
                Err(error) => return Err(error),
            };
            live.insert(id, Live { addr, bytes });
            outcome
        }
        Op::Free { id } => {
            let freed = live.remove(id);
            size = freed.as_ref().map_or(0, |freed| freed.bytes);
            match freed.and_then(|freed| freed.addr) {
                Some(addr) => {
                    allocator.free(addr)?;
                    Outcome::Done
                }
                None => Outcome::Skipped,
            }
        }
        Op::RecordStream { id, stream } => match live.get(id).and_then(|live| live.addr) {
            Some(addr) => {
                allocator.record_stream(addr, StreamId::nth(stream))?;
                Outcome::Done
            }
            None => Outcome::Skipped,
        },
        Op::EmptyCache => {
            allocator.empty_cache()?;
            Outcome::Done
        }
        Op::Pool(call) => {
            allocator.pool_call(call)?;
            Outcome::Done
        }
        Op::Limit { bytes } => {
            if !allocator.set_memory_limit(bytes) {
                allocator.driver_mut().set_limit(bytes);
            }
            Outcome::Done
        }
        Op::Surroundings(change) => {
            allocator.driver_mut().change(change);
            Outcome::Done
        }
        Op::Mark { .. } => Outcome::Done,
    };
    Ok((outcome, size))
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::stats::{Stat, StatArray};

    use super::*;

    /// Frees that wait for streams would otherwise fill the memory of the host.
    #[test]
    fn twice_as_many_blocks_as_requests_may_be_live_are_kept() {
        let most = 2 * MOST_LIVE as i64;
        let stats = |blocks: i64| DeviceStats {
            allocation: StatArray::new(
                Stat {
                    current: blocks,
                    ..Stat::default()
                },
                Stat::default(),
                blocks,
            ),
            ..DeviceStats::default()
        };
        check_blocks(&stats(most), 7).unwrap();
        let error = check_blocks(&stats(most + 1), 7).unwrap_err().to_string();
        let expected = "event 7: more than 8388608 blocks are allocated or wait for a stream, the most that are kept";
        assert!(error.contains(expected), "{error}");
    }
}
