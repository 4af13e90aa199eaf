//! A free list for each stream, and rules for taking memory from the lists of other streams.
//!
//! Every stream has an event, recorded whenever memory is freed on the stream. A stream that has waited
//! for the event can use all memory in the list. A request is served
//! 1. from the list of its own stream, without waiting;
//! 2. or from the first list of another stream that can serve it, after waiting for that stream's event.
//!    The rest of the block stays in that list;
//! 3. or by merging the other lists into its own, one after the other, each after waiting for its event,
//!    until it can be served.
//!
//! Other streams are tried in the order in which they were first seen. RMM uses the order of the handles
//! of their events, which are addresses in the driver. They usually grow from event to event, but nothing
//! guarantees that.
//!
//! Source: librmm 26.10, `mr/detail/stream_ordered_memory_resource.hpp`.

use crate::driver::{DeviceAddr, Driver, EventId, StreamId};
use crate::policy::Served;

/// Free memory that is safe to use on one stream.
pub(in crate::policy) trait FreeList: Default {
    /// An entry of the list.
    type Block;

    /// Whether [`FreeList::take`] would succeed.
    fn can_serve(&self, bytes: u64) -> bool;

    /// Takes `bytes`. The rest of the block stays in the list.
    fn take(&mut self, bytes: u64) -> Option<DeviceAddr>;

    /// Inserts a block.
    fn insert(&mut self, block: Self::Block);

    /// Inserts all blocks of another list.
    fn absorb(&mut self, other: Self);
}

#[derive(Debug)]
struct Stream<L> {
    id: StreamId,
    /// Once it is complete, so is all work on the memory in the list. It is complete, too, before it is
    /// first recorded: then the memory is unused.
    event: EventId,
    /// Whether the event does not cover all memory in the list. It is recorded before any stream waits.
    is_behind: bool,
    /// `None` once it was merged into the list of another stream.
    list: Option<L>,
}

/// Index of a stream among those seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policy) struct Seat(usize);

/// See the [module](self).
#[derive(Debug)]
pub(in crate::policy) struct StreamOrdered<L> {
    /// Streams in the order in which they were first seen.
    streams: Vec<Stream<L>>,
    /// Events of forgotten streams, for reuse.
    spare: Vec<EventId>,
}

impl<L> Default for StreamOrdered<L> {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl<L> Stream<L> {
    /// Records the event at the end of the stream's work if it does not cover all memory in the list.
    fn catch_up(&mut self, device: &mut dyn Driver) -> Served {
        if self.is_behind {
            device.record_event(self.event, self.id)?;
            self.is_behind = false;
        }
        Ok(())
    }
}

impl<L: FreeList> StreamOrdered<L> {
    /// Returns the seat of a stream, a new one if it was not seen before.
    pub(in crate::policy) fn seat(
        &mut self,
        device: &mut dyn Driver,
        id: StreamId,
    ) -> Served<Seat> {
        if let Some(index) = self.streams.iter().position(|stream| stream.id == id) {
            return Ok(Seat(index));
        }
        let event = match self.spare.pop() {
            Some(event) => event,
            None => device.create_event()?,
        };
        self.streams.push(Stream {
            id,
            event,
            is_behind: false,
            list: None,
        });
        Ok(Seat(self.streams.len() - 1))
    }

    /// Takes `bytes` for work on a stream, if any list can serve them.
    pub(in crate::policy) fn take(
        &mut self,
        device: &mut dyn Driver,
        seat: Seat,
        bytes: u64,
    ) -> Served<Option<DeviceAddr>> {
        if let Some(addr) = self.own(seat).take(bytes) {
            return Ok(Some(addr));
        }
        if let Some(addr) = self.take_from_another(device, seat, bytes)? {
            return Ok(Some(addr));
        }
        self.take_over_others(device, seat, bytes)
    }

    fn take_from_another(
        &mut self,
        device: &mut dyn Driver,
        seat: Seat,
        bytes: u64,
    ) -> Served<Option<DeviceAddr>> {
        let waiting = self.streams[seat.0].id;
        for stream in &mut self.streams {
            let can_serve = |list: &L| list.can_serve(bytes);
            if stream.id != waiting && stream.list.as_ref().is_some_and(can_serve) {
                stream.catch_up(device)?;
                device.wait_event(waiting, stream.event)?;
                return Ok(stream.list.as_mut().and_then(|list| list.take(bytes)));
            }
        }
        Ok(None)
    }

