//! Freed blocks that other streams may still use.
//!
//! A block recorded on other streams is free once an event on each of them is complete. The rule is
//! PyTorch's, from which GMLake has it (`recordStream`, `insert_events`, `process_events`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::driver::{DeviceAddr, Driver, EventId, Status, StreamId};
use crate::policy::Block;

/// What to do with an incomplete event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Try again later.
    Ask,
    /// Wait for it.
    Wait,
}

#[derive(Debug)]
struct Pending {
    block: Block,
    /// Number of events not known to be complete, at least one.
    events: usize,
}

/// The streams that use blocks, and the blocks that wait for them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Other streams that use live blocks.
    uses: BTreeMap<DeviceAddr, BTreeSet<StreamId>>,
    /// Freed blocks by address.
    pending: BTreeMap<DeviceAddr, Pending>,
    /// Their events by stream, in the order of recording.
    queues: BTreeMap<StreamId, VecDeque<(EventId, DeviceAddr)>>,
    /// Events for reuse.
    spare: Vec<EventId>,
}

impl Waiting {
    /// Records that `stream`, not the block's own, uses a live block.
    pub(super) fn record(&mut self, block: Block, stream: StreamId) {
        self.uses.entry(block.addr).or_default().insert(stream);
    }

    /// Makes a freed block wait for the streams that use it. Returns whether there are any. If the device
    /// fails, the block stays live.
    pub(super) fn defer(&mut self, device: &mut dyn Driver, block: Block) -> Status<bool> {
        let Some(streams) = self.uses.get(&block.addr) else {
            return Ok(false);
        };
        let mut recorded = Vec::new();
        for &stream in streams {
            let event = match self.spare.pop() {
                Some(event) => Ok(event),
                None => device.create_event(),
            };
            let marked = event.and_then(|event| {
                recorded.push((stream, event));
                device.record_event(event, stream)
            });
            if let Err(error) = marked {
                self.spare.extend(recorded.iter().map(|&(_, event)| event));
                return Err(error);
            }
        }
        self.uses.remove(&block.addr);
        let events = recorded.len();
        self.pending.insert(block.addr, Pending { block, events });
        for (stream, event) in recorded {
            let queue = self.queues.entry(stream).or_default();
            queue.push_back((event, block.addr));
        }
        Ok(true)
    }

    /// Removes a block that no stream uses any more, if there is one.
    pub(super) fn next_done(
        &mut self,
        device: &mut dyn Driver,
        patience: Patience,
    ) -> Status<Option<Block>> {
        for queue in self.queues.values_mut() {
            while let Some(&(event, addr)) = queue.front() {
                match patience {
                    Patience::Ask if !device.event_is_complete(event)? => break,
                    Patience::Ask => {}
                    Patience::Wait => device.synchronize_event(event)?,
                }
                queue.pop_front();
                self.spare.push(event);
                if let Some(pending) = self.pending.get_mut(&addr) {
                    pending.events -= 1;
                    if pending.events == 0 {
                        return Ok(self.pending.remove(&addr).map(|pending| pending.block));
                    }
                }
            }
        }
        Ok(None)
    }
}
