//! The pool: pages mapped in ranges of reserved addresses.
//!
//! Source: VPMM, `VirtualMemoryPool`.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, MemoryHandle, StreamId};
use crate::policy::fence::Fences;
use crate::policy::free_runs::{FreeRuns, Run};
use crate::policy::undo::{Step, Undo};
use crate::policy::{Block, Served};

use super::Settings;
use super::regions::{FreeRegions, LastUse, forget, is_over};

/// Old addresses of pages that are mapped elsewhere, too. They are unmapped once the work that may use them
/// is complete.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) run: Run,
    pub(super) last_use: LastUse,
}

/// Each address of `chunks` is in use, free, retired, a hole or abandoned.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub(super) settings: Settings,
    /// Reserved addresses, `va_size` bytes each.
    pub(super) chunks: Vec<Run>,
    /// Addresses that nothing is mapped to.
    pub(super) holes: FreeRuns,
    /// The ends of holes that were taken for requests but not needed. The original never uses them again.
    abandoned: Vec<Run>,
    /// Bytes of the blocks by address.
    in_use: HashMap<DeviceAddr, u64, FixedState>,
    pub(super) free: FreeRegions,
    pub(super) retired: Vec<Retired>,
    /// The page at each address in use or free.
    pub(super) pages: HashMap<u64, MemoryHandle, FixedState>,
    /// Whether the initial pages were created.
    is_ready: bool,
    pub(super) fences: Fences,
    /// What a failing device did not take back. Nothing is mapped to a hole before this is done.
    pub(super) undo: Undo,
}

