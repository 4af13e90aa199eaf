//! When views are unmapped: if there are too many, and no work uses them any more.

use crate::driver::Driver;
use crate::policy::Served;

use super::Quilt;
use super::streams::Mark;
use super::views::View;
use crate::policy::undo::Undo;

/// The most bytes of addresses of all views, as a multiple of the bytes of all units.
const MOST_ROOM_TIMES: u64 = 5;
/// The most views. All of them are searched before another one is mapped.
const MOST_VIEWS: usize = 512;

/// A view without blocks that gets no block any more.
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

impl Quilt {
    /// Unmaps the retired views whose work is complete. Retires the least recently used views if there are too many.
    /// Does nothing while a graph is captured.
    pub(super) fn retire_views(&mut self, device: &mut dyn Driver) -> Served {
        if self.pools.is_capturing {
            return Ok(());
        }
        while self.views.len() >= MOST_VIEWS
            || self.views.room() > MOST_ROOM_TIMES * self.units.bytes()
        {
            let Some(view) = self.views.take_oldest() else {
                break;
            };
            let marks = view.marks().to_vec();
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
}
