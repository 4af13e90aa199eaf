//! Memory that a capture uses again although several streams used it: `graph_capture_record_stream_reuse`.
//!
//! A CUDA graph fixes the order of its work, so no event needs to be waited for. When a block that several streams use
//! is freed, the last nodes of these streams are stored. The block becomes free when all later work of its own stream runs
//! after these nodes, that is, when the last nodes of its own stream depend on them.
//!
//! A stream that is not captured has no node. Then the free is deferred until the capture ends, as without the setting, or
//! until its pool serves no more requests ([`DeferredFrees`](super::events::DeferredFrees)).
//!
//! Source: PyTorch 2.11, `record_free_markers`, `update_visited`, `free_safe_blocks_in_capture` (pytorch#158352).

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use super::{BlockId, PyTorch};
use crate::driver::{Driver, GraphNode, StreamId};
use crate::error::Error;

/// What is known of the graphs that are captured.
#[derive(Debug, Default)]
pub(super) struct GraphReuse {
    /// For a capture and a stream of it, the nodes found before the end of that stream.
    past: HashMap<(u64, StreamId), HashSet<GraphNode, FixedState>, FixedState>,
}

impl GraphReuse {
    /// Forgets all nodes. Those of a capture that has not ended are found again.
    pub(super) fn forget(&mut self) {
        self.past.clear();
    }
}

impl<D: Driver> PyTorch<D> {
    /// Returns the last nodes of all streams that use a block; none if a stream is not captured, or the driver does not
    /// say.
    pub(super) fn last_uses_in_graph(&mut self, id: BlockId) -> Vec<GraphNode> {
        if !self.settings.graph_capture_record_stream_reuse {
            return Vec::new();
        }
        let block = &self.blocks[id];
        let own = self.pools[block.shelf].stream;
        let mut nodes = Vec::new();
        for stream in std::iter::once(own).chain(self.events.streams_of(block)) {
            match self.driver.capture_of(stream) {
                Ok(Some(capture)) => nodes.extend(capture.last),
                Ok(None) | Err(_) => return Vec::new(),
            }
        }
        nodes
    }

    /// Frees the blocks of a stream whose last uses come before all later work of that stream.
    pub(super) fn free_safe_blocks(&mut self, stream: StreamId) -> Result<(), Error> {
        if !self.settings.graph_capture_record_stream_reuse {
            return Ok(());
        }
        let Some(capture) = self.driver.capture_of(stream)? else {
            return Ok(());
        };
        let past = self
            .graph_reuse
            .past
            .entry((capture.id, stream))
            .or_default();
        let mut unseen = capture.last;
        while let Some(node) = unseen.pop() {
            if past.insert(node) {
                unseen.extend(self.driver.dependencies(node)?);
            }
        }
        let is_safe = |id: BlockId, last_uses: &[GraphNode]| {
            let is_of_stream = self.pools[self.blocks[id].shelf].stream == stream;
            is_of_stream && !last_uses.is_empty() && last_uses.iter().all(|n| past.contains(n))
        };
        for id in self.events.take_deferred(is_safe) {
            self.free_waiting(id);
        }
        Ok(())
    }
}
