//! Graphs that streams are captured into.
//!
//! The simulated device runs no work, so the caller adds the nodes of each graph.

use std::collections::HashMap;

use crate::driver::{DriverError, GraphNode, Status, StreamCapture, StreamId};

/// What streams capture, and the nodes of all captures.
#[derive(Debug, Default)]
pub struct Graphs {
    captures: HashMap<StreamId, StreamCapture>,
    dependencies: HashMap<GraphNode, Vec<GraphNode>>,
}

impl Graphs {
    /// Adds work to a stream, which belongs to this capture from now on. Its node follows the last nodes of the stream
    /// and those of `others`, streams of the same capture that it waits for.
    pub fn add(&mut self, capture: u64, node: GraphNode, stream: StreamId, others: &[StreamId]) {
        let streams = std::iter::once(&stream).chain(others);
        let before = streams
            .filter_map(|stream| self.captures.get(stream))
            .filter(|other| other.id == capture)
            .flat_map(|other| &other.last)
            .copied()
            .collect();
        self.dependencies.insert(node, before);
        let last = vec![node];
        self.captures
            .insert(stream, StreamCapture { id: capture, last });
    }

    /// Ends all captures.
    pub fn end(&mut self) {
        self.captures.clear();
    }

    pub(super) fn capture_of(&self, stream: StreamId) -> Option<StreamCapture> {
        self.captures.get(&stream).cloned()
    }

    pub(super) fn dependencies(&self, node: GraphNode) -> Status<Vec<GraphNode>> {
        let found = self.dependencies.get(&node).cloned();
        found.ok_or(DriverError::InvalidValue)
    }
}
