//! A list of free memory for each stream, and one stream that helps itself from the list of another.
//!
//! Every stream has an event, recorded whenever memory is freed on the stream: whoever waits for it may
//! use all that is in the stream's list. A request is served
//! 1. from the list of its own stream, without waiting;
//! 2. else from the first list of another stream that can serve it, after waiting for that stream's
//!    event; what is left over stays in that list;
//! 3. else the other lists are joined with its own, one after the other, each after waiting for its
//!    event, until that serves it.
//!
//! The other streams are gone through in the order in which RMM first saw them. RMM says the order of
//! the handles of their events, which are addresses in the driver: they grow where the driver makes
//! one event after the other in fresh memory, and nothing promises that.
//!
//! Source: librmm 26.10, `mr/detail/stream_ordered_memory_resource.hpp`.

use crate::driver::{DeviceAddr, Driver, EventId, StreamId};
use crate::policy::Refusal;

/// Free memory that is safe to use on one stream.
pub(in crate::policy) trait FreeList: Default {
    /// What is put in.
    type Block;

    /// Whether [`FreeList::take`] has an answer.
    fn can_serve(&self, bytes: u64) -> bool;

    /// Takes out `bytes`; what is left over of a block stays.
    fn take(&mut self, bytes: u64) -> Option<DeviceAddr>;

    /// Puts a block in.
    fn insert(&mut self, block: Self::Block);

    /// Puts in all that another list has.
    fn absorb(&mut self, other: Self);
}

#[derive(Debug)]
struct Stream<L> {
    id: StreamId,
    /// All work on the memory in the list is done once this is over. While the memory is as the device
    /// gave it, the event was never recorded, and is over.
    event: EventId,
    /// Memory was put in that the event does not stand for yet: it is recorded before anybody waits.
    is_behind: bool,
    /// `None` once another stream has taken it over.
    list: Option<L>,
}

/// The place of a stream among those seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policy) struct Seat(usize);

/// See the [module](self).
#[derive(Debug)]
pub(in crate::policy) struct StreamOrdered<L> {
    /// In the order in which they were first seen.
    streams: Vec<Stream<L>>,
    /// Events of streams that were forgotten, for others to come.
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
    /// Has the event stand for all work that the stream has now, if it does not yet for all that counts.
    fn catch_up(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        if self.is_behind {
            device.record_event(self.event, self.id)?;
            self.is_behind = false;
        }
        Ok(())
    }
}

impl<L: FreeList> StreamOrdered<L> {
    /// The seat of a stream: the last one if it is new.
    pub(in crate::policy) fn seat(
        &mut self,
        device: &mut dyn Driver,
        id: StreamId,
    ) -> Result<Seat, Refusal> {
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

    /// Memory of `bytes` for work on the stream that sits there, if there is any.
    pub(in crate::policy) fn take(
        &mut self,
        device: &mut dyn Driver,
        seat: Seat,
        bytes: u64,
    ) -> Result<Option<DeviceAddr>, Refusal> {
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
    ) -> Result<Option<DeviceAddr>, Refusal> {
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
    ) -> Result<Option<DeviceAddr>, Refusal> {
        for other in 0..self.streams.len() {
            if other == seat.0 || self.streams[other].list.is_none() {
                continue;
            }
            let (id, event) = (self.streams[seat.0].id, self.streams[seat.0].event);
            self.streams[other].catch_up(device)?;
            device.wait_event(id, self.streams[other].event)?;
            // Who waits for this stream waits for the other one, too, from now on.
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

    /// Takes memory back on which a stream has worked.
    pub(in crate::policy) fn give_back(
        &mut self,
        device: &mut dyn Driver,
        id: StreamId,
        block: L::Block,
    ) -> Result<(), Refusal> {
        let seat = self.seat(device, id)?;
        self.streams[seat.0].is_behind = true;
        self.streams[seat.0].catch_up(device)?;
        self.insert(seat, block);
        Ok(())
    }

    /// Puts in memory that is safe to use after the work that the stream has now.
    pub(in crate::policy) fn insert_used(&mut self, seat: Seat, block: L::Block) {
        self.streams[seat.0].is_behind = true;
        self.insert(seat, block);
    }

    /// Puts in memory that is safe to use on the stream as it is.
    pub(in crate::policy) fn insert(&mut self, seat: Seat, block: L::Block) {
        self.own(seat).insert(block);
    }

    fn own(&mut self, seat: Seat) -> &mut L {
        self.streams[seat.0].list.get_or_insert_default()
    }

    /// Waits until all memory in the lists is safe to use everywhere.
    pub(in crate::policy) fn synchronize(
        &mut self,
        device: &mut dyn Driver,
    ) -> Result<(), Refusal> {
        for stream in &mut self.streams {
            stream.catch_up(device)?;
            device.synchronize_event(stream.event)?;
        }
        Ok(())
    }

    /// Forgets all streams, as if none had been seen.
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
    fn nobody_uses_the_memory_of_another_stream_without_waiting() {
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

        // The lists are joined all the same, and the event of this stream then stands for both.
        let taken = lists.take(&mut device, other, 0x1000).unwrap();
        assert_eq!((taken, calls(&device)), (None, (2, 2)));
        let taken = lists.take(&mut device, other, 0x100).unwrap();
        assert_eq!((taken, calls(&device)), (Some(DeviceAddr(0x1200)), (2, 2)));
    }
}
