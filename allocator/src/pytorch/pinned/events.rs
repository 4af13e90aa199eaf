//! When a freed block that streams used becomes free.
//!
//! The free records an event on each stream. The events of a pool are in a queue, which a request goes through from the
//! oldest one to the first that is not complete.

use super::{PinnedAllocator, PinnedBlock};
use std::collections::VecDeque;

use crate::driver::{Driver, EventId};
use crate::error::Error;
use crate::mempool::MempoolId;
use crate::pytorch::stream_set::StreamKey;

/// Events that wait for nothing and are recorded again, the last first.
#[derive(Debug, Default)]
pub(super) struct SpareEvents(Vec<EventId>);

impl<D: Driver> PinnedAllocator<D> {
    /// Records an event on each stream, after which the block is free.
    pub(super) fn wait_for(
        &mut self,
        block: PinnedBlock,
        streams: &[StreamKey],
    ) -> Result<(), Error> {
        let pool = self.blocks[block.0 as usize].pool;
        for used in streams {
            let event = match self.spare_events.0.pop() {
                Some(event) => event,
                None => self.driver.create_event()?,
            };
            self.driver.record_event(event, used.stream)?;
            if let Some(pool) = self.pools.get_mut(&pool) {
                pool.events.push_front((event, block));
            }
        }
        Ok(())
    }

    /// Goes through the events of a pool, up to the first that is not complete.
    ///
    /// With a size, it looks for one free block of that size: events of other blocks and events that are not complete go
    /// to the front of the queue. The first event is looked at twice if none is found.
    pub(super) fn process_events(
        &mut self,
        pool: MempoolId,
        size: Option<u64>,
    ) -> Result<(), Error> {
        let mut looks_left = size.map(|_| self.queue(pool).len() + 1);
        while let Some((event, block)) = self.queue(pool).pop_back() {
            if let Some(left) = &mut looks_left {
                let Some(fewer) = left.checked_sub(1) else {
                    self.queue(pool).push_front((event, block));
                    return Ok(());
                };
                *left = fewer;
            }
            let is_of_size = size.is_none_or(|size| size == self.blocks[block.0 as usize].bytes);
            if !is_of_size || !self.driver.event_is_complete(event)? {
                if size.is_none() {
                    self.queue(pool).push_back((event, block));
                    return Ok(());
                }
                self.queue(pool).push_front((event, block));
                continue;
            }
            self.spare_events.0.push(event);
            let waiting = &mut self.blocks[block.0 as usize].event_count;
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                self.cache(block, self.rules.count_of_waited.of_search(size));
                if size.is_some() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn queue(&mut self, pool: MempoolId) -> &mut VecDeque<(EventId, PinnedBlock)> {
        &mut self.pools.entry(pool).or_default().events
    }
}
