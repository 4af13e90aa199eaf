//! Where a request is placed.

use crate::driver::{DeviceAddr, Driver};
use crate::policy::Served;
use crate::policy::free_runs::Run;

use super::Quilt;
use super::streams::StreamNumber;
use super::tag::Tag;
use super::views::{Place, View, ViewId};

/// A run that can be used without waiting is preferred if it is at most this many times as long as the smallest that fits.
const ALIKE_TIMES: u64 = 2;

impl Quilt {
    /// Takes what [`Quilt::place`] would find, in less time, if that is a run at home that the stream can use without
    /// waiting.
    pub(super) fn take_ready(&mut self, bytes: u64, stream: StreamNumber) -> Option<Place> {
        let smallest = self.pools.space().free.smallest(bytes)?;
        let Run { start, .. } = if self.uses.is_empty() {
            smallest
        } else if self.is_restricted() {
            return None;
        } else {
            self.ready(smallest, bytes, stream)?
        };
        let run = Run { start, bytes };
        self.pools.space_mut().free.take(run);
        self.uses.forget(run);
        let place = Place::Home(start);
        self.views.enter(place);
        Some(place)
    }

    /// Finds a free place, in the order of what it costs: in a free run at home, in a view, and last in memory that must
    /// be mapped.
    pub(super) fn place(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamNumber,
    ) -> Served<Place> {
        match self.fit(bytes, stream) {
            Some(place) => Ok(place),
            None => self.stitch(device, bytes, stream),
        }
    }

    /// The best fit at home, or else in a view.
    pub(super) fn fit(&self, bytes: u64, stream: StreamNumber) -> Option<Place> {
        let at_home = self
            .best_fit(bytes, stream)
            .map(|run| Place::Home(run.start));
        at_home.or_else(|| self.best_fit_in_views(bytes, stream))
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

    /// Where a block lies.
    pub(super) fn place_of(&self, addr: DeviceAddr, tag: Tag) -> Place {
        let view = tag.at.checked_sub(1).map(ViewId);
        match view.and_then(|id| Some((id, self.views.get(id)?))) {
            Some((id, view)) => Place::View(id, addr.offset_from(view.addr(0))),
            None => Place::Home(self.units.position(addr)),
        }
    }

    /// The smallest free run at home, if possible one that the stream can use without waiting.
    pub(super) fn best_fit(&self, bytes: u64, stream: StreamNumber) -> Option<Run> {
        if let Some(usable) = self.usable(stream) {
            let fitting = usable.into_iter().filter(|run| run.bytes >= bytes);
            return fitting.min_by_key(|run| (run.bytes, run.start));
        }
        let smallest = self.pools.space().free.smallest(bytes)?;
        Some(self.ready(smallest, bytes, stream).unwrap_or(smallest))
    }

    /// The smallest free run at home, or one that is alike, that the stream can use without waiting.
    fn ready(&self, smallest: Run, bytes: u64, stream: StreamNumber) -> Option<Run> {
        let is_ready = |Run { start, .. }| self.comes_after_uses(stream, Run { start, bytes });
        if is_ready(smallest) {
            return Some(smallest);
        }
        let most = ALIKE_TIMES * smallest.bytes;
        let free = &self.pools.space().free;
        free.smallest_where(bytes, |run| run.bytes <= most && is_ready(run))
    }

    /// The smallest free run in a view. Looks at all views, which takes less time than to map another one.
    fn best_fit_in_views(&self, bytes: u64, stream: StreamNumber) -> Option<Place> {
        let large_enough = self.views.iter().filter(|(_, view)| view.bytes() >= bytes);
        let best = large_enough.filter_map(|(id, view)| {
            let runs = self.free_runs_of(view).into_iter();
            let fitting = runs.filter(|run| run.bytes >= bytes);
            let smallest = fitting.min_by_key(|run| (run.bytes, run.start))?;
            Some((smallest.bytes, id, smallest.start))
        });
        let (_, id, offset) = best.min()?;
        let place = Place::View(id, offset);
        let mut runs = self.views.runs(place, bytes);
        runs.all(|run| self.can_use(stream, run)).then_some(place)
    }

    /// The free runs of a view, by offset.
    fn free_runs_of(&self, view: &View) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut offset = 0;
        for patch in view.behind(0, view.bytes()) {
            for free in self.pools.space().free.within(patch) {
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
