//! The log of a replay: each allocation, the memory after each event, and the phases.
//!
//! It takes about 150 bytes per allocation, up to the [budget](coalesce_workloads::budget) of the workload.

use std::collections::HashMap;
use std::ops::Range;

use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::stats::{DeviceStats, StatArray};
use coalesce_workloads::budget::Account;
use coalesce_workloads::op::{Op, Workload, WorkloadError};
use coalesce_workloads::replay::{Observer, Outcome, Step};

/// Everything that happened, in order.
#[derive(Debug, Default)]
pub struct Log {
    /// The requests, in order.
    pub allocations: Vec<Allocation>,
    /// Memory after each event.
    pub levels: Vec<Level>,
    /// The marks, in order.
    pub marks: Vec<Mark>,
    /// The events at which the program emptied the cache.
    pub emptied: Vec<u64>,
    /// The tags of requests, by [`Allocation::tag`].
    pub tags: Vec<String>,
    tag_numbers: HashMap<String, u32>,
    /// The live allocations by id, as indices of `allocations`.
    live: HashMap<u64, usize>,
    before: Counters,
    /// What it takes, if that is limited.
    account: Option<Account>,
}

/// Bytes of memory for each event, with what rules find out about it; for each request, and for each tag.
const PER_EVENT: u64 = size_of::<Level>() as u64 + 8;
const PER_REQUEST: u64 = size_of::<Allocation>() as u64 + 48;
const PER_TAG: u64 = 128;

/// A request and its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocation {
    /// Its id in the workload.
    pub id: u64,
    /// The event of its allocation.
    pub born: u64,
    /// The event of its free; `u64::MAX` if never freed.
    pub freed: u64,
    /// Its address; null if the request failed.
    pub addr: DeviceAddr,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes of its block; 0 if the request failed.
    pub block: u64,
    /// Bytes reserved from the device to serve it.
    pub taken: u64,
    /// The number of its stream.
    pub stream: u32,
    /// Its tag, as an index of [`Log::tags`].
    pub tag: u32,
    /// Whether the request failed.
    pub failed: bool,
    /// Whether the cache was emptied to serve it (a retry).
    pub retried: bool,
}

impl Allocation {
    /// Whether it is live after an event.
    #[must_use]
    pub fn is_live_after(&self, event: u64) -> bool {
        !self.failed && self.born <= event && event < self.freed
    }
}

/// Memory at one moment, in bytes (*requested* ≤ *active* ≤ *reserved*), and the driver calls so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Requested in active blocks.
    pub requested: u64,
    /// In allocated blocks.
    pub allocated: u64,
    /// In blocks that are allocated or wait for a stream.
    pub active: u64,
    /// Reserved from the device.
    pub reserved: u64,
    /// Reserved for small blocks.
    pub reserved_small: u64,
    /// Times memory was taken from the device.
    pub device_allocs: u64,
    /// Times memory was returned to it.
    pub device_frees: u64,
}

/// The beginning of a phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Its event.
    pub event: u64,
    /// The name of the phase.
    pub tag: String,
}

/// Totals that only grow; their differences tell what one event did.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    block_bytes: i64,
    taken_bytes: i64,
    retries: i64,
}

impl Counters {
    fn of(stats: &DeviceStats) -> Self {
        Self {
            block_bytes: stats.allocated_bytes.all().allocated,
            taken_bytes: stats.reserved_bytes.all().allocated,
            retries: stats.num_alloc_retries,
        }
    }
}

impl Log {
    /// An empty log of a workload.
    #[must_use]
    pub fn of(workload: &dyn Workload) -> Self {
        let budget = workload.budget();
        let account = Account::new(workload.name(), budget);
        Self {
            account: budget.is_limited().then_some(account),
            ..Self::default()
        }
    }

    /// Bytes of memory for an operation.
    fn bytes_of(&self, op: Op<'_>) -> u64 {
        let text = |tag: &str| PER_TAG + 2 * tag.len() as u64;
        PER_EVENT
            + match op {
                Op::Malloc { tag, .. } if !self.tag_numbers.contains_key(tag) => {
                    PER_REQUEST + text(tag)
                }
                Op::Malloc { .. } => PER_REQUEST,
                Op::Mark { tag } => text(tag),
                _ => 0,
            }
    }

