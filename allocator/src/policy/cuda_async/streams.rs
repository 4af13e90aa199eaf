//! The memory freed on each stream.

use crate::driver::StreamId;

use super::freed::Freed;

/// The streams in the order of their first use, which is a request or a free.
#[derive(Debug, Default)]
pub(super) struct PoolStreams(Vec<(StreamId, Freed)>);

impl PoolStreams {
    /// The memory freed on a stream. The first call for a stream is its first use.
    pub(super) fn of(&mut self, stream: StreamId) -> &mut Freed {
        let known = self.0.iter().position(|&(known, _)| known == stream);
        let place = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((stream, Freed::default()));
        }
        &mut self.0[place].1
    }

    /// The memory freed on each stream but one.
    pub(super) fn others(&mut self, stream: StreamId) -> impl Iterator<Item = &mut Freed> {
        let all = self.0.iter_mut();
        all.filter_map(move |(other, freed)| (*other != stream).then_some(freed))
    }

    /// The memory freed on each stream.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Freed> {
        self.0.iter_mut().map(|(_, freed)| freed)
    }

    /// The free memory of all streams: start and bytes.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().flat_map(|(_, freed)| freed.iter())
    }

    /// All streams.
    pub(super) fn ids(&self) -> Vec<StreamId> {
        self.0.iter().map(|&(stream, _)| stream).collect()
    }
}
