//! The arena of a plan: which ranges are in use, and which streams used them last.
//!
//! The plan fixes every range, so nothing is searched; the arena only checks for live blocks. If other
//! streams used a range, or still do, the stream that takes it waits for them on the device. The caller
//! does not wait.

use std::collections::BTreeMap;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};
use crate::policy::Served;
use crate::policy::fence::Fences;

/// A range that was taken before.
#[derive(Clone, Debug)]
struct Span {
    end: u64,
    is_live: bool,
    /// The stream that took it.
    stream: StreamId,
    /// The other streams that its block was recorded on.
    others: Vec<StreamId>,
}

impl Span {
    fn users(&self) -> impl Iterator<Item = StreamId> {
        [self.stream].into_iter().chain(self.others.iter().copied())
    }
}

/// One device allocation and its ranges.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: u64,
    /// Start address, while it is reserved.
    base: Option<DeviceAddr>,
    /// Whether the device had no memory for it. It is not asked again until the cache is emptied.
    is_refused: bool,
    /// Ranges by offset, without overlaps. The rest was not used since the arena was taken.
    spans: BTreeMap<u64, Span>,
    /// Whether a block was recorded on another stream since the arena was taken.
    is_shared: bool,
    fences: Fences,
}

impl Arena {
    /// An arena of `bytes`, not yet taken from the device.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::default()
        }
    }

    /// Whether `addr` lies in it.
    pub(super) fn contains(&self, addr: DeviceAddr) -> bool {
        self.offset_of(addr).is_some()
    }

    /// Takes `bytes` at `offset` for `stream`, unless a live block overlaps them.
    pub(super) fn claim(
        &mut self,
        device: &mut dyn Driver,
        offset: u64,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Option<DeviceAddr>> {
        let end = offset + bytes;
        let Some(base) = self.base(device)?.filter(|_| end <= self.bytes) else {
            return Ok(None);
        };
        if self.touching(offset, end).any(|(_, span)| span.is_live) {
            return Ok(None);
        }
        let users = self
            .touching(offset, end)
            .flat_map(|(_, span)| span.users());
        let mut others: Vec<StreamId> = users.filter(|&user| user != stream).collect();
        others.sort_unstable();
        others.dedup();
        self.follow(device, stream, &others)?;
        self.clear(offset, end);
        let span = Span {
            end,
            is_live: true,
            stream,
            others: Vec::new(),
        };
        self.spans.insert(offset, span);
        Ok(Some(base.offset(offset)))
    }

    /// Records that another stream uses the block at `addr`.
    pub(super) fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) {
        if let Some(span) = self.span_at(addr)
            && !span.others.contains(&stream)
        {
            span.others.push(stream);
            self.is_shared = true;
        }
    }

    /// Frees the block at `addr`.
    pub(super) fn release(&mut self, addr: DeviceAddr) {
        if let Some(span) = self.span_at(addr) {
            span.is_live = false;
        }
    }

    /// Returns the arena to the device if it has no live block. It can then be taken again.
    pub(super) fn give_back(&mut self, device: &mut dyn Driver) -> Served {
        self.is_refused = false;
        let Some(base) = self.base else {
            return Ok(());
        };
        if self.spans.values().any(|span| span.is_live) {
            return Ok(());
        }
        if self.is_shared {
            // Drivers do not promise that a free waits for all work.
            device.synchronize_device()?;
        }
        device.free(base, self.bytes)?;
        self.base = None;
        self.spans.clear();
        self.is_shared = false;
        Ok(())
    }

    fn offset_of(&self, addr: DeviceAddr) -> Option<u64> {
        let base = self.base.filter(|&base| base <= addr)?;
        let offset = addr.offset_from(base);
        (offset < self.bytes).then_some(offset)
    }

    fn span_at(&mut self, addr: DeviceAddr) -> Option<&mut Span> {
        let offset = self.offset_of(addr)?;
        self.spans.get_mut(&offset)
    }

    /// Returns the start address. Takes the arena from the device if necessary and possible.
    fn base(&mut self, device: &mut dyn Driver) -> Served<Option<DeviceAddr>> {
        if self.base.is_none() && !self.is_refused {
            match device.malloc(self.bytes) {
                Ok(base) => self.base = Some(base),
                Err(DriverError::OutOfMemory) => self.is_refused = true,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.base)
    }

    /// Makes later work of `stream` wait for the current work of the others.
    fn follow(&mut self, device: &mut dyn Driver, stream: StreamId, others: &[StreamId]) -> Served {
        let fence = self.fences.raise(device, others)?;
        let held_up = fence.hold_up(device, stream);
        // A wait refers to the event as recorded now, so the event can be recorded again.
        self.fences.take_down(fence);
        held_up
    }

    /// Returns the ranges that overlap `offset..end`, each with its start.
    fn touching(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, &Span)> {
        let before = self
            .spans
            .range(..offset)
            .next_back()
            .filter(|(_, span)| span.end > offset);
        let within = self.spans.range(offset..end);
        before
            .into_iter()
            .chain(within)
            .map(|(&start, span)| (start, span))
    }

    /// Cuts `offset..end` out of all ranges.
    fn clear(&mut self, offset: u64, end: u64) {
        let first = |arena: &Self| arena.touching(offset, end).next().map(|(start, _)| start);
        while let Some(start) = first(self)
            && let Some(span) = self.spans.remove(&start)
        {
            if span.end > end {
                self.spans.insert(end, span.clone());
            }
            if start < offset {
                let end = offset;
                self.spans.insert(start, Span { end, ..span });
            }
        }
    }

    /// Verifies that the ranges lie in the arena and do not overlap.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let mut end_before = 0;
        for (&start, span) in &self.spans {
            ensure!(start >= end_before, "planned ranges overlap at {start}");
            ensure!(start < span.end, "an empty planned range at {start}");
            end_before = span.end;
        }
        ensure!(
            end_before <= self.bytes,
            "a planned range exceeds the arena"
        );
        Ok(())
    }
}
