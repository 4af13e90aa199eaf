//! The addresses of the pool, and its pages.
//!
//! All requests are served from one range of addresses, so blocks lie side by side and may span pages. A page in free memory
//! can be mapped again elsewhere in the range, so free memory in several places can serve one large request. The rules
//! were found by experiment, see the [model](super::model).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::base::check::{Violation, ensure};
use crate::base::gaps::Gaps;
use crate::driver::{DeviceAddr, Driver, HandleKind, MemoryHandle};
use crate::policy::undo::{Step, Undo};
use crate::policy::{Refusal, Served, memory_of};

/// Bytes of a page.
pub(super) const PAGE: u64 = 32 << 20;
/// The range has addresses for so many times the memory of the device.
const ROOM: u64 = 8;

/// Invariants: `pages` and `holes` are disjoint and together all page addresses from the start of the range up to `touched`.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// The reserved addresses, none before the first request.
    reserved: Option<(DeviceAddr, u64)>,
    /// The part of them that starts and ends with a page.
    range: Range<u64>,
    /// Free addresses that any stream may use.
    gaps: Gaps,
    /// The page mapped at each address.
    pages: BTreeMap<u64, MemoryHandle>,
    /// Addresses below `touched` at which no page is mapped.
    holes: BTreeSet<u64>,
    /// The end of the highest page that was ever mapped.
    touched: u64,
    /// Pages that are mapped nowhere, because the device failed.
    spare: Vec<MemoryHandle>,
    /// What a failing device did not take back. Nothing is mapped before this is done.
    undo: Undo,
}

impl Arena {
    /// Bytes of all pages.
    pub(super) fn held(&self) -> u64 {
        (self.pages.len() + self.spare.len()) as u64 * PAGE
    }

