//! A workload through an allocator.

use std::collections::HashMap;

use allocator::allocator::Allocator;
use allocator::driver::{DeviceAddr, StreamId};
use allocator::error::Error;
use allocator::stats::DeviceStats;
use foldhash::fast::FixedState;

use crate::op::{Answer, Op, Workload, WorkloadError};
use crate::surroundings::Surroundings;

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// An allocation was made here.
    Placed(DeviceAddr),
    /// There was no memory for it. Later operations on it are skipped.
    OutOfMemory,
    /// The allocation it is about was never made.
    Skipped,
    /// It was done.
    Done,
}

/// One operation that was replayed.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Its number, counted from 0.
    pub event: u64,
    /// The operation.
    pub op: Op<'a>,
    /// What came of it.
    pub outcome: Outcome,
    /// The allocator's statistics after it.
    pub stats: &'a DeviceStats,
}

/// Watches a replay.
pub trait Observer {
    /// Sees each operation once it was done.
    ///
    /// # Errors
    /// If the replay should end here.
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError>;
}

/// Nobody watches.
impl Observer for () {
    fn after(&mut self, _: &Step<'_>) -> Result<(), WorkloadError> {
        Ok(())
    }
}

/// How much was replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Events of the workload, marks included.
    pub events: u64,
    /// Requests that failed for lack of memory, also those of 2^60 bytes and more, which PyTorch
    /// refuses outright and does not count.
    pub ooms: u64,
    /// Frees of allocations that were never made for lack of memory.
    pub skipped_frees: u64,
}

/// Puts a whole workload through an allocator. A request that finds no memory does not end it.
///
/// # Errors
/// If the workload cannot be read, the allocator fails other than for lack of memory, or the
/// observer has seen enough.
pub fn replay<A: Allocator + ?Sized, O: Observer + ?Sized>(
    workload: &dyn Workload,
    allocator: &mut A,
    observer: &mut O,
) -> Result<Tally, WorkloadError>
where
    A::Driver: Surroundings,
{
    let mut tally = Tally::default();
    let mut live: HashMap<u64, DeviceAddr, FixedState> = HashMap::default();
    workload.emit(&mut |op: Op<'_>| {
        let event = tally.events;
        tally.events += 1;
        let outcome = perform(op, allocator, &mut live)
            .map_err(|source| WorkloadError::Allocator { event, source })?;
        match (op, outcome) {
            (_, Outcome::OutOfMemory) => tally.ooms += 1,
            (Op::Free { .. }, Outcome::Skipped) => tally.skipped_frees += 1,
            _ => {}
        }
        let stats = allocator.stats();
        observer.after(&Step {
            event,
            op,
            outcome,
            stats,
        })?;
        Ok(match outcome {
            Outcome::OutOfMemory => Answer::OutOfMemory,
            _ => Answer::Done,
        })
    })?;
    Ok(tally)
}

fn perform<A: Allocator + ?Sized>(
    op: Op<'_>,
    allocator: &mut A,
    live: &mut HashMap<u64, DeviceAddr, FixedState>,
) -> Result<Outcome, Error>
where
    A::Driver: Surroundings,
{
    match op {
        Op::Malloc {
            id, bytes, stream, ..
        } => match allocator.malloc(bytes, StreamId::nth(stream)) {
            Ok(addr) => {
                live.insert(id, addr);
                Ok(Outcome::Placed(addr))
            }
            Err(Error::OutOfMemory(_) | Error::MoreThanOneExabyte) => Ok(Outcome::OutOfMemory),
            Err(error) => Err(error),
        },
        Op::Free { id } => match live.remove(&id) {
            Some(addr) => allocator.free(addr).map(|()| Outcome::Done),
            None => Ok(Outcome::Skipped),
        },
        Op::RecordStream { id, stream } => match live.get(&id) {
            Some(&addr) => allocator
                .record_stream(addr, StreamId::nth(stream))
                .map(|()| Outcome::Done),
            None => Ok(Outcome::Skipped),
        },
        Op::EmptyCache => allocator.empty_cache().map(|()| Outcome::Done),
        Op::Around(change) => {
            allocator.driver_mut().change(change);
            Ok(Outcome::Done)
        }
        Op::Mark { .. } => Ok(Outcome::Done),
    }
}
