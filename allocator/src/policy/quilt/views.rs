//! *Views*: address ranges in which units are mapped again, in another order.

use crate::driver::{DeviceAddr, Driver};
use crate::mempool::MempoolId;
use crate::policy::Served;
use crate::policy::free_runs::Run;
use crate::policy::undo::{Step, Undo};

use super::memory_of;
use super::units::Unit;

/// Identifies a view while it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ViewId(pub(super) u32);

/// Where a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// At a position of the home range.
    Home(u64),
    /// This far from the start of a view.
    View(ViewId, u64),
}

/// A part of a view behind which memory lies that is contiguous at home.
#[derive(Clone, Copy, Debug)]
struct Patch {
    /// Where it starts in the view.
    offset: u64,
    home: Run,
}

/// A range of addresses and the units behind it, each of them once.
#[derive(Debug, Default)]
pub(super) struct View {
    addr: DeviceAddr,
    bytes: u64,
    units: Vec<Unit>,
    /// The units, merged where they are contiguous at home. By offset; they cover the view.
    patches: Vec<Patch>,
    /// Live blocks in it.
    blocks: u32,
    /// When it was used last.
    used: u64,
    /// The pool whose graphs may use it, so that it stays mapped.
    kept_for: Option<MempoolId>,
}

impl View {
    /// Maps units one behind the other.
    fn map(device: &mut dyn Driver, undo: &mut Undo, units: Vec<Unit>) -> Served<Self> {
        let memory = memory_of(device)?;
        let bytes = units.iter().map(|unit| unit.run.bytes).sum();
        let addr = memory.reserve(bytes)?;
        let mut made = Undo::default();
        made.push(Step::FreeAddress { addr, bytes });
        let mut patches: Vec<Patch> = Vec::new();
        let mut offset = 0;
        for &Unit { run, handle } in &units {
            let at = addr.offset(offset);
            if let Err(error) = memory.map(at, run.bytes, handle) {
                return Err(undo.take_back(memory, made, error).into());
            }
            let bytes = run.bytes;
            made.push(Step::Unmap { addr: at, bytes });
            match patches.last_mut() {
                Some(last) if last.home.end() == run.start => last.home.bytes += bytes,
                _ => patches.push(Patch { offset, home: run }),
            }
            offset += bytes;
        }
        if let Err(error) = memory.set_access(addr, bytes) {
            return Err(undo.take_back(memory, made, error).into());
        }
        Ok(Self {
            addr,
            bytes,
            units,
            patches,
            ..Self::default()
        })
    }

    /// Unmaps it when `undo` runs.
    pub(super) fn unmap(self, undo: &mut Undo) {
        let (addr, bytes) = (self.addr, self.bytes);
        undo.push(Step::FreeAddress { addr, bytes });
        let mut at = addr;
        for unit in self.units {
            let bytes = unit.run.bytes;
            undo.push(Step::Unmap { addr: at, bytes });
            at = at.offset(bytes);
        }
    }

    pub(super) fn addr(&self, offset: u64) -> DeviceAddr {
        self.addr.offset(offset)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The memory behind `bytes` at an offset, in the order of the view.
    pub(super) fn behind(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Run> {
        let end = offset + bytes;
        let after = self.patches.partition_point(|patch| patch.offset <= offset);
        let patches = self.patches[after.saturating_sub(1)..].iter();
        let overlapping = patches.take_while(move |patch| patch.offset < end);
        overlapping.map(move |patch| {
            let from = offset.max(patch.offset) - patch.offset;
            let to = (end - patch.offset).min(patch.home.bytes);
            Run::between(patch.home.start + from, patch.home.start + to)
        })
    }
}

/// All views.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// By identifier; `None` for one that can be given again.
    views: Vec<Option<View>>,
    count: usize,
    clock: u64,
    /// Bytes of all views.
    bytes: u64,
}

impl Views {
    pub(super) fn map(
        &mut self,
        device: &mut dyn Driver,
        undo: &mut Undo,
        units: Vec<Unit>,
    ) -> Served<ViewId> {
        let view = View::map(device, undo, units)?;
        self.count += 1;
        self.bytes += view.bytes;
        let vacant = self.views.iter().position(Option::is_none);
        let index = vacant.unwrap_or_else(|| {
            self.views.push(None);
            self.views.len() - 1
        });
        self.views[index] = Some(view);
        Ok(ViewId(index as u32))
    }

    pub(super) fn get(&self, id: ViewId) -> Option<&View> {
        self.views.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: Place) -> Option<&mut View> {
        match place {
            Place::Home(_) => None,
            Place::View(id, _) => self.views.get_mut(id.0 as usize)?.as_mut(),
        }
    }

    /// The memory behind a place.
    #[inline]
    pub(super) fn runs(&self, place: Place, bytes: u64) -> impl Iterator<Item = Run> {
        let (at_home, in_view) = match place {
            Place::Home(start) => (Some(Run { start, bytes }), None),
            Place::View(id, offset) => (None, self.get(id).map(|view| view.behind(offset, bytes))),
        };
        at_home.into_iter().chain(in_view.into_iter().flatten())
    }

    /// Does `work` for each run of the memory behind a place.
    #[inline]
    pub(super) fn each_run(&self, place: Place, bytes: u64, mut work: impl FnMut(Run)) {
        match place {
            Place::Home(start) => work(Run { start, bytes }),
            Place::View(..) => self.runs(place, bytes).for_each(work),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ViewId, &View)> {
        let views = (0..).map(ViewId).zip(&self.views);
        views.filter_map(|(id, view)| Some((id, view.as_ref()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Bytes of all views.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts a block that is allocated at a place.
    pub(super) fn enter(&mut self, place: Place) {
        self.clock += 1;
        let clock = self.clock;
        if let Some(view) = self.get_mut(place) {
            view.blocks += 1;
            view.used = clock;
        }
    }

    /// Counts a block that is freed at a place.
    pub(super) fn leave(&mut self, place: Place) {
        if let Some(view) = self.get_mut(place) {
            view.blocks -= 1;
        }
    }

    /// Keeps the view of a place mapped, if the place is in one, because graphs of a pool may use it.
    pub(super) fn keep_for(&mut self, pool: MempoolId, place: Place) {
        if let Some(view) = self.get_mut(place) {
            view.kept_for = Some(pool);
        }
    }

    /// Forgets which views a pool's graphs use.
    pub(super) fn let_go(&mut self, pool: MempoolId) {
        for view in self.views.iter_mut().flatten() {
            view.kept_for = view.kept_for.filter(|&other| other != pool);
        }
    }

    /// Removes the least recently used view without blocks that no graph uses.
    pub(super) fn take_oldest(&mut self) -> Option<View> {
        let is_unused = |view: &View| view.blocks == 0 && view.kept_for.is_none();
        let unused = self.iter().filter(|(_, view)| is_unused(view));
        let (ViewId(index), _) = unused.min_by_key(|&(id, view)| (view.used, id))?;
        let view = self.views[index as usize].take()?;
        self.count -= 1;
        self.bytes -= view.bytes;
        Some(view)
    }
}