    /// The number of events.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.levels.len() as u64
    }

    /// Memory after an event.
    #[must_use]
    pub fn level(&self, event: u64) -> Level {
        let index = usize::try_from(event).unwrap_or(usize::MAX);
        self.levels.get(index).copied().unwrap_or_default()
    }

    /// The first of some events after which `figure` is at its maximum, with that maximum; `None` if there
    /// are no events.
    #[must_use]
    pub fn peak(&self, events: &Range<u64>, figure: impl Fn(&Level) -> u64) -> Option<(u64, u64)> {
        let figures = self.levels_in(events).iter().map(figure);
        let (index, most) = figures.enumerate().fold(None, |best, (index, figure)| {
            let is_more = best.is_none_or(|(_, most)| figure > most);
            if is_more { Some((index, figure)) } else { best }
        })?;
        Some((events.start + index as u64, most))
    }

    /// Memory after each of some events.
    #[must_use]
    pub fn levels_in(&self, events: &Range<u64>) -> &[Level] {
        let index = |event: u64| {
            let index = usize::try_from(event).unwrap_or(usize::MAX);
            index.min(self.levels.len())
        };
        self.levels
            .get(index(events.start)..index(events.end))
            .unwrap_or_default()
    }

    /// The allocations requested in some events.
    #[must_use]
    pub fn born_in(&self, events: &Range<u64>) -> &[Allocation] {
        self.allocations
            .get(self.index_from(events.start)..self.index_from(events.end))
            .unwrap_or_default()
    }

    /// The index of the first request at or after an event.
    #[must_use]
    pub fn index_from(&self, event: u64) -> usize {
        self.allocations.partition_point(|a| a.born < event)
    }

    /// The first request at or after an event, with its index.
    #[must_use]
    pub fn first_request_from(&self, event: u64) -> Option<(usize, &Allocation)> {
        let index = self.index_from(event);
        Some((index, self.allocations.get(index)?))
    }

    /// The first failed request.
    #[must_use]
    pub fn first_failure(&self) -> Option<&Allocation> {
        self.allocations.iter().find(|a| a.failed)
    }

    /// The failed request that ends the program, or else the first one.
    #[must_use]
    pub fn failure(&self) -> Option<&Allocation> {
        let last = self.allocations.last().filter(|last| last.failed);
        last.or_else(|| self.first_failure())
    }

    /// The phase of an event: the last mark up to it.
    #[must_use]
    pub fn phase(&self, event: u64) -> Option<&Mark> {
        let after = self.marks.partition_point(|mark| mark.event <= event);
        after.checked_sub(1).and_then(|last| self.marks.get(last))
    }

    fn tag(&mut self, tag: &str) -> u32 {
        if let Some(&number) = self.tag_numbers.get(tag) {
            return number;
        }
        let number = u32::try_from(self.tags.len()).unwrap_or(u32::MAX);
        self.tags.push(tag.to_owned());
        self.tag_numbers.insert(tag.to_owned(), number);
        number
    }
}

impl Observer for Log {
    fn after(&mut self, step: &Step<'_>) -> Result<(), WorkloadError> {
        if self.account.is_some() {
            let bytes = self.bytes_of(step.op);
            self.account
                .as_mut()
                .map_or(Ok(()), |account| account.take(bytes))?;
        }
        let now = |array: &StatArray| array.all().current.cast_unsigned();
        self.levels.push(Level {
            requested: now(&step.stats.requested_bytes),
            allocated: now(&step.stats.allocated_bytes),
            active: now(&step.stats.active_bytes()),
            reserved: now(&step.stats.reserved_bytes),
            reserved_small: step
                .stats
                .reserved_bytes
                .small_pool()
                .current
                .cast_unsigned(),
            device_allocs: step.stats.num_device_alloc.cast_unsigned(),
            device_frees: step.stats.num_device_free.cast_unsigned(),
        });
        let after = Counters::of(step.stats);
        let before = std::mem::replace(&mut self.before, after);
        let added = |total: fn(&Counters) -> i64| {
            let added = total(&after).wrapping_sub(total(&before));
            added.cast_unsigned()
        };
        match step.op {
            Op::Malloc {
                id,
                bytes,
                stream,
                tag,
            } => {
                let allocation = Allocation {
                    id,
                    born: step.event,
                    freed: u64::MAX,
                    addr: match step.outcome {
                        Outcome::Placed(addr) => addr,
                        _ => DeviceAddr::NULL,
                    },
                    bytes,
                    block: added(|c| c.block_bytes),
                    taken: added(|c| c.taken_bytes),
                    stream,
                    tag: self.tag(tag),
                    failed: step.outcome == Outcome::OutOfMemory,
                    retried: added(|c| c.retries) > 0,
                };
                self.live.insert(id, self.allocations.len());
                self.allocations.push(allocation);
            }
            Op::Free { id } => {
                let freed = self.live.remove(&id);
                if let Some(freed) = freed.and_then(|index| self.allocations.get_mut(index)) {
                    freed.freed = step.event;
                }
            }
            Op::EmptyCache => self.emptied.push(step.event),
            Op::Mark { tag } => self.marks.push(Mark {
                event: step.event,
                tag: tag.to_owned(),
            }),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
