//! *Views*: address ranges in which units are mapped again, in another order.

use std::cmp::Reverse;

use crate::driver::{DeviceAddr, Driver};
use crate::mempool::MempoolId;
use crate::policy::Served;
use crate::policy::free_runs::Run;
use crate::policy::undo::{Step, Undo};

use super::memory_of;
use super::streams::Mark;
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

/// The addresses of a view, as a multiple of the bytes that are mapped first. The rest is for units that are added later.
const ROOM_TIMES: u64 = 2;
/// A view is changed at most this often. A program that repeats itself would otherwise change the same views in each step.
const MOST_CHANGES: u32 = 4;

/// A range of addresses and the units behind it, each of them once.
#[derive(Debug, Default)]
pub(super) struct View {
    addr: DeviceAddr,
    /// Bytes of addresses.
    room: u64,
    /// Bytes that are mapped, from the start on.
    bytes: u64,
    units: Vec<Unit>,
    /// The units, merged where they are contiguous at home. By offset; they cover the view.
    patches: Vec<Patch>,
    /// How often it was changed.
    changes: u32,
    /// Live blocks in it.
    blocks: u32,
    /// When it was used last.
    used: u64,
    /// The work that may still use it after its last block was freed.
    marks: Vec<Mark>,
    /// The pool whose graphs may use it, so that it stays mapped.
    kept_for: Option<MempoolId>,
}

impl View {
    /// Maps units one behind the other.
    fn map(device: &mut dyn Driver, undo: &mut Undo, units: Vec<Unit>) -> Served<Self> {
        let bytes: u64 = units.iter().map(|unit| unit.run.bytes).sum();
        let room = bytes.saturating_mul(ROOM_TIMES);
        let addr = memory_of(device)?.reserve(room)?;
        let view = Self {
            addr,
            room,
            ..Self::default()
        };
        view.change(device, undo, units)
    }

    /// Maps other units one behind the other. Those that stay where they are remain mapped. Nothing uses the rest.
    fn change(self, device: &mut dyn Driver, undo: &mut Undo, units: Vec<Unit>) -> Served<Self> {
        let memory = memory_of(device)?;
        let (before, after) = (placed(&self.units), placed(&units));
        let mut made = Undo::default();
        made.push(Step::FreeAddress {
            addr: self.addr,
            bytes: self.room,
        });
        let mut leaving = Undo::default();
        for &(offset, unit) in &before {
            let stays = has(&after, offset, unit);
            let steps = if stays { &mut made } else { &mut leaving };
            steps.push(Step::Unmap {
                addr: self.addr(offset),
                bytes: unit.run.bytes,
            });
        }
        if let Err(error) = leaving.run(memory) {
            made.append(leaving);
            return Err(undo.take_back(memory, made, error).into());
        }
        let mut added: Vec<Run> = Vec::new();
        for &(offset, unit) in &after {
            if has(&before, offset, unit) {
                continue;
            }
            let (addr, bytes) = (self.addr(offset), unit.run.bytes);
            if let Err(error) = memory.map(addr, bytes, unit.handle) {
                return Err(undo.take_back(memory, made, error).into());
            }
            made.push(Step::Unmap { addr, bytes });
            match added.last_mut() {
                Some(last) if last.end() == offset => last.bytes += bytes,
                _ => added.push(Run {
                    start: offset,
                    bytes,
                }),
            }
        }
        for run in added {
            if let Err(error) = memory.set_access(self.addr(run.start), run.bytes) {
                return Err(undo.take_back(memory, made, error).into());
            }
        }
        Ok(Self {
            bytes: units.iter().map(|unit| unit.run.bytes).sum(),
            patches: patches(&units),
            units,
            ..self
        })
    }

    /// Unmaps it when `undo` runs.
    pub(super) fn unmap(self, undo: &mut Undo) {
        undo.push(Step::FreeAddress {
            addr: self.addr,
            bytes: self.room,
        });
        for (offset, unit) in placed(&self.units) {
            undo.push(Step::Unmap {
                addr: self.addr(offset),
                bytes: unit.run.bytes,
            });
        }
    }

    /// Whether other units can be mapped in it once the work on it is complete.
    fn is_changeable(&self) -> bool {
        self.is_unused() && self.changes < MOST_CHANGES
    }

