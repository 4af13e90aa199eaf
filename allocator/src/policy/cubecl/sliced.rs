//! Slices of pages: a ladder of pools with increasing page sizes, and first fit in each pool.
//!
//! With a largest page of 20 GiB, a quarter of 80 GiB:
//!
//! | page size   | for requests up to | and of more than           |
//! |-------------|--------------------|----------------------------|
//! | 20 MiB      | 640 KiB            | 16 MiB                     |
//! | 80 MiB      | 5 MiB              | 64 MiB                     |
//! | 320 MiB     | 40 MiB             | 256 MiB                    |
//! | 1280 MiB    | 320 MiB            | 1 GiB                      |
//! | 5 GiB       | 2.5 GiB            | 4 GiB                      |
//! | 20 GiB      | 20 GiB             |                            |
//!
//! A request goes to the first pool that accepts it and to no other. If none of the pool's pages has room,
//! the pool takes a new page. Pages are returned only when the cache is emptied.
//!
//! Source: `MemoryManagement::from_configuration`, `SlicedPool`, `MemoryPage`. The original merges
//! neighbouring free slices before it searches a page. Here they are merged when they are freed, with the
//! same result, because all sizes are multiples of the alignment.

use std::collections::BTreeMap;

use super::super::settings::{PolicySettings, PolicySettingsError};
use super::super::{Block, Policy, Refusal, Served, only_default};
use super::{ALIGNMENT, LARGER_THAN_A_PAGE, MaxPage, return_pages};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, Status, StreamId};

/// Pages are quartered while they have at least 32 MiB.
const QUARTERED_FROM: u64 = 32 << 20;

/// The memory management of one stream.
#[derive(Clone, Debug)]
pub struct SubSlices {
    max_page: MaxPage,
    /// Smallest pages first. Created at the first request.
    pools: Vec<Pool>,
}

/// Pages of one size.
#[derive(Clone, Debug)]
struct Pool {
    page_size: u64,
    max_slice_size: u64,
    /// In the order in which they are tried.
    pages: Vec<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    addr: DeviceAddr,
    bytes: u64,
    /// Bytes of the free slices by offset. No two touch.
    free: BTreeMap<u64, u64>,
}

impl SubSlices {
    /// See [`Sliced`](super::Sliced).
    pub(super) fn from_settings(
        settings: &mut PolicySettings,
    ) -> Result<Self, PolicySettingsError> {
        let max_page = MaxPage::take(settings)?;
        Ok(Self {
            max_page,
            pools: Vec::new(),
        })
    }

    /// Returns the pool for requests of this size.
    fn pool_for(&mut self, bytes: u64) -> Option<&mut Pool> {
        self.pools.iter_mut().find(|pool| pool.accepts(bytes))
    }
}

/// Returns the pools for a largest page. Each has pages a quarter as large as the next, and its largest
/// slice is half as large in proportion to the page.
fn ladder(max_page: u64) -> Vec<Pool> {
    let mut pools = vec![Pool::new(max_page / ALIGNMENT * ALIGNMENT, u32::MIN)];
    let mut page = max_page;
    while page >= QUARTERED_FROM {
        page = (page / 4).next_multiple_of(ALIGNMENT);
        pools.push(Pool::new(page, pools.len() as u32));
    }
    pools.reverse();
    pools
}

impl Pool {
    fn new(page_size: u64, halvings: u32) -> Self {
        Self {
            page_size,
            max_slice_size: page_size >> halvings,
            pages: Vec::new(),
        }
    }

    /// Whether the pool takes requests of this size: small slices, or more than four fifths of a page.
    fn accepts(&self, bytes: u64) -> bool {
        let left_over = self.page_size.checked_sub(bytes);
        bytes <= self.max_slice_size || left_over.is_some_and(|left| left * 5 < self.page_size)
    }

    fn reserve(&mut self, device: &mut dyn Driver, bytes: u64) -> Status<DeviceAddr> {
        if let Some(addr) = self.pages.iter_mut().find_map(|page| page.reserve(bytes)) {
            return Ok(addr);
        }
        let mut page = Page::new(device.malloc(self.page_size)?, self.page_size);
        let addr = page.reserve(bytes);
        self.pages.push(page);
        addr.ok_or(DriverError::OutOfMemory)
    }

    /// Returns the unused pages. A page that the device does not take back is kept.
    fn cleanup(&mut self, device: &mut dyn Driver) -> Status {
        return_pages(&mut self.pages, device, |page| {
            page.is_free().then_some((page.addr, page.bytes))
        })
    }
}

impl Page {
    fn new(addr: DeviceAddr, bytes: u64) -> Self {
        Self {
            addr,
            bytes,
            free: BTreeMap::from([(0, bytes)]),
        }
    }

    fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }

    fn contains(&self, addr: DeviceAddr) -> bool {
        self.addr <= addr && addr.offset_from(self.addr) < self.bytes
    }

    /// Takes the front of the first free slice that is large enough.
    fn reserve(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let mut slices = self.free.iter();
        let (&offset, &slice) = slices.find(|&(_, &slice)| slice >= bytes)?;
        self.free.remove(&offset);
        if slice > bytes {
            self.free.insert(offset + bytes, slice - bytes);
        }
        Some(self.addr.offset(offset))
    }

    /// Frees a slice and merges it with its free neighbours.
    fn release(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some(next) = self.free.remove(&(offset + bytes)) {
            bytes += next;
        }
        if let Some((&before, &other)) = self.free.range(..offset).next_back()
            && before + other == offset
        {
            offset = before;
            bytes += other;
        }
        self.free.insert(offset, bytes);
    }
}

impl Policy for SubSlices {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        if self.pools.is_empty() {
            self.pools = ladder(self.max_page.bytes(device));
        }
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let pool = self
            .pool_for(bytes)
            .ok_or(Refusal::Unsupported(LARGER_THAN_A_PAGE))?;
        let addr = pool.reserve(device, bytes)?;
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Served {
        let Some(pool) = self.pool_for(block.bytes) else {
            return Ok(());
        };
        let mut pages = pool.pages.iter_mut();
        if let Some(page) = pages.find(|page| page.contains(block.addr)) {
            page.release(block.addr.offset_from(page.addr), block.bytes);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        let mut outcome = Ok(());
        for pool in &mut self.pools {
            outcome = outcome.and(pool.cleanup(device));
        }
        Ok(outcome?)
    }

    fn check(&self) -> Result<(), Violation> {
        for page in self.pools.iter().flat_map(|pool| &pool.pages) {
            let mut end = None;
            for (&offset, &bytes) in &page.free {
                ensure!(
                    end.is_none_or(|end| offset > end),
                    "free slices of the page at {} touch at {offset}",
                    page.addr
                );
                end = Some(offset + bytes);
            }
            ensure!(
                end <= Some(page.bytes),
                "a free slice exceeds the page at {}",
                page.addr
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_large_slice_leaves_less_than_a_fifth_of_its_page() {
        let pool = Pool::new(20 * MIB, 5);
        for (bytes, accepted) in [
            (640 << 10, true),
            ((640 << 10) + 512, false),
            (16 * MIB, false),
            (16 * MIB + 512, true),
            (20 * MIB, true),
            (20 * MIB + 512, false),
        ] {
            assert_eq!(pool.accepts(bytes), accepted, "{bytes}");
        }
    }
}
