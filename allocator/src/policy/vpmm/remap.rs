//! Makes free regions: from new pages, and from free pages that are mapped again.
//!
//! Source: VPMM, `defragment_or_create_new_pages`, `remap_regions`, `take_unmapped_region`.

use crate::driver::{DeviceAddr, Driver, HandleKind, MemoryHandle, StreamId};
use crate::policy::fence::Fence;
use crate::policy::free_runs::Run;
use crate::policy::undo::{Step, Undo};
use crate::policy::{Refusal, Served, memory_of};

use super::pool::{Pool, Retired};
use super::regions::{LastUse, Part, forget, is_over};

/// A page to map.
#[derive(Clone, Copy)]
enum Page {
    New,
    Mapped(MemoryHandle),
}

/// Pages that were mapped at consecutive addresses.
struct Mapped {
    handles: Vec<MemoryHandle>,
    /// The end of the stream's work when they were mapped.
    last_use: LastUse,
}

impl Pool {
    /// Makes a free region of at least `bytes` for a stream, and returns its start. Creates pages only for
    /// what all free regions together lack.
    pub(super) fn defragment(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<u64> {
        let mut hole = self.take_hole(device, bytes)?;
        let filled = self.fill(device, &mut hole, bytes, stream);
        match filled {
            Ok(_) => self.abandon(hole),
            Err(_) => self.add_hole(hole),
        }
        filled.map(|region| region.start)
    }

    /// Makes a free region of at least `bytes` at the start of a hole, or just before it. The rest of the
    /// hole remains.
    fn fill(
        &mut self,
        device: &mut dyn Driver,
        hole: &mut Run,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Run> {
        let mut grown = None;
        let missing = bytes.saturating_sub(self.free.bytes());
        if missing > 0 {
            let (target, rest) = hole.split_at(missing);
            grown = Some(self.grow(device, target, Some(stream))?);
            *hole = rest;
        }
        if let Some(region) = grown
            && region.bytes >= bytes
        {
            // The new pages were merged with a free region before them.
            return Ok(region);
        }
        let still = bytes - grown.map_or(0, |region| region.bytes);
        let (target, rest) = hole.split_at(still);
        let region = self.remap(device, target, stream, grown)?;
        *hole = rest;
        Ok(region)
    }

    /// Takes the first `bytes` of the smallest hole that is large enough. If there is none, reserves
    /// addresses.
    pub(super) fn take_hole(&mut self, device: &mut dyn Driver, bytes: u64) -> Served<Run> {
        let va_size = self.settings.va_size;
        if bytes > va_size {
            return Err(Refusal::OutOfMemory);
        }
        let start = match self.holes.smallest(bytes) {
            Some(hole) => hole.start,
            None => {
                let start = memory_of(device)?.reserve(va_size)?.0;
                let bytes = va_size;
                let chunk = Run { start, bytes };
                self.chunks.push(chunk);
                self.holes.give(chunk);
                start
            }
        };
        let hole = Run { start, bytes };
        self.holes.take(hole);
        Ok(hole)
    }

    /// Maps new pages to the addresses of `target`, and adds them as a free region. Returns the region that
    /// they are part of.
    pub(super) fn grow(
        &mut self,
        device: &mut dyn Driver,
        target: Run,
        stream: Option<StreamId>,
    ) -> Served<Run> {
        let pages = vec![Page::New; self.pages_of(target).count()];
        let mapped = self.map(device, target, &pages, stream)?;
        Ok(self.add(target, mapped, stream))
    }

    /// Maps the pages of free regions other than `except` to the addresses of `target`, too, and makes them
    /// one free region. Their old addresses retire. Returns the region that they are part of.
    fn remap(
        &mut self,
        device: &mut dyn Driver,
        target: Run,
        stream: StreamId,
        except: Option<Run>,
    ) -> Served<Run> {
        let parts = self.free.oldest(stream, target.bytes, except);
        for part in &parts {
            wait_for(part, device, stream)?;
        }
        let olds: Vec<u64> = parts
            .iter()
            .flat_map(|part| self.pages_of(part.run))
            .collect();
        let handles = olds.iter().filter_map(|page| self.pages.get(page));
        let pages: Vec<Page> = handles.map(|&handle| Page::Mapped(handle)).collect();
        let mapped = self.map(device, target, &pages, Some(stream))?;
        for page in olds {
            self.pages.remove(&page);
        }
        for Part { run, last_use, .. } in parts {
            forget(self.free.cut(run), &mut self.fences);
            self.retired.push(Retired { run, last_use });
        }
        Ok(self.add(target, mapped, Some(stream)))
    }

    fn add(&mut self, target: Run, mapped: Mapped, stream: Option<StreamId>) -> Run {
        let Mapped { handles, last_use } = mapped;
        self.pages.extend(self.pages_of(target).zip(handles));
        self.free.add(&mut self.fences, target, stream, last_use)
    }

    /// Maps pages to the addresses of `target`, in order, and records the end of the stream's work. Keeps
    /// nothing if the device fails.
    fn map(
        &mut self,
        device: &mut dyn Driver,
        target: Run,
        pages: &[Page],
        stream: Option<StreamId>,
    ) -> Served<Mapped> {
        let mut made = Undo::default();
        let mapped = self
            .map_all(device, &mut made, target, pages)
            .and_then(|handles| {
                let fence = self.end_of(device, stream)?;
                let last_use = fence.map(Into::into);
                Ok(Mapped { handles, last_use })
            });
        match mapped {
            Ok(mapped) => Ok(mapped),
            Err(refusal) => Err(self.undo.take_back(memory_of(device)?, made, refusal)),
        }
    }

    fn end_of(
        &mut self,
        device: &mut dyn Driver,
        stream: Option<StreamId>,
    ) -> Served<Option<Fence>> {
        let stream = stream.as_slice();
        match stream {
            [] => Ok(None),
            _ => self.fences.raise(device, stream).map(Some),
        }
    }

    /// Maps pages, with a step in `made` for each call.
    fn map_all(
        &self,
        device: &mut dyn Driver,
        made: &mut Undo,
        target: Run,
        pages: &[Page],
    ) -> Served<Vec<MemoryHandle>> {
        let memory = memory_of(device)?;
        let bytes = self.settings.page_size;
        let mut handles = Vec::with_capacity(pages.len());
        for (addr, &page) in self.pages_of(target).zip(pages) {
            let addr = DeviceAddr(addr);
            let handle = match page {
                Page::Mapped(handle) => handle,
                Page::New => {
                    let handle = memory.create(bytes, HandleKind::FileDescriptor)?;
                    made.push(Step::Release { handle, bytes });
                    handle
                }
            };
            memory.map(addr, bytes, handle)?;
            made.push(Step::Unmap { addr, bytes });
            handles.push(handle);
        }
        memory.set_access(DeviceAddr(target.start), target.bytes)?;
        Ok(handles)
    }
}

/// Makes later work of `stream` wait for the work on a part of another stream's region, if it is not complete.
fn wait_for(part: &Part, device: &mut dyn Driver, stream: StreamId) -> Served {
    if let Some(fence) = &part.last_use
        && part.is_foreign
        && !is_over(&part.last_use, device)?
    {
        fence.hold_up(device, stream)?;
    }
    Ok(())
}
