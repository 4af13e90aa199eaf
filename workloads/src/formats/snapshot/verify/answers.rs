//! A device that answers as the recorded one.
//!
//! Neither the device memory nor the memory of other processes is recorded. But the recording contains the
//! memory that the device granted, in order; every other request is taken to have been refused.

use std::collections::{BTreeMap, VecDeque};

use coalesce_alloc::driver::calls::{Call, CallKind};
use coalesce_alloc::driver::tap::Hook;
use coalesce_alloc::driver::{DeviceAddr, DriverError};
use coalesce_alloc::history::{Action, TraceEntry};

/// Refuses memory that the recording does not take.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The remaining entries about segments of the current call; for pages, with the remaining size.
    /// `None` grants every request.
    expected: Option<VecDeque<TraceEntry>>,
    /// The reserved address ranges: start → bytes.
    reserved: BTreeMap<DeviceAddr, u64>,
    /// The ranges before the current call, if it changed them.
    before: Option<BTreeMap<DeviceAddr, u64>>,
}

impl Answers {
    /// Begins a call. Grants exactly the memory in these entries.
    pub(super) fn expect(&mut self, entries: impl Iterator<Item = TraceEntry>) {
        let expected = self.expected.get_or_insert_default();
        expected.clear();
        expected.extend(entries);
        self.before = None;
    }

    /// The reserved address ranges before the current call: start → bytes.
    pub(super) fn ranges_before(&self) -> &BTreeMap<DeviceAddr, u64> {
        self.before.as_ref().unwrap_or(&self.reserved)
    }

    /// The reserved address ranges, to be changed.
    fn ranges_mut(&mut self) -> &mut BTreeMap<DeviceAddr, u64> {
        self.before.get_or_insert_with(|| self.reserved.clone());
        &mut self.reserved
    }

    /// Whether `addr` lies in a reserved range.
    pub(super) fn is_reserved(&self, addr: DeviceAddr) -> bool {
        let below = self.reserved.range(..=addr).next_back();
        below.is_some_and(|(&start, &bytes)| addr.offset_from(start) < bytes)
    }

    /// Whether the recording takes such memory next.
    fn grants(&self, action: Action, fits: impl Fn(u64) -> bool) -> bool {
        let Some(expected) = &self.expected else {
            return true;
        };
        let next = expected.front();
        next.is_some_and(|next| next.action == action && fits(next.size))
    }

    /// Removes the entry of a whole segment.
    fn remove(&mut self, action: Action, addr: DeviceAddr) {
        if let Some(expected) = &mut self.expected {
            let place = expected
                .iter()
                .position(|e| (e.action, e.addr) == (action, addr));
            place.and_then(|place| expected.remove(place));
        }
    }

    /// Removes a page from the first entry.
    fn advance(&mut self, action: Action, bytes: u64) {
        let Some(expected) = &mut self.expected else {
            return;
        };
        if let Some(next) = expected.front_mut().filter(|next| next.action == action) {
            next.size = next.size.saturating_sub(bytes);
            if next.size == 0 {
                expected.pop_front();
            }
        }
    }
}

impl Hook for Answers {
    fn before(&mut self, kind: CallKind, bytes: u64) -> Result<(), DriverError> {
        let grants = match kind {
            CallKind::Malloc => self.grants(Action::SegmentAlloc, |size| size == bytes),
            CallKind::Create => self.grants(Action::SegmentMap, |left| left >= bytes),
            _ => true,
        };
        grants.then_some(()).ok_or(DriverError::OutOfMemory)
    }

    fn after(&mut self, call: &Call) {
        match *call {
            Call::Malloc { addr, .. } => self.remove(Action::SegmentAlloc, addr),
            Call::Free { addr, .. } => self.remove(Action::SegmentFree, addr),
            Call::Create { bytes, .. } => self.advance(Action::SegmentMap, bytes),
            Call::Unmap { bytes, .. } => self.advance(Action::SegmentUnmap, bytes),
            Call::Reserve { bytes, addr } => {
                self.ranges_mut().insert(addr, bytes);
            }
            Call::FreeAddress { addr, .. } => {
                self.ranges_mut().remove(&addr);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::snapshot::fixture::entry;

    #[test]
    fn only_recorded_memory_is_granted() {
        let mut answers = Answers::default();
        let is_free = answers.before(CallKind::Malloc, 1).is_ok();
        assert!(is_free, "nothing is expected yet");
        let entries = [
            entry(Action::SegmentFree, 512, 8),
            entry(Action::SegmentAlloc, 1024, 16),
            entry(Action::SegmentMap, 2048, 20),
        ];
        answers.expect(entries.into_iter());
        let is_refused = answers.before(CallKind::Malloc, 16).is_err();
        assert!(is_refused, "not before the free");
        let addr = DeviceAddr(512);
        answers.after(&Call::Free { addr, bytes: 8 });
        assert!(answers.before(CallKind::Malloc, 8).is_err(), "another size");
        assert!(answers.before(CallKind::Malloc, 16).is_ok());
        let addr = DeviceAddr(1024);
        answers.after(&Call::Malloc { bytes: 16, addr });
        for _ in 0..2 {
            assert!(answers.before(CallKind::Create, 10).is_ok());
            let handle = coalesce_alloc::driver::MemoryHandle(0);
            answers.after(&Call::Create { bytes: 10, handle });
        }
        let is_refused = answers.before(CallKind::Create, 10).is_err();
        assert!(is_refused, "all pages are mapped");
    }
}
