//! The history of reserved memory in a replay: when segments were taken and returned, and when freed blocks became
//! free.

use std::collections::HashMap;

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::history::{Action, HistoryOptions};
use coalesce_alloc::snapshot::SegmentInfo;
use coalesce_alloc::stats::{DeviceStats, PoolKind};
use coalesce_workloads::replay::Step;

use crate::diagnose::Evidence;
use crate::diagnose::log::{Level, Log};

/// A segment that was taken or returned, or pages of an expandable one that were mapped or unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentChange {
    /// The event; 0 also for segments that the replay begins with.
    pub event: u64,
    /// The first address.
    pub address: DeviceAddr,
    /// Bytes.
    pub bytes: u64,
    /// Whether the memory was taken from the device.
    pub is_taken: bool,
    /// Whether pages of an expandable segment changed.
    pub is_expandable: bool,
    /// The kind of the pool; `Large` for memory that is returned.
    pub kind: PoolKind,
    /// The private pool, or the default one.
    pub pool: MempoolId,
    /// The number of the stream.
    pub stream: u64,
}

/// The history of reserved memory. With the allocations it determines all segments and blocks after any event.
#[derive(Clone, Debug)]
pub struct SegmentHistory {
    /// The changes, in order.
    pub changes: Vec<SegmentChange>,
    /// For each allocation, the event after which its block is free; `u64::MAX` if it never becomes free. A block
    /// that another stream still uses becomes free later than the event that frees it.
    pub released: Vec<u64>,
}

impl SegmentHistory {
    /// Replays the workload of some evidence once more, with the allocator's own history.
    ///
    /// # Errors
    /// If the workload cannot be read again.
    pub fn of(evidence: &Evidence<'_>) -> anyhow::Result<Self> {
        let (subject, log) = (&evidence.subject, &evidence.log);
        let mut allocator = subject.allocator(subject.conf, subject.conditions.capacity)?;
        let mut changes: Vec<_> = allocator.segments().iter().map(present).collect();
        allocator.record_history(Some(HistoryOptions {
            skip: vec![Action::Alloc, Action::FreeRequested, Action::Oom],
            ..HistoryOptions::default()
        }));
        let mut taken = allocator.stats().num_device_alloc.cast_unsigned();
        let mut returned = allocator.stats().num_device_free.cast_unsigned();
        // The number of blocks that became free until the end of each event.
        let mut freed = Vec::new();
        let count = |stats: &DeviceStats| stats.active().all().freed.cast_unsigned();
        let mut freed_before = count(allocator.stats());
        let mut note = |step: &Step<'_>| {
            freed.push(count(step.stats));
            Ok(())
        };
        subject.replay(&mut allocator, &mut note)?;

        // Each entry raises one counter by 1, so that the counters after each event tell its event.
        let first = |count: u64, of: fn(&Level) -> u64| {
            log.levels.partition_point(|level| of(level) < count) as u64
        };
        let snapshot = allocator.snapshot();
        let pools = snapshot.entry_pools.first();
        let mut ends = Vec::new();
        for (position, entry) in snapshot.device_traces.iter().flatten().enumerate() {
            if entry.action == Action::FreeCompleted {
                freed_before += 1;
                let event = freed.partition_point(|&count| count < freed_before);
                ends.push((event as u64, entry.addr));
                continue;
            }
            let event = if entry.action.takes_memory() {
                taken += 1;
                first(taken, |level| level.device_allocs)
            } else {
                returned += 1;
                first(returned, |level| level.device_frees)
            };
            let request = log.first_request_from(event).map(|(_, request)| request);
            let request = request.filter(|request| request.born == event);
            let pool = pools.and_then(|pools| pools.get(&position)).copied();
            changes.push(SegmentChange {
                event,
                address: entry.addr,
                bytes: entry.size,
                is_taken: entry.action.takes_memory(),
                is_expandable: entry.action.is_about_pages(),
                kind: match request.filter(|_| entry.action.takes_memory()) {
                    Some(request) => evidence.kind_of(request).unwrap_or(PoolKind::Large),
                    None => PoolKind::Large,
                },
                pool: pool.unwrap_or(MempoolId::DEFAULT),
                stream: entry.stream.index(),
            });
        }
        let released = released(log, &ends);
        Ok(Self { changes, released })
    }
}

/// A segment that the replay begins with.
fn present(segment: &SegmentInfo) -> SegmentChange {
    SegmentChange {
        event: 0,
        address: segment.address,
        bytes: segment.total_size(),
        is_taken: true,
        is_expandable: segment.is_expandable,
        kind: segment.kind,
        pool: segment.pool,
        stream: segment.stream.index(),
    }
}

/// The event after which each block is free, from the events and addresses of the blocks that became free.
fn released(log: &Log, ends: &[(u64, DeviceAddr)]) -> Vec<u64> {
    let mut released: Vec<u64> = log
        .allocations
        .iter()
        .map(|one| {
            if one.addr.is_null() {
                one.freed
            } else {
                u64::MAX
            }
        })
        .collect();
    let mut holders: HashMap<DeviceAddr, usize> = HashMap::new();
    let mut later = log.allocations.iter().enumerate().peekable();
    for &(event, address) in ends {
        // The block of an allocation becomes free after its birth, and before the next one takes its address.
        while let Some((index, one)) = later.next_if(|(_, one)| one.born < event) {
            holders.insert(one.addr, index);
        }
        let ended = holders.get(&address);
        if let Some(slot) = ended.and_then(|&index| released.get_mut(index)) {
            *slot = event;
        }
    }
    released
}

#[cfg(test)]
mod tests;
