//! Blocks that other streams use: what must have happened before they are free.
//!
//! `record_stream` records a stream on the block. When the block is freed, an event is recorded on each
//! of its streams and appended to that stream's queue. Queues are processed in two places only: at the
//! start of a malloc, from the front up to the first incomplete event, and before all cached memory is
//! returned, when the allocator waits for every event. A block becomes free when its last event leaves
//! its queue.
//!
//! During a capture ([`PoolScope`]), no event is recorded or queried. Frees of blocks used by other streams
//! are deferred, and streams recorded in the meantime count as finished, as the streams of a graph capture
//! are when it ends. PyTorch does not check when that was: a stream recorded again later is not waited for
//! either, if the block is freed during another capture. PyTorch processes deferred frees in the order of a
//! hash of heap addresses; here they keep the order of the frees.
//!
//! Source: PyTorch 2.11, `insert_events`, `process_events`, `synchronize_and_free_events`,
//! `insert_events_deferred_until_no_capture`.
//!
//! [`PoolScope`]: super::capture::PoolScope

use std::collections::VecDeque;

use super::arena::{Arena, Id};
use super::block::Block;
use super::flat_hash::FlatHashMap;
use super::stream_set::{StreamKey, Uses};
use super::{BlockId, PyTorch};
use crate::driver::{Driver, EventId, GraphNode, StreamId};
use crate::error::{Error, PoolError};
use crate::mempool::MempoolId;

/// Blocks that wait for a stream, in the order of their events.
type Queue = VecDeque<(EventId, BlockId)>;

/// All pending events and deferred frees.
///
/// Invariant: the `event_count` of a block's uses is the number of its entries in all queues.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    /// What blocks refer to.
    uses: Arena<Uses>,
    queues: Arena<Queue>,
    /// The queue of each stream with pending events.
    of_stream: FlatHashMap<StreamKey, Id<Queue>>,
    /// Blocks that were freed during a capture, or for which no event could be recorded. Each has the graph nodes of
    /// its last uses, if they are known ([`super::graph_reuse`]).
    deferred: Vec<(BlockId, Vec<GraphNode>)>,
    /// Streams recorded during a capture. They have finished when it ends.
    recorded_in_capture: Vec<(BlockId, StreamKey)>,
    /// Events available for reuse.
    idle_events: Vec<EventId>,
}

impl PendingEvents {
    /// Defers the free of a block until events are processed again, or until all later work of its stream runs after
    /// its last uses.
    pub(super) fn defer(&mut self, id: BlockId, last_uses: Vec<GraphNode>) {
        self.deferred.push((id, last_uses));
    }

    /// Removes the deferred frees that `is_safe` selects, and returns their blocks. Their streams have finished.
    pub(super) fn take_deferred(
        &mut self,
        is_safe: impl Fn(BlockId, &[GraphNode]) -> bool,
    ) -> Vec<BlockId> {
        let taken: Vec<BlockId> = self
            .deferred
            .extract_if(.., |(id, last_uses)| is_safe(*id, last_uses))
            .map(|(id, _)| id)
            .collect();
        if !taken.is_empty() {
            self.recorded_in_capture
                .retain(|(id, _)| !taken.contains(id));
        }
        taken
    }

    /// The streams that use a block and have no event yet.
    pub(super) fn streams_of(&self, block: &Block) -> Vec<StreamId> {
        let streams = block.uses.map(|uses| self.uses[uses].streams.keys());
        streams
            .into_iter()
            .flatten()
            .map(|key| key.stream)
            .collect()
    }

    /// Whether no block waits for anything.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.of_stream.is_empty() && self.deferred.is_empty()
    }

    /// The blocks in all queues, once for each of their events.
    pub(super) fn queued_blocks(&self) -> impl Iterator<Item = BlockId> {
        std::iter::successors(self.of_stream.at_or_after(0), |(slot, _, _)| {
            self.of_stream.at_or_after(slot + 1)
        })
        .flat_map(|(_, _, queue)| self.queues[queue].iter().map(|&(_, id)| id))
    }

    /// The pending events of a block.
    pub(super) fn count_of(&self, block: &Block) -> u32 {
        block.uses.map_or(0, |uses| self.uses[uses].event_count)
    }

    /// Whether streams without an event use a block.
    pub(super) fn has_unrecorded_streams(&self, block: &Block) -> bool {
        let is_empty = |uses: Id<Uses>| self.uses[uses].streams.is_empty();
        block.uses.is_some_and(|uses| !is_empty(uses))
    }

    /// The blocks with a deferred free.
    pub(super) fn deferred_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.deferred.iter().map(|&(id, _)| id)
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

/// When the frees that a capture deferred are processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DeferredFrees {
    /// When events are processed next. Until 2.12.
    AtNextRequest,
    /// When requests are no longer directed to the private pool of the blocks, even during a capture. Only with
    /// `graph_capture_record_stream_reuse`. From 2.13 on (pytorch#175817).
    AtEndOfPool,
}

/// Which pending events to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// All of them.
    All,
    /// The events of blocks in one private pool.
    OfPool(MempoolId),
}