    /// Takes the smallest gap whose pages are all there, but not the last gap of the range. Returns its start.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let is_complete =
            |&(start, length): &_| !self.is_last(start, length) && self.is_mapped(start, length);
        let found = self.gaps.fitting(bytes).find(is_complete);
        let (start, _) = found?;
        self.gaps.take(start, bytes);
        Some(start)
    }

    /// Takes the smallest gap, and maps the pages that are missing: those in free memory, then new ones. Returns its start.
    pub(super) fn place(&mut self, device: &mut dyn Driver, bytes: u64) -> Served<u64> {
        self.settle(device)?;
        self.reserve(device)?;
        let (start, length) = self
            .gaps
            .fitting(bytes)
            .next()
            .ok_or(Refusal::OutOfMemory)?;
        self.gaps.remove(start);
        let mapped = self.map(device, start, bytes, length);
        let taken = if mapped.is_ok() { bytes } else { 0 };
        if length > taken {
            self.gaps.add(start + taken, length - taken);
        }
        mapped.map(|()| start)
    }

    /// Adds free memory that any stream may use.
    pub(super) fn give(&mut self, start: u64, bytes: u64) {
        self.gaps.give(start, bytes, self.range.clone());
    }

    /// Returns free pages to the device until at most `keep` bytes are held.
    pub(super) fn release(&mut self, device: &mut dyn Driver, keep: u64) -> Served {
        self.settle(device)?;
        while self.held() > keep
            && let Some(handle) = self.spare.pop()
        {
            self.undo.push(Step::Release {
                handle,
                bytes: PAGE,
            });
        }
        for page in self.donors(None) {
            if self.held() <= keep {
                break;
            }
            if let Some(handle) = self.take_out(page) {
                self.undo.push(Step::Release {
                    handle,
                    bytes: PAGE,
                });
                self.undo.push(Step::Unmap {
                    addr: DeviceAddr(page),
                    bytes: PAGE,
                });
            }
        }
        let is_unused = self.held() == 0 && self.gaps.iter().eq([self.whole()]);
        if is_unused && let Some((addr, bytes)) = self.reserved.take() {
            // It is undone last.
            let rest = std::mem::take(&mut self.undo);
            self.undo.push(Step::FreeAddress { addr, bytes });
            self.undo.append(rest);
            *self = Self {
                undo: std::mem::take(&mut self.undo),
                ..Self::default()
            };
        }
        self.settle(device)
    }

    fn whole(&self) -> (u64, u64) {
        (self.range.start, self.range.end - self.range.start)
    }

    /// Retries what a failing device refused.
    fn settle(&mut self, device: &mut dyn Driver) -> Served {
        Ok(self.undo.run(memory_of(device)?)?)
    }

    fn reserve(&mut self, device: &mut dyn Driver) -> Served {
        if self.reserved.is_some() {
            return Ok(());
        }
        let bytes = device
            .total_memory()
            .saturating_mul(ROOM)
            .checked_next_multiple_of(PAGE)
            .ok_or(Refusal::OutOfMemory)?;
        let addr = memory_of(device)?.reserve(bytes)?;
        let start = addr.0.next_multiple_of(PAGE);
        self.reserved = Some((addr, bytes));
        self.range = start..(addr.0 + bytes) / PAGE * PAGE;
        self.touched = start;
        let (start, bytes) = self.whole();
        self.gaps.add(start, bytes);
        Ok(())
    }

    /// Whether a gap reaches the end of the range.
    fn is_last(&self, start: u64, bytes: u64) -> bool {
        start + bytes == self.range.end
    }

    /// Whether pages are mapped at all of these addresses.
    fn is_mapped(&self, start: u64, bytes: u64) -> bool {
        let first = start / PAGE * PAGE;
        start + bytes <= self.touched && self.holes.range(first..start + bytes).next().is_none()
    }

    /// Maps the pages that are missing for the first `bytes` of a gap. The gap has `length` bytes and was removed from `gaps`.
    fn map(&mut self, device: &mut dyn Driver, start: u64, bytes: u64, length: u64) -> Served {
        let first = start / PAGE * PAGE;
        let missing: Vec<u64> = (first..start + bytes)
            .step_by(PAGE as usize)
            .filter(|page| !self.pages.contains_key(page))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let rest = (start + bytes, length - bytes);
        let donors = self.donors(Some(rest));
        let new = missing
            .len()
            .saturating_sub(self.spare.len() + donors.len());
        let mut created = self.create(device, new)?;
        let mut donors = donors.into_iter();
        let mapped = missing.into_iter().try_for_each(|page| {
            let handle = match self.spare.pop() {
                Some(spare) => spare,
                None => match donors.next() {
                    Some(donor) => self.unmap(device, donor)?,
                    None => created.pop().ok_or(Refusal::OutOfMemory)?,
                },
            };
            self.map_page(device, page, handle)
        });
        self.spare.append(&mut created);
        mapped
    }

    /// Creates pages, all or none: a request that fails leaves no memory behind.
    fn create(&mut self, device: &mut dyn Driver, pages: usize) -> Served<Vec<MemoryHandle>> {
        let memory = memory_of(device)?;
        let mut created = Vec::new();
        for _ in 0..pages {
            match memory.create(PAGE, HandleKind::FileDescriptor) {
                Ok(handle) => created.push(handle),
                Err(error) => {
                    for handle in created {
                        self.undo.push(Step::Release {
                            handle,
                            bytes: PAGE,
                        });
                    }
                    let _kept_for_later = self.undo.run(memory);
                    return Err(error.into());
                }
            }
        }
        Ok(created)
    }

    fn map_page(&mut self, device: &mut dyn Driver, page: u64, handle: MemoryHandle) -> Served {
        let memory = memory_of(device)?;
        let addr = DeviceAddr(page);
        if let Err(error) = memory.map(addr, PAGE, handle) {
            self.spare.push(handle);
            return Err(error.into());
        }
        if let Err(error) = memory.set_access(addr, PAGE) {
            self.undo.push(Step::Release {
                handle,
                bytes: PAGE,
            });
            self.undo.push(Step::Unmap { addr, bytes: PAGE });
            let _kept_for_later = self.undo.run(memory);
            return Err(error.into());
        }
        self.pages.insert(page, handle);
        self.holes.remove(&page);
        self.holes
            .extend((self.touched..page).step_by(PAGE as usize));
        self.touched = self.touched.max(page + PAGE);
        Ok(())
    }

    fn unmap(&mut self, device: &mut dyn Driver, page: u64) -> Served<MemoryHandle> {
        memory_of(device)?.unmap(DeviceAddr(page), PAGE)?;
        let handle = self.take_out(page);
        handle.ok_or_else(|| Refusal::Failed(format!("no page at {page:#x}")))
    }

    fn take_out(&mut self, page: u64) -> Option<MemoryHandle> {
        let handle = self.pages.remove(&page)?;
        self.holes.insert(page);
        Some(handle)
    }

    /// The pages in free memory and in `other`, which is free, too: the highest first, as they are mapped elsewhere.
    fn donors(&self, other: Option<(u64, u64)>) -> Vec<u64> {
        let gaps = self.gaps.iter().chain(other);
        let mut pages: Vec<u64> = gaps.flat_map(|gap| self.pages_in(gap)).collect();
        pages.sort_unstable_by_key(|&page| std::cmp::Reverse(page));
        pages
    }

    /// The mapped pages that lie in a gap as a whole, in the order of their addresses.
    fn pages_in(&self, (start, bytes): (u64, u64)) -> impl Iterator<Item = u64> {
        let first = start.next_multiple_of(PAGE);
        let end = (start + bytes) / PAGE * PAGE;
        self.pages
            .range(first..end.max(first))
            .map(|(&page, _)| page)
    }

    /// The gaps, and whether the pages of `used`, which is everything else, are mapped.
    pub(super) fn check(&self, used: &BTreeMap<u64, u64>) -> Result<(), Violation> {
        let mut all = used.clone();
        for (start, bytes) in self.gaps.iter() {
            ensure!(
                all.insert(start, bytes).is_none(),
                "{start:#x} is in use and free"
            );
        }
        let mut end = self.range.start;
        for (&start, &bytes) in &all {
            ensure!(start == end, "gap or overlap at {start:#x}");
            end = start + bytes;
        }
        ensure!(end == self.range.end, "the range is not covered");
        for (&start, &bytes) in used {
            ensure!(
                self.is_mapped(start, bytes),
                "a page of {start:#x} is missing"
            );
        }
        for page in (self.range.start..self.touched).step_by(PAGE as usize) {
            let (mapped, hole) = (self.pages.contains_key(&page), self.holes.contains(&page));
            ensure!(mapped != hole, "{page:#x} is a page and a hole, or neither");
        }
        Ok(())
    }
}
