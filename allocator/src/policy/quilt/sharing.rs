//! Sharing of memory between streams: which work a stream waits for before it reuses memory.

use crate::driver::{Driver, StreamId};
use crate::policy::free_runs::Run;
use crate::policy::{Refusal, Served};

use super::Quilt;
use super::streams::{Mark, StreamNumber};
use super::uses::Marks;
use super::views::Place;

/// A freed small block that other streams still use.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its first cell.
    pub(super) cell: u32,
    pub(super) marks: Vec<Mark>,
}

impl Quilt {
    /// The number of a stream, which is added if it is new.
    pub(super) fn meet(&mut self, stream: StreamId) -> Served<StreamNumber> {
        match self.streams.number_of(stream) {
            Some(number) => Ok(number),
            None => self.meet_new(stream),
        }
    }

    #[cold]
    fn meet_new(&mut self, stream: StreamId) -> Served<StreamNumber> {
        let ends: Vec<Mark> = self.streams.ends().collect();
        let number = self.streams.add(stream);
        if let [first] = ends[..] {
            // Uses are not noted while there is only one stream.
            for run in self.pools.spaces().flat_map(|space| space.free.iter()) {
                self.uses.set(run, Marks::One(first));
            }
        }
        number.ok_or(Refusal::Unsupported("more than 65,536 streams"))
    }

    /// The present ends of the work of a stream and of other users.
    pub(super) fn ends_of(&self, stream: StreamNumber, users: &[StreamId]) -> Marks {
        let end = self.streams.end_of(stream);
        if users.is_empty() {
            return Marks::One(end);
        }
        let ends = [end].into_iter().chain(self.ends_of_users(users));
        Marks::Several(ends.collect())
    }

    /// The present ends of the work of users.
    pub(super) fn ends_of_users(&self, users: &[StreamId]) -> Vec<Mark> {
        let numbers = users
            .iter()
            .filter_map(|&user| self.streams.number_of(user));
        numbers.map(|user| self.streams.end_of(user)).collect()
    }

    /// Whether later work of a stream is already ordered after all uses of a free run.
    pub(super) fn comes_after_uses(&self, stream: StreamNumber, run: Run) -> bool {
        let comes_after = |mark| self.streams.comes_after(stream, mark);
        self.uses.all(run, comes_after)
    }

    /// Whether there is free memory that a stream must not use: during a capture it cannot wait for earlier uses.
    pub(super) fn is_restricted(&self) -> bool {
        self.pools.is_capturing || !self.mechanisms.sharing
    }

    /// Whether a stream can use memory with these marks.
    fn permits(&self, stream: StreamNumber, marks: &[Mark]) -> bool {
        let comes_after = |&mark: &Mark| self.streams.comes_after(stream, mark);
        (!self.pools.is_capturing || marks.iter().all(comes_after))
            && (self.mechanisms.sharing || marks.first().is_none_or(|mark| mark.is_of(stream)))
    }

    /// Whether a stream can use free memory.
    pub(super) fn can_use(&self, stream: StreamNumber, run: Run) -> bool {
        let permits = |(_, marks): (Run, Vec<Mark>)| self.permits(stream, &marks);
        !self.is_restricted() || self.uses.parts(run).all(permits)
    }

    /// The free runs that a stream can use, as far as it can use them; `None` if it can use all.
    pub(super) fn usable(&self, stream: StreamNumber) -> Option<Vec<Run>> {
        self.is_restricted().then(|| {
            let free = self.pools.space().free.iter();
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
        stream: StreamNumber,
    ) -> Served {
        if self.uses.is_empty() {
            return Ok(());
        }
        let mut open: Vec<Mark> = Vec::new();
        self.views.each_run(place, bytes, |run| {
            let marks = self.uses.of(run);
            open.extend(marks.filter(|&mark| !self.streams.comes_after(stream, mark)));
        });
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
        let streams: Vec<u16> = self.pools.space().pending.keys().copied().collect();
        let mut streams = streams.into_iter().map(StreamNumber);
        streams.try_for_each(|stream| self.take_back_pending(device, stream))
    }

    /// Takes back small blocks of a stream that other streams have finished with. During a capture it takes back none.
    pub(super) fn take_back_pending(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamNumber,
    ) -> Served {
        if self.pools.is_capturing || self.pools.space().pending.is_empty() {
            return Ok(());
        }
        let Some(mut pending) = self.pools.space_mut().pending.remove(&stream.0) else {
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
            if let Some(Pending { cell, .. }) = pending.pop_front() {
                self.give_small(device, cell, stream);
            }
        }
        if !pending.is_empty() {
            self.pools.space_mut().pending.insert(stream.0, pending);
        }
        answer
    }

    /// Records that all work is complete.
    pub(super) fn all_over(&mut self) {
        self.streams.all_over();
        self.uses.clear();
    }
}