impl<D: Driver> PyTorch<D> {
    /// Records that `stream` uses an allocated block.
    pub(super) fn note_stream(&mut self, id: BlockId, stream: StreamId) {
        let capturing = self.is_capturing();
        let key = StreamKey {
            device: self.device,
            stream,
        };
        let events = &mut self.events;
        let uses = *self.blocks[id].uses.get_or_insert_with(|| {
            let uses = events.uses.reuse_or_insert_with(Uses::default);
            events.uses[uses].streams.reset();
            uses
        });
        events.uses[uses].streams.insert(key, ());
        if capturing {
            events.recorded_in_capture.push((id, key));
        }
    }

    /// Records an event on each stream that uses the block and appends the block to their queues.
    ///
    /// If an event cannot be recorded, the block keeps the remaining streams and is deferred, so that
    /// it is not reused before they finish. (PyTorch forgets those streams.)
    pub(super) fn insert_events(&mut self, id: BlockId) -> Result<(), Error> {
        self.events
            .recorded_in_capture
            .retain(|&(block, _)| block != id);
        let Some(uses) = self.blocks[id].uses else {
            return Ok(());
        };
        while let Some((slot, key, ())) = self.events.uses[uses].streams.at_or_after(0) {
            let event = match self.record_event(key.stream) {
                Ok(event) => event,
                Err(error) => {
                    self.events.defer(id, Vec::new());
                    return Err(error);
                }
            };
            let queue = self.events.queue_of(key);
            self.events.queues[queue].push_back((event, id));
            self.events.uses[uses].streams.remove_at(slot);
            self.events.uses[uses].event_count += 1;
        }
        Ok(())
    }

    /// Frees a waiting block if all streams that use it have finished.
    fn free_if_finished(&mut self, id: BlockId) {
        let Some(uses) = self.blocks[id].uses else {
            return;
        };
        if self.events.uses[uses].are_finished() {
            self.free_waiting(id);
        }
    }

    /// Frees a waiting block. Its streams have finished.
    pub(super) fn free_waiting(&mut self, id: BlockId) {
        let block = &mut self.blocks[id];
        if let Some(uses) = block.uses.take() {
            self.events.uses.remove(uses);
        }
        let (size, requested) = (block.size, block.requested);
        let kind = block.kind;
        self.stats.count_waited(kind, size, requested);
        self.free_block(id);
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

    /// Frees the blocks whose events are complete: for each stream, those before its first incomplete
    /// event.
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
            && self.is_capturing()
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
            Waiting::OfPool(pool) => {
                self.pools.pool_of(self.blocks[id].shelf).owner() == Some(pool)
            }
        }
    }

    /// Removes a completed event from its queue and frees the block if that was its last.
    fn finish_event(&mut self, queue: Id<Queue>, position: usize) {
        let Some((event, id)) = self.events.queues[queue].remove(position) else {
            return;
        };
        self.events.idle_events.push(event);
        if let Some(uses) = self.blocks[id].uses {
            self.events.uses[uses].event_count -= 1;
        }
        self.free_if_finished(id);
    }

    /// Returns the slot at which the iteration over queues continues after `slot`. Removes the queue if
    /// it is empty.
    fn next_queue(&mut self, slot: usize, queue: Id<Queue>) -> usize {
        if !self.events.queues[queue].is_empty() {
            return slot + 1;
        }
        self.events.of_stream.remove_at(slot);
        self.events.queues.remove(queue);
        slot
    }

    /// Processes all deferred frees. Streams recorded during a capture have finished; events are recorded for the
    /// others.
    pub(super) fn insert_deferred_events(&mut self) -> Result<(), Error> {
        if self.events.deferred.is_empty() {
            return Ok(());
        }
        let deferred = std::mem::take(&mut self.events.deferred);
        self.insert_events_of(deferred)
    }

    /// Processes the deferred frees of a private pool that no requests are directed to any more, if this release does
    /// so.
    pub(super) fn insert_deferred_events_of(&mut self, pool: MempoolId) -> Result<(), Error> {
        if self.rules.deferred_frees == DeferredFrees::AtNextRequest
            || !self.settings.graph_capture_record_stream_reuse
        {
            return Ok(());
        }
        let deferred = std::mem::take(&mut self.events.deferred).into_iter();
        let is_of_pool =
            |id: BlockId| self.pools.pool_of(self.blocks[id].shelf).owner() == Some(pool);
        let (of_pool, others) = deferred.partition(|&(id, _)| is_of_pool(id));
        self.events.deferred = others;
        self.insert_events_of(of_pool)
    }

    fn insert_events_of(&mut self, deferred: Vec<(BlockId, Vec<GraphNode>)>) -> Result<(), Error> {
        let mut deferred = deferred.into_iter();
        while let Some((id, _)) = deferred.next() {
            self.forget_streams_of_capture(id);
            let inserted = self.insert_events(id);
            self.free_if_finished(id);
            if inserted.is_err() {
                self.events.deferred.extend(deferred);
                return inserted;
            }
        }
        Ok(())
    }

    /// Removes the streams that a capture recorded on a block. PyTorch copies the other streams into a new set instead,
    /// which keeps their order.
    fn forget_streams_of_capture(&mut self, id: BlockId) {
        let Some(uses) = self.blocks[id].uses else {
            return;
        };
        let events = &mut self.events;
        let recorded = events.recorded_in_capture.iter();
        for &(_, key) in recorded.filter(|(block, _)| *block == id) {
            events.uses[uses].streams.remove(key);
        }
    }
}
