//! Blocks that other streams use: what must have happened before they are free.
//!
//! `record_stream` notes a stream on the block. When the block is freed, an event is recorded on
//! each of its streams and put at the end of that stream's queue. Queues are looked at in two places
//! only: at the start of a malloc, from the front as far as events are complete, and before all
//! cached memory is returned, when every event is waited for. A block is free when its last event
//! was taken from a queue.
//!
//! While allocations go to a private pool no event is recorded or looked at: frees of such blocks
//! are deferred, and the streams recorded on them meanwhile are taken to be done, as those of a graph
//! capture are at its end. PyTorch does not look when that was: a stream recorded again afterwards is
//! not waited for either, if the block is freed while allocations go to another pool. It comes back to
//! deferred frees in the order of a hash of heap addresses; here it is the order in which they were
//! freed.
//!
//! Source: PyTorch 2.11, `insert_events`, `process_events`, `synchronize_and_free_events`,
//! `insert_events_deferred_until_no_capture`.

use std::collections::VecDeque;

use super::arena::{Arena, Id};
use super::flat_hash::FlatHashMap;
use super::stream_set::{StreamKey, StreamSet};
use super::{BlockId, PyTorch};
use crate::driver::{Driver, EventId, StreamId};
use crate::error::{Error, PoolError};
use crate::mempool::MempoolId;

/// Blocks waiting for a stream, in the order of their events.
type Queue = VecDeque<(EventId, BlockId)>;

/// Everything that waits.
///
/// Invariant: a block's `event_count` is the number of its entries in all queues.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    /// Sets that blocks refer to.
    stream_sets: Arena<StreamSet>,
    queues: Arena<Queue>,
    /// The queue of each stream that has pending events.
    of_stream: FlatHashMap<StreamKey, Id<Queue>>,
    /// Blocks freed while allocations went to a private pool, or whose event could not be recorded.
    deferred: Vec<BlockId>,
    /// Streams recorded while allocations went to a private pool: they are done by its end.
    recorded_in_capture: Vec<(BlockId, StreamKey)>,
    /// Events that may be recorded again.
    idle_events: Vec<EventId>,
}

impl PendingEvents {
    /// Puts the free of a block off until events are looked at again.
    pub(super) fn defer(&mut self, id: BlockId) {
        self.deferred.push(id);
    }

    /// The blocks in all queues, once for each of their events.
    pub(super) fn queued_blocks(&self) -> impl Iterator<Item = BlockId> {
        std::iter::successors(self.of_stream.at_or_after(0), |(slot, _, _)| {
            self.of_stream.at_or_after(slot + 1)
        })
        .flat_map(|(_, _, queue)| self.queues[queue].iter().map(|&(_, id)| id))
    }

    /// The blocks whose free is put off.
    pub(super) fn deferred_blocks(&self) -> &[BlockId] {
        &self.deferred
    }

    fn queue_of(&mut self, key: StreamKey) -> Id<Queue> {
        if let Some(queue) = self.of_stream.get(key) {
            return queue;
        }
        let queue = self.queues.reuse_or_insert_with(Queue::default);
        self.of_stream.insert(key, queue);
        queue
    }
}

/// Which pending events a walk is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// All of them.
    All,
    /// Those of blocks of one private pool.
    OfPool(MempoolId),
}

impl<D: Driver> PyTorch<D> {
    /// Notes that `stream` uses a block that is handed out.
    pub(super) fn note_stream(&mut self, id: BlockId, stream: StreamId) {
        let key = StreamKey {
            device: self.device,
            stream,
        };
        let events = &mut self.events;
        let set = *self.blocks[id].stream_uses.get_or_insert_with(|| {
            let set = events.stream_sets.reuse_or_insert_with(StreamSet::default);
            events.stream_sets[set].reset();
            set
        });
        events.stream_sets[set].insert(key, ());
        if self.private_pools.is_recording() {
            events.recorded_in_capture.push((id, key));
        }
    }

    /// Records an event on each stream that uses the block, and puts the block into their queues.
    ///
    /// If an event cannot be recorded, the block keeps the streams that are left and is deferred:
    /// nobody gets it before they are done. (PyTorch forgets those streams.)
    pub(super) fn insert_events(&mut self, id: BlockId) -> Result<(), Error> {
        self.events
            .recorded_in_capture
            .retain(|&(block, _)| block != id);
        let Some(set) = self.blocks[id].stream_uses.take() else {
            return Ok(());
        };
        while let Some((slot, key, ())) = self.events.stream_sets[set].at_or_after(0) {
            let event = match self.record_event(key.stream) {
                Ok(event) => event,
                Err(error) => {
                    self.blocks[id].stream_uses = Some(set);
                    self.events.defer(id);
                    return Err(error);
                }
            };
            self.blocks[id].event_count += 1;
            let queue = self.events.queue_of(key);
            self.events.queues[queue].push_back((event, id));
            self.events.stream_sets[set].remove_at(slot);
        }
        self.events.stream_sets.remove(set);
        Ok(())
    }

