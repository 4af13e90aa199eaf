//! Sharing of memory between streams: which work a stream waits for before it reuses memory.

use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::policy::Served;
use crate::policy::free_runs::Run;

use super::Quilt;
use super::streams::Mark;
use super::views::Place;

/// A freed small block that other streams still use.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) block: DeviceAddr,
    pub(super) marks: Vec<Mark>,
}

impl Quilt {
    /// Adds a stream if it is new.
    pub(super) fn meet(&mut self, stream: StreamId) {
        if self.streams.contains(stream) {
            return;
        }
        let first: Vec<Mark> = self.ends();
        self.streams.add(stream);
        if let [first] = first[..] {
            // Uses are not noted while there is only one stream.
            for space in self.pools.others().chain([&self.space]) {
                for run in space.free.iter() {
                    self.uses.set(run, vec![first]);
                }
            }
        }
    }

    /// The present ends of the work of all streams.
    pub(super) fn ends(&self) -> Vec<Mark> {
        let ends = self.streams.ids().map(|stream| self.streams.end_of(stream));
        ends.collect()
    }

    /// Whether later work of a stream is already ordered after all uses of a free run.
    pub(super) fn comes_after_uses(&self, stream: StreamId, run: Run) -> bool {
        let mut marks = self.uses.of(run);
        marks.all(|mark| self.streams.comes_after(stream, mark))
    }

    /// Whether there is free memory that a stream must not use: during a capture it cannot wait for earlier uses.
    fn is_restricted(&self) -> bool {
        self.pools.is_capturing || !self.mechanisms.sharing
    }

    /// Whether a stream can use memory with these marks.
    fn permits(&self, stream: StreamId, marks: &[Mark]) -> bool {
        let comes_after = |&mark: &Mark| self.streams.comes_after(stream, mark);
        (!self.pools.is_capturing || marks.iter().all(comes_after))
            && (self.mechanisms.sharing || marks.first().is_none_or(|mark| mark.is_of(stream)))
    }

    /// Whether a stream can use free memory.
    pub(super) fn can_use(&self, stream: StreamId, run: Run) -> bool {
        let permits = |(_, marks): (Run, &[Mark])| self.permits(stream, marks);
        !self.is_restricted() || self.uses.parts(run).all(permits)
    }

    /// The free runs that a stream can use, as far as it can use them; `None` if it can use all.
    pub(super) fn usable(&self, stream: StreamId) -> Option<Vec<Run>> {
        self.is_restricted().then(|| {
            let free = self.space.free.iter();
            free.flat_map(|run| self.uses.without(run, |marks| !self.permits(stream, marks)))
                .collect()
        })
    }

    /// Orders later work of a stream after all uses of the memory at a free place.
    pub(super) fn wait_for_uses(
        &mut self,
        device: &mut dyn Driver,
        place: Place,
        bytes: u64,
        stream: StreamId,
    ) -> Served {
        if self.uses.is_empty() {
            return Ok(());
        }
        let marks = self
            .views
            .runs(place, bytes)
            .flat_map(|run| self.uses.of(run));
        let open: Vec<Mark> = marks
            .filter(|&mark| !self.streams.comes_after(stream, mark))
            .collect();
        for mark in open {
            self.streams.wait(device, stream, mark)?;
        }
        Ok(())
    }

    /// Whether work is complete. Records the events that a later call needs to find out.
    pub(super) fn are_over(&mut self, device: &mut dyn Driver, marks: &[Mark]) -> Served<bool> {
        for &mark in marks {
            self.streams.record_by(device, mark)?;
            if !self.streams.is_over(device, mark)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes back the small blocks of all streams that other streams have finished with.
    pub(super) fn take_back_all_pending(&mut self, device: &mut dyn Driver) -> Served {
        let streams: Vec<StreamId> = self.space.pending.keys().copied().collect();
        let mut streams = streams.into_iter();
        streams.try_for_each(|stream| self.take_back_pending(device, stream))
    }

    /// Takes back small blocks of a stream that other streams have finished with. During a capture it takes back none.
    pub(super) fn take_back_pending(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Served {
        if self.pools.is_capturing {
            return Ok(());
        }
        let Some(mut pending) = self.space.pending.remove(&stream) else {
            return Ok(());
        };
        let mut answer = Ok(());
        while let Some(oldest) = pending.front() {
            match self.are_over(device, &oldest.marks) {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => {
                    answer = Err(refusal);
                    break;
                }
            }
            if let Some(Pending { block, .. }) = pending.pop_front() {
                self.give_small(device, block, stream);
            }
        }
        if !pending.is_empty() {
            self.space.pending.insert(stream, pending);
        }
        answer
    }

    /// Records that all work is complete.
    pub(super) fn all_over(&mut self) {
        self.streams.all_over();
        self.uses.clear();
    }
}
