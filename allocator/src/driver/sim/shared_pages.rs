//! Small allocations share pages, as NVIDIA's driver places them.
//!
//! The rules were found by experiment, like those of the address policy [`cuda`](super::address::cuda), and the
//! same test compares them with recorded calls:
//!
//! - An allocation below 2 MiB is a multiple of 512 bytes in a page of 2 MiB.
//! - It takes the smallest gap of all pages that is large enough, of equal ones the oldest, at the gap's start.
//!   What remains of the gap counts as new, and so does a gap that grew because memory beside it was freed.
//! - If there is none, it gets a new page, which is an allocation of its own.
//! - A page is given back with the last allocation in it.

use std::collections::HashMap;

use crate::base::gaps::Gaps;
use crate::driver::{DeviceAddr, DriverError, GRANULARITY, Status};

/// Allocations start at and occupy multiples of it, in bytes.
const UNIT: u64 = 512;
/// The bytes of a page. Pages start at multiples of it.
const PAGE: u64 = GRANULARITY;

/// The pages of one process. No gap extends into another page.
#[derive(Debug, Default)]
pub(super) struct SharedPages {
    gaps: Gaps,
    /// Bytes of each live allocation, by start.
    live: HashMap<u64, u64>,
    /// Live allocations of each page, by its start.
    pages: HashMap<u64, usize>,
}

/// Whether an allocation of `bytes` shares a page with others.
pub(super) fn is_shared(bytes: u64) -> bool {
    (1..PAGE).contains(&bytes)
}

fn page_of(start: u64) -> u64 {
    start / PAGE * PAGE
}

impl SharedPages {
    /// Bytes that the live allocation at `addr` occupies.
    pub(super) fn allocation_at(&self, addr: DeviceAddr) -> Option<u64> {
        self.live.get(&addr.0).copied()
    }

    /// Places an allocation in a gap. Returns `None` if no page has room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<DeviceAddr> {
        let bytes = bytes.next_multiple_of(UNIT);
        let (start, _) = self.gaps.fitting(bytes).next()?;
        self.gaps.take(start, bytes);
        self.live.insert(start, bytes);
        *self.pages.entry(page_of(start)).or_default() += 1;
        Some(DeviceAddr(start))
    }

    /// Adds an empty page.
    pub(super) fn add_page(&mut self, page: DeviceAddr) {
        self.gaps.add(page.0, PAGE);
    }

    /// Frees an allocation. Returns its page if that was the last allocation in it; the page is then no longer
    /// among these.
    pub(super) fn give(&mut self, addr: DeviceAddr, bytes: u64) -> Status<Option<DeviceAddr>> {
        let (start, bytes) = (addr.0, bytes.next_multiple_of(UNIT));
        if self.live.get(&start) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        self.live.remove(&start);
        let page = page_of(start);
        self.gaps.give(start, bytes, page..page + PAGE);
        let live = self.pages.entry(page).or_default();
        *live -= 1;
        if *live > 0 {
            return Ok(None);
        }
        self.pages.remove(&page);
        self.gaps.remove(page);
        Ok(Some(DeviceAddr(page)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_page() -> SharedPages {
        let mut pages = SharedPages::default();
        pages.add_page(DeviceAddr(PAGE));
        pages
    }

    #[test]
    fn of_equal_gaps_the_oldest_is_taken() {
        let mut pages = with_page();
        let [a, _, c, _] = [1, 512, 100, 700].map(|bytes| pages.take(bytes).unwrap());
        assert_eq!(pages.give(c, 100), Ok(None));
        assert_eq!(pages.give(a, 1), Ok(None));
        assert_eq!(pages.take(512), Some(c), "freed first");
        assert_eq!(pages.take(512), Some(a));
    }

    #[test]
    fn a_page_is_given_back_with_its_last_allocation() {
        let mut pages = with_page();
        let (a, b) = (pages.take(PAGE - 512).unwrap(), pages.take(3).unwrap());
        assert_eq!(pages.take(1), None, "the page is full");
        assert_eq!(pages.allocation_at(b), Some(512));
        assert_eq!(pages.give(a, PAGE - 512), Ok(None));
        assert_eq!(pages.give(b, 3), Ok(Some(DeviceAddr(PAGE))));
        assert_eq!(pages.take(1), None);
        assert_eq!(pages.give(b, 3), Err(DriverError::InvalidValue));
    }

    #[test]
    fn gaps_of_neighbouring_pages_stay_apart() {
        let mut pages = with_page();
        pages.add_page(DeviceAddr(2 * PAGE));
        let [first, second] = [(); 2].map(|()| pages.take(PAGE - 512).unwrap());
        let [last, _] = [(); 2].map(|()| pages.take(512).unwrap());
        assert_eq!(pages.give(second, PAGE - 512), Ok(None));
        assert_eq!(pages.give(last, 512), Ok(None));
        assert_eq!(pages.take(PAGE - 512), Some(second));
        assert_eq!(first.0, PAGE);
    }
}