impl Pool {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            is_ready: settings.initial_pages == 0,
            ..Self::default()
        }
    }

    /// Whether a block is from the pool.
    pub(super) fn has(&self, block: Block) -> bool {
        self.in_use.contains_key(&block.addr)
    }

    /// Returns the address of `bytes`, a multiple of the page size, for work on `stream`.
    pub(super) fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<DeviceAddr> {
        self.settle(device)?;
        self.create_initial_pages(device)?;
        self.unmap_retired(device)?;
        let start = self.region_for(device, bytes, stream)?;
        self.free.adopt(start, stream);
        let last_use = self.free.cut(Run { start, bytes });
        forget(last_use, &mut self.fences);
        let addr = DeviceAddr(start);
        self.in_use.insert(addr, bytes);
        Ok(addr)
    }

    /// Returns the start of a free region with at least `bytes`, on which `stream` can work at once.
    fn region_for(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<u64> {
        if let Some(own) = self.free.best_fit(stream, bytes) {
            return Ok(own.start);
        }
        match self.free.best_complete(device, bytes)? {
            Some(other) => Ok(other.start),
            None => self.defragment(device, bytes, stream),
        }
    }

    pub(super) fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let fence = self.fences.raise(device, &[block.stream])?;
        self.in_use.remove(&block.addr);
        let freed = Run {
            start: block.addr.0,
            bytes: block.bytes,
        };
        let last_use = Some(fence.into());
        self.free
            .add(&mut self.fences, freed, Some(block.stream), last_use);
        Ok(())
    }

    fn create_initial_pages(&mut self, device: &mut dyn Driver) -> Served {
        if !self.is_ready {
            let Settings {
                page_size,
                initial_pages,
                ..
            } = self.settings;
            let hole = self.take_hole(device, page_size * initial_pages)?;
            match self.grow(device, hole, None) {
                Ok(_) => self.is_ready = true,
                Err(refusal) => {
                    self.add_hole(hole);
                    return Err(refusal);
                }
            }
        }
        Ok(())
    }

    /// Unmaps the retired addresses on which all work is complete.
    fn unmap_retired(&mut self, device: &mut dyn Driver) -> Served {
        let mut next = 0;
        while let Some(retired) = self.retired.get(next) {
            if is_over(&retired.last_use, device)? {
                let retired = self.retired.swap_remove(next);
                self.unmap(retired);
                self.settle(device)?;
            } else {
                next += 1;
            }
        }
        Ok(())
    }

    /// Makes a hole of retired addresses when `undo` runs.
    fn unmap(&mut self, retired: Retired) {
        for page in self.pages_of(retired.run) {
            self.push_unmap(page);
        }
        self.add_hole(retired.run);
        forget(retired.last_use, &mut self.fences);
    }

    fn push_unmap(&mut self, page: u64) {
        self.undo.push(Step::Unmap {
            addr: DeviceAddr(page),
            bytes: self.settings.page_size,
        });
    }

    /// The addresses of the pages in a run.
    pub(super) fn pages_of(&self, run: Run) -> impl Iterator<Item = u64> + use<> {
        let bytes = self.settings.page_size;
        (0..run.bytes / bytes).map(move |page| run.start + page * bytes)
    }

    /// Retries the steps that a failing device refused.
    fn settle(&mut self, device: &mut dyn Driver) -> Served {
        match device.virtual_memory() {
            Some(memory) => Ok(self.undo.run(memory)?),
            None => Ok(()),
        }
    }

    /// Returns everything that is not in use to the device, after waiting for it.
    pub(super) fn empty(&mut self, device: &mut dyn Driver) -> Served {
        device.synchronize_device()?;
        for retired in std::mem::take(&mut self.retired) {
            self.unmap(retired);
        }
        let free: Vec<Run> = self.free.iter().collect();
        for run in free {
            forget(self.free.cut(run), &mut self.fences);
            self.release(run);
        }
        for run in std::mem::take(&mut self.abandoned) {
            self.add_hole(run);
        }
        self.settle(device)?;
        for chunk in std::mem::take(&mut self.chunks) {
            if self.holes.contains(chunk) {
                self.holes.take(chunk);
                self.undo.push(Step::FreeAddress {
                    addr: DeviceAddr(chunk.start),
                    bytes: chunk.bytes,
                });
            } else {
                self.chunks.push(chunk);
            }
        }
        self.settle(device)
    }

    /// Makes a hole of a run of pages, which are returned to the device, when `undo` runs.
    fn release(&mut self, run: Run) {
        for page in self.pages_of(run) {
            if let Some(handle) = self.pages.remove(&page) {
                self.undo.push(Step::Release {
                    handle,
                    bytes: self.settings.page_size,
                });
            }
            self.push_unmap(page);
        }
        self.add_hole(run);
    }

    /// Adds a run of addresses, which may be empty, to the holes.
    pub(super) fn add_hole(&mut self, run: Run) {
        if run.bytes > 0 {
            self.holes.give(run);
        }
    }

    /// Gives up addresses at the end of a hole, if any, until the cache is emptied.
    pub(super) fn abandon(&mut self, run: Run) {
        if run.bytes > 0 {
            self.abandoned.push(run);
        }
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.holes.check()?;
        self.free.check()?;
        let in_use = self.in_use.iter().map(|(addr, &bytes)| Run {
            start: addr.0,
            bytes,
        });
        let with_pages: Vec<Run> = in_use.chain(self.free.iter()).collect();
        let retired = self.retired.iter().map(|retired| retired.run);
        let without = retired
            .chain(self.holes.iter())
            .chain(self.abandoned.iter().copied());
        let mut all: Vec<Run> = with_pages.iter().copied().chain(without).collect();
        all.sort_unstable();
        for pair in all.windows(2) {
            ensure!(
                pair[0].end() <= pair[1].start,
                "the address {:#x} has two purposes",
                pair[1].start
            );
        }
        ensure!(
            joined(all) == joined(self.chunks.clone()),
            "some reserved addresses have no purpose, or others have one"
        );
        let pages: HashSet<u64> = with_pages
            .iter()
            .flat_map(|&run| self.pages_of(run))
            .collect();
        ensure!(
            pages.len() == self.pages.len()
                && pages.iter().all(|page| self.pages.contains_key(page)),
            "{} pages are in use or free, {} are known",
            pages.len(),
            self.pages.len()
        );
        let handles: HashSet<MemoryHandle> = self.pages.values().copied().collect();
        ensure!(handles.len() == pages.len(), "a page is in use twice");
        Ok(())
    }
}

/// The maximal runs of addresses in runs that do not overlap.
fn joined(runs: Vec<Run>) -> Vec<Run> {
    let mut joined = FreeRuns::default();
    for run in runs {
        joined.give(run);
    }
    joined.iter().collect()
}
