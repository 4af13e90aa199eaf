//! What streams wait for when they share memory, and when views can be unmapped.

use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::policy::Refusal;

use super::Quilt;
use super::free_runs::Run;
use super::streams::Mark;
use super::undo::Undo;
use super::views::{Place, View};

/// The views together may have this many times the bytes of the units.
const MAPPED_TIMES: u64 = 4;
/// There may be this many views: all of them are searched before another one is mapped.
const MOST_VIEWS: usize = 512;

/// A view that no block will lie in again.
#[derive(Debug)]
pub(super) struct Retired {
    view: View,
    /// The work that may still use it.
    marks: Vec<Mark>,
}

impl Retired {
    /// Unmaps it when `undo` runs.
    pub(super) fn unmap(self, undo: &mut Undo) {
        self.view.unmap(undo);
    }
}

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
            // So far all memory was the first stream's, and its uses were not noted.
            for run in self.free.iter() {
                self.uses.set(run, vec![first]);
            }
        }
    }

    /// The present ends of the work of all streams.
    fn ends(&self) -> Vec<Mark> {
        let ends = self.streams.ids().map(|stream| self.streams.end_of(stream));
        ends.collect()
    }

    /// Whether new work of a stream comes after all that used a free run.
    pub(super) fn comes_after_uses(&self, stream: StreamId, run: Run) -> bool {
        let mut marks = self.uses.of(run);
        marks.all(|mark| self.streams.comes_after(stream, mark))
    }

    /// Makes new work of a stream come after all that used the memory of a free place.
    pub(super) fn wait_for_uses(
        &mut self,
        device: &mut dyn Driver,
        place: Place,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        let marks = self
            .views
            .runs(place, bytes)
            .flat_map(|run| self.uses.of(run));
        let open = marks.filter(|&mark| !self.streams.comes_after(stream, mark));
        let open: Vec<Mark> = open.collect();
        for mark in open {
            self.streams.wait(device, stream, mark)?;
        }
        Ok(())
    }

    /// Unmaps retired views that no work uses any more, and retires views if there are too many.
    pub(super) fn retire_views(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        while self.views.len() >= MOST_VIEWS
            || self.views.bytes() > MAPPED_TIMES * self.units.bytes()
        {
            let Some(view) = self.views.take_oldest() else {
                break;
            };
            let marks = self.ends();
            self.retired.push_back(Retired { view, marks });
        }
        while let Some(oldest) = self.retired.front() {
            let marks = oldest.marks.clone();
            if !self.are_over(device, &marks)? {
                break;
            }
            if let Some(oldest) = self.retired.pop_front() {
                oldest.unmap(&mut self.undo);
            }
        }
        self.settle(device)
    }

    /// Whether work is over. If not, it will be noticed later.
    fn are_over(&mut self, device: &mut dyn Driver, marks: &[Mark]) -> Result<bool, Refusal> {
        for &mark in marks {
            self.streams.record_by(device, mark)?;
            if !self.streams.is_over(device, mark)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes back small blocks of a stream that other streams have finished with.
    pub(super) fn take_back_pending(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        let Some(mut pending) = self.pending.remove(&stream) else {
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
            self.pending.insert(stream, pending);
        }
        answer
    }

    /// Notes that all work is over.
    pub(super) fn all_over(&mut self) {
        self.streams.all_over();
        self.uses.clear();
    }
}