    fn take_over_others(
        &mut self,
        device: &mut dyn Driver,
        seat: Seat,
        bytes: u64,
    ) -> Served<Option<DeviceAddr>> {
        for other in 0..self.streams.len() {
            if other == seat.0 || self.streams[other].list.is_none() {
                continue;
            }
            let (id, event) = (self.streams[seat.0].id, self.streams[seat.0].event);
            self.streams[other].catch_up(device)?;
            device.wait_event(id, self.streams[other].event)?;
            // From now on, waiting for this stream includes waiting for the other one.
            device.record_event(event, id)?;
            if let Some(list) = self.streams[other].list.take() {
                self.own(seat).absorb(list);
            }
            if let Some(addr) = self.own(seat).take(bytes) {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }

    /// Frees memory that a stream has used.
    pub(in crate::policy) fn give_back(
        &mut self,
        device: &mut dyn Driver,
        id: StreamId,
        block: L::Block,
    ) -> Served {
        let seat = self.seat(device, id)?;
        self.streams[seat.0].is_behind = true;
        self.streams[seat.0].catch_up(device)?;
        self.insert(seat, block);
        Ok(())
    }

    /// Inserts memory that is safe to use after the current work of the stream.
    pub(in crate::policy) fn insert_used(&mut self, seat: Seat, block: L::Block) {
        self.streams[seat.0].is_behind = true;
        self.insert(seat, block);
    }

    /// Inserts memory that the stream can use at once.
    pub(in crate::policy) fn insert(&mut self, seat: Seat, block: L::Block) {
        self.own(seat).insert(block);
    }

    fn own(&mut self, seat: Seat) -> &mut L {
        self.streams[seat.0].list.get_or_insert_default()
    }

    /// Waits until all memory in the lists is safe to use on any stream.
    pub(in crate::policy) fn synchronize(&mut self, device: &mut dyn Driver) -> Served {
        for stream in &mut self.streams {
            stream.catch_up(device)?;
            device.synchronize_event(stream.event)?;
        }
        Ok(())
    }

    /// Forgets all streams.
    pub(in crate::policy) fn forget(&mut self) {
        let events = self.streams.drain(..).map(|stream| stream.event);
        self.spare.extend(events);
    }

    pub(in crate::policy) fn lists(&self) -> impl Iterator<Item = &L> {
        self.streams
            .iter()
            .filter_map(|stream| stream.list.as_ref())
    }

    pub(in crate::policy) fn lists_mut(&mut self) -> impl Iterator<Item = &mut L> {
        self.streams
            .iter_mut()
            .filter_map(|stream| stream.list.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::super::free_list::{CoalescingFreeList, FreeBlock};
    use super::*;
    use crate::driver::calls::CallKind;
    use crate::driver::sim::{SimConfig, SimDevice};

    const ONE: StreamId = StreamId::nth(1);
    const TWO: StreamId = StreamId::nth(2);

    /// Events recorded and events waited for.
    fn calls(device: &SimDevice) -> (u64, u64) {
        let count = |kind| device.counts().of(kind);
        (count(CallKind::RecordEvent), count(CallKind::WaitEvent))
    }

    #[test]
    fn a_stream_waits_before_it_uses_memory_of_another() {
        let mut device = SimDevice::new(&SimConfig::default());
        let mut lists = StreamOrdered::<CoalescingFreeList>::default();
        let freed = FreeBlock {
            addr: DeviceAddr(0x1000),
            bytes: 0x1000,
            is_head: true,
        };
        lists.give_back(&mut device, ONE, freed).unwrap();
        assert_eq!(calls(&device), (1, 0));

        let own = lists.seat(&mut device, ONE).unwrap();
        let taken = lists.take(&mut device, own, 0x100).unwrap();
        assert_eq!((taken, calls(&device)), (Some(DeviceAddr(0x1000)), (1, 0)));

        let other = lists.seat(&mut device, TWO).unwrap();
        let taken = lists.take(&mut device, other, 0x100).unwrap();
        assert_eq!((taken, calls(&device)), (Some(DeviceAddr(0x1100)), (1, 1)));

        // The lists are merged even so, and the event of this stream then covers both.
        let taken = lists.take(&mut device, other, 0x1000).unwrap();
        assert_eq!((taken, calls(&device)), (None, (2, 2)));
        let taken = lists.take(&mut device, other, 0x100).unwrap();
        assert_eq!((taken, calls(&device)), (Some(DeviceAddr(0x1200)), (2, 2)));
    }
}