    fn record_event(&mut self, stream: StreamId) -> Result<EventId, Error> {
        let event = match self.events.idle_events.pop() {
            Some(event) => event,
            None => self.driver.create_event()?,
        };
        match self.driver.record_event(event, stream) {
            Ok(()) => Ok(event),
            Err(error) => {
                self.events.idle_events.push(event);
                Err(error.into())
            }
        }
    }

    /// Frees the blocks whose events are complete: of each stream those before the first event that
    /// is not.
    pub(super) fn process_events(&mut self) -> Result<(), Error> {
        self.insert_deferred_events()?;
        let mut slot = 0;
        while let Some((at, _, queue)) = self.events.of_stream.at_or_after(slot) {
            while let Some(&(event, _)) = self.events.queues[queue].front() {
                if !self.driver.event_is_complete(event)? {
                    break;
                }
                self.finish_event(queue, 0);
            }
            slot = self.next_queue(at, queue);
        }
        Ok(())
    }

    /// Waits for events and frees their blocks.
    pub(super) fn synchronize_and_free_events(&mut self, waiting: Waiting) -> Result<(), Error> {
        self.stats.num_sync_all_streams += 1;
        if let Waiting::OfPool(pool) = waiting
            && self.private_pools.is_recording()
        {
            return Err(PoolError::Recording(pool).into());
        }
        self.insert_deferred_events()?;
        let mut slot = 0;
        while let Some((at, _, queue)) = self.events.of_stream.at_or_after(slot) {
            let mut position = 0;
            while let Some(&(event, id)) = self.events.queues[queue].get(position) {
                if self.is_waited_for(id, waiting) {
                    self.driver.synchronize_event(event)?;
                    self.finish_event(queue, position);
                } else {
                    position += 1;
                }
            }
            slot = self.next_queue(at, queue);
        }
        Ok(())
    }

    fn is_waited_for(&self, id: BlockId, waiting: Waiting) -> bool {
        match waiting {
            Waiting::All => true,
            Waiting::OfPool(pool) => self.pools[self.blocks[id].pool].owner() == Some(pool),
        }
    }

    /// Takes an event that is over out of its queue and frees the block if it was the last.
    fn finish_event(&mut self, queue: Id<Queue>, position: usize) {
        let Some((event, id)) = self.events.queues[queue].remove(position) else {
            return;
        };
        self.events.idle_events.push(event);
        self.blocks[id].event_count -= 1;
        if self.blocks[id].is_idle() {
            self.free_block(id);
        }
    }

    /// The slot from which the walk over the queues goes on after the one at `slot`, which is
    /// forgotten if it is empty.
    fn next_queue(&mut self, slot: usize, queue: Id<Queue>) -> usize {
        if !self.events.queues[queue].is_empty() {
            return slot + 1;
        }
        self.events.of_stream.remove_at(slot);
        self.events.queues.remove(queue);
        slot
    }

    /// Comes back to the blocks whose free was put off. Streams recorded since allocations went to a
    /// private pool are done; for the others events are recorded now.
    fn insert_deferred_events(&mut self) -> Result<(), Error> {
        if self.events.deferred.is_empty() {
            return Ok(());
        }
        let mut deferred = std::mem::take(&mut self.events.deferred).into_iter();
        while let Some(id) = deferred.next() {
            self.forget_streams_of_capture(id);
            let inserted = self.insert_events(id);
            if self.blocks[id].is_idle() {
                self.free_block(id);
            }
            if inserted.is_err() {
                self.events.deferred.extend(deferred);
                return inserted;
            }
        }
        Ok(())
    }

    fn forget_streams_of_capture(&mut self, id: BlockId) {
        let Some(set) = self.blocks[id].stream_uses else {
            return;
        };
        let events = &mut self.events;
        let is_done = |key| events.recorded_in_capture.contains(&(id, key));
        let (done, left): (Vec<_>, Vec<_>) =
            events.stream_sets[set].keys().partition(|&k| is_done(k));
        if done.is_empty() {
            return;
        }
        // PyTorch makes a new set of those that are left, so the order may change.
        events.stream_sets[set].reset();
        for &key in &left {
            events.stream_sets[set].insert(key, ());
        }
        if left.is_empty() {
            self.blocks[id].stream_uses = None;
            events.stream_sets.remove(set);
        }
    }
}
