//! The arena that a plan is laid out in: which ranges of it are in use, and who worked there last.
//!
//! A range is handed out where the plan says, so that nothing is searched: all there is to know is
//! whether a block in it is live. If other streams worked there, or still do, the stream that gets it
//! is made to wait for them on the device; nobody waits for that.

use std::collections::BTreeMap;

use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};
use crate::policy::Refusal;
use crate::policy::fence::Fences;

/// A range that was handed out before.
#[derive(Clone, Debug)]
struct Span {
    end: u64,
    is_live: bool,
    /// The stream it was asked for on.
    stream: StreamId,
    /// Those that its block was recorded on.
    others: Vec<StreamId>,
}

impl Span {
    fn users(&self) -> impl Iterator<Item = StreamId> {
        [self.stream].into_iter().chain(self.others.iter().copied())
    }
}

/// One allocation of the device, and what is where in it.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: u64,
    /// Where it is, while it is held.
    base: Option<DeviceAddr>,
    /// The device had no memory for it: it is not asked again until the cache is emptied.
    is_refused: bool,
    /// By offset. They do not overlap; what none covers was not used since the arena was taken.
    spans: BTreeMap<u64, Span>,
    /// A block was recorded on another stream since the arena was taken.
    is_shared: bool,
    fences: Fences,
}

impl Arena {
    /// An arena of `bytes` that is still to be taken from the device.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            base: None,
            is_refused: false,
            spans: BTreeMap::new(),
            is_shared: false,
            fences: Fences::default(),
        }
    }

    /// Whether `addr` lies in it.
    pub(super) fn contains(&self, addr: DeviceAddr) -> bool {
        self.offset_of(addr).is_some()
    }

    /// Hands out `bytes` at `offset` to `stream`, unless a block is there.
    pub(super) fn claim(
        &mut self,
        device: &mut dyn Driver,
        offset: u64,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Option<DeviceAddr>, Refusal> {
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

    /// Another stream works on the block at `addr`.
    pub(super) fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) {
        if let Some(span) = self.span_at(addr)
            && !span.others.contains(&stream)
        {
            span.others.push(stream);
            self.is_shared = true;
        }
    }

    /// Takes the block at `addr` back.
    pub(super) fn release(&mut self, addr: DeviceAddr) {
        if let Some(span) = self.span_at(addr) {
            span.is_live = false;
        }
    }

    /// Returns it to the device if no block is in it, and lets it be taken again.
    pub(super) fn give_back(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        self.is_refused = false;
        let Some(base) = self.base else {
            return Ok(());
        };
        if self.spans.values().any(|span| span.is_live) {
            return Ok(());
        }
        if self.is_shared {
            // That the device itself waits for all work is nothing a driver promises.
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

    /// Where it is, taken from the device if need be and possible.
    fn base(&mut self, device: &mut dyn Driver) -> Result<Option<DeviceAddr>, Refusal> {
        if self.base.is_none() && !self.is_refused {
            match device.malloc(self.bytes) {
                Ok(base) => self.base = Some(base),
                Err(DriverError::OutOfMemory) => self.is_refused = true,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.base)
    }

    /// Lets all later work of `stream` wait for all that others have now.
    fn follow(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
        others: &[StreamId],
    ) -> Result<(), Refusal> {
        let fence = self.fences.raise(device, others)?;
        let held_up = fence.hold_up(device, stream);
        // What waits for an event waits for what it marks now, not for what it may mark later.
        self.fences.take_down(fence);
        held_up
    }

    /// The spans that have bytes between `offset` and `end`, each with its start.
    fn touching(&self, offset: u64, end: u64) -> impl Iterator<Item = (u64, &Span)> {
        let before = self.spans.range(..offset).next_back();
        let before = before.filter(|(_, span)| span.end > offset);
        let within = self.spans.range(offset..end);
        before
            .into_iter()
            .chain(within)
            .map(|(&start, span)| (start, span))
    }

    /// Cuts `offset..end` out of all spans.
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

    /// Verifies that the spans lie in the arena and apart.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let mut end_before = 0;
        for (&start, span) in &self.spans {
            ensure!(start >= end_before, "planned ranges overlap at {start}");
            ensure!(start < span.end, "an empty planned range at {start}");
            end_before = span.end;
        }
        ensure!(
            end_before <= self.bytes,
            "a planned range outside the arena"
        );
        Ok(())
    }
}