    /// Whether no block and no graph uses it.
    fn is_unused(&self) -> bool {
        self.blocks == 0 && self.kept_for.is_none()
    }

    /// The work that may still use it after its last block was freed.
    pub(super) fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Bytes of addresses.
    pub(super) fn room(&self) -> u64 {
        self.room
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

/// Whether a unit lies at this offset.
fn has(placed: &[(u64, Unit)], offset: u64, unit: Unit) -> bool {
    let found = placed.binary_search_by_key(&offset, |&(offset, _)| offset);
    found.is_ok_and(|index| placed[index].1 == unit)
}

/// Units that lie one behind the other, with their offsets.
fn placed(units: &[Unit]) -> Vec<(u64, Unit)> {
    let mut offset = 0;
    let place = |&unit: &Unit| {
        let at = offset;
        offset += unit.run.bytes;
        (at, unit)
    };
    units.iter().map(place).collect()
}

/// The units, merged where they are contiguous at home.
fn patches(units: &[Unit]) -> Vec<Patch> {
    let mut patches: Vec<Patch> = Vec::new();
    for (offset, Unit { run: home, .. }) in placed(units) {
        match patches.last_mut() {
            Some(last) if last.home.end() == home.start => last.home.bytes += home.bytes,
            _ => patches.push(Patch { offset, home }),
        }
    }
    patches
}

/// All views.
#[derive(Debug, Default)]
pub(super) struct Views {
    /// By identifier; `None` for one that can be given again.
    views: Vec<Option<View>>,
    count: usize,
    clock: u64,
    /// Bytes of the addresses of all views.
    room: u64,
}

impl Views {
    pub(super) fn map(
        &mut self,
        device: &mut dyn Driver,
        undo: &mut Undo,
        units: Vec<Unit>,
    ) -> Served<ViewId> {
        let view = View::map(device, undo, units)?;
        let vacant = self.views.iter().position(Option::is_none);
        let index = vacant.unwrap_or_else(|| {
            self.views.push(None);
            self.views.len() - 1
        });
        let id = ViewId(index as u32);
        self.put(id, view);
        Ok(id)
    }

    /// Maps other units in an unused view, as [`View::change`] does. If the device fails, the view is gone.
    pub(super) fn change(
        &mut self,
        device: &mut dyn Driver,
        undo: &mut Undo,
        id: ViewId,
        units: Vec<Unit>,
    ) -> Served {
        if let Some(view) = self.take(id) {
            let mut changed = view.change(device, undo, units)?;
            changed.changes += 1;
            self.put(id, changed);
        }
        Ok(())
    }

    fn put(&mut self, id: ViewId, view: View) {
        self.count += 1;
        self.room += view.room;
        self.views[id.0 as usize] = Some(view);
    }

    fn take(&mut self, id: ViewId) -> Option<View> {
        let view = self.views.get_mut(id.0 as usize)?.take()?;
        self.count -= 1;
        self.room -= view.room;
        Some(view)
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

    /// Bytes of the addresses of all views.
    pub(super) fn room(&self) -> u64 {
        self.room
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

    /// Counts a block that is freed at a place. `ends` are the present ends of the work of all streams.
    pub(super) fn leave(&mut self, place: Place, ends: impl Iterator<Item = Mark>) {
        if let Some(view) = self.get_mut(place) {
            view.blocks -= 1;
            if view.blocks == 0 {
                view.marks.clear();
                view.marks.extend(ends);
            }
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

    /// The views that can be changed, those used last first.
    pub(super) fn changeable(&self) -> impl Iterator<Item = ViewId> {
        let changeable = self.iter().filter(|(_, view)| view.is_changeable());
        let mut changeable: Vec<_> = changeable
            .map(|(id, view)| (Reverse(view.used), id))
            .collect();
        changeable.sort_unstable();
        changeable.into_iter().map(|(_, id)| id)
    }

    /// Removes the least recently used view without blocks that no graph uses.
    pub(super) fn take_oldest(&mut self) -> Option<View> {
        let unused = self.iter().filter(|(_, view)| view.is_unused());
        let (id, _) = unused.min_by_key(|&(id, view)| (view.used, id))?;
        self.take(id)
    }
}
