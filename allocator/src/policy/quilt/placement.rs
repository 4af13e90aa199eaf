//! Where a request is placed.

use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::policy::Refusal;

use super::Quilt;
use super::free_runs::Run;
use super::views::{Place, View};

/// Earlier requests like this one whose places are tried.
const TRIED_PLACES: usize = 4;
/// The smallest free runs that are tried for one whose last user need not be waited for.
const TRIED_RUNS: usize = 8;

impl Quilt {
    /// Finds a free place, in the order of what it costs: where an earlier request like this one was, in a free run
    /// at home, in a view, and last in memory that must be mapped.
    pub(super) fn place(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
        number: u64,
    ) -> Result<Place, Refusal> {
        if let Some(place) = self.repeat(bytes, number) {
            return Ok(place);
        }
        if let Some(run) = self.best_fit(bytes, stream) {
            return Ok(Place::Home(run.start));
        }
        if let Some(place) = self.best_fit_in_views(bytes) {
            return Ok(place);
        }
        self.stitch(device, bytes)
    }

    /// The place where an earlier request like this one was, if it is free.
    fn repeat(&self, bytes: u64, number: u64) -> Option<Place> {
        let mut earlier = self.history.places(number).take(TRIED_PLACES);
        earlier.find(|&place| self.is_free(place, bytes))
    }

    /// The memory behind a place.
    pub(super) fn runs(&self, place: Place, bytes: u64) -> impl Iterator<Item = Run> {
        let at_home = match place {
            Place::Home(start) => Some(Run { start, bytes }),
            Place::View(..) => None,
        };
        let in_view = match place {
            Place::Home(_) => None,
            Place::View(id, offset) => self.views.get(id).map(|view| view.behind(offset, bytes)),
        };
        at_home.into_iter().chain(in_view.into_iter().flatten())
    }

    pub(super) fn addr(&self, place: Place) -> DeviceAddr {
        match place {
            Place::Home(position) => self.units.addr(position),
            Place::View(id, offset) => {
                let view = self.views.get(id);
                view.map_or(DeviceAddr::NULL, |view| view.addr(offset))
            }
        }
    }

    fn is_free(&self, place: Place, bytes: u64) -> bool {
        let is_there = match place {
            Place::Home(_) => true,
            Place::View(id, offset) => {
                let view = self.views.get(id);
                view.is_some_and(|view| offset + bytes <= view.bytes())
            }
        };
        is_there
            && self
                .runs(place, bytes)
                .all(|run| self.free.around(run).is_some())
    }

    /// The smallest free run at home, if possible one that the stream can use without waiting.
    fn best_fit(&self, bytes: u64, stream: StreamId) -> Option<Run> {
        let is_ready = |run: &Run| {
            let start = run.start;
            self.comes_after_uses(stream, Run { start, bytes })
        };
        let smallest = self.free.fitting(bytes).next()?;
        let mut tried = self.free.fitting(bytes).take(TRIED_RUNS);
        Some(tried.find(is_ready).unwrap_or(smallest))
    }

    /// The smallest free run in a view. Looks at all views, which takes less time than to map another one.
    fn best_fit_in_views(&self, bytes: u64) -> Option<Place> {
        let large_enough = self.views.iter().filter(|(_, view)| view.bytes() >= bytes);
        let best = large_enough.filter_map(|(id, view)| {
            let runs = self.free_runs_of(view).into_iter();
            let fitting = runs.filter(|run| run.bytes >= bytes);
            let smallest = fitting.min_by_key(|run| (run.bytes, run.start))?;
            Some((smallest.bytes, id, smallest.start))
        });
        let (_, id, offset) = best.min()?;
        Some(Place::View(id, offset))
    }

    /// The free runs of a view, by offset.
    fn free_runs_of(&self, view: &View) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut offset = 0;
        for patch in view.behind(0, view.bytes()) {
            for free in self.free.within(patch) {
                let start = offset + (free.start - patch.start);
                match runs.last_mut() {
                    Some(last) if last.end() == start => last.bytes += free.bytes,
                    _ => runs.push(Run {
                        start,
                        bytes: free.bytes,
                    }),
                }
            }
            offset += patch.bytes;
        }
        runs
    }
}
