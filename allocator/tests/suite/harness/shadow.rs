//! The promises of an allocator, in plain lists.

use coalesce_alloc::MempoolId;
use coalesce_alloc::driver::calls::Call;
use coalesce_alloc::driver::sim::events::SimStreams;
use coalesce_alloc::driver::sim::{PhysicalRange, SimDevice};
use coalesce_alloc::driver::{DeviceAddr, MemoryHandle, StreamId};
use coalesce_alloc::stats::DeviceStats;

/// A live allocation.
#[derive(Clone, Debug)]
pub struct Live {
    pub addr: DeviceAddr,
    pub bytes: u64,
    stream: StreamId,
    /// The private pool that it is from.
    pool: Option<MempoolId>,
    /// Other streams that it was recorded on.
    uses: Vec<StreamId>,
    memory: Memory,
}

/// A freed allocation that streams may still work on.
#[derive(Debug)]
struct Guarded {
    memory: Memory,
    until: Vec<Until>,
}

/// Freed memory that the allocator holds and has not handed out again. Other streams may get it once
/// they come after the work of its stream at that time.
#[derive(Clone, Debug)]
struct Freed {
    addr: DeviceAddr,
    place: Place,
    bytes: u64,
    until: Until,
}

/// Where bytes really are: in physical memory that may be mapped to several addresses, or at their address.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    handle: Option<MemoryHandle>,
    offset: u64,
}

impl Freed {
    fn overlaps(&self, other: (Place, u64)) -> bool {
        let (place, bytes) = other;
        let (own, of_other) = ((self.place.offset, self.bytes), (place.offset, bytes));
        self.place.handle == place.handle && meet(own, of_other)
    }

    /// Returns the bytes before offset `from` and those from offset `to` on.
    fn without(&self, from: u64, to: u64) -> impl Iterator<Item = Self> {
        let pieces = [(0, from.min(self.bytes)), (to.min(self.bytes), self.bytes)];
        let left = pieces.into_iter().filter(|(from, to)| from < to);
        left.map(move |(from, to)| Self {
            addr: self.addr.offset(from),
            place: Place {
                offset: self.place.offset + from,
                ..self.place
            },
            bytes: to - from,
            until: self.until.clone(),
        })
    }
}

/// The point in a stream after which memory may be used again: a number of completed events, or of
/// times that the stream finished all its work.
#[derive(Clone, Debug)]
struct Until {
    stream: StreamId,
    events: u64,
    drained: u64,
}

impl Until {
    /// The present end of the work of a stream.
    fn now(stream: StreamId, streams: &SimStreams) -> Self {
        Self {
            stream,
            events: streams.progress(stream).0 + 1,
            drained: streams.times_drained(stream),
        }
    }

    /// Whether the point has passed, or the work of `follower` waits for it.
    fn is_before(&self, follower: StreamId, streams: &SimStreams) -> bool {
        self.stream == follower
            || self.is_over(streams)
            || streams.comes_after(follower, self.stream, self.events)
    }

    fn is_over(&self, streams: &SimStreams) -> bool {
        streams.progress(self.stream).1 >= self.events
            || streams.times_drained(self.stream) > self.drained
    }
}

/// The shadow of an allocator: knows the calls, but not how the allocator decides.
#[derive(Debug, Default)]
pub struct Shadow {
    live: Vec<Live>,
    guarded: Vec<Guarded>,
    freed: Vec<Freed>,
    /// Memory that private pools handed out, which serves no other requests.
    private: Vec<Private>,
    peak_allocated: i64,
    peak_requested: i64,
    peak_reserved: i64,
}

/// Memory that a private pool handed out.
#[derive(Debug)]
struct Private {
    pool: MempoolId,
    memory: Memory,
    /// Whether the pool was released. Its graphs may still be running, until the device is waited for.
    is_released: bool,
}

/// Addresses and the physical memory mapped there. The same memory may be mapped to other addresses as
/// well.
#[derive(Clone, PartialEq, Debug)]
struct Memory {
    addr: DeviceAddr,
    bytes: u64,
    mapped: Vec<PhysicalRange>,
}

impl Memory {
    fn of(addr: DeviceAddr, bytes: u64, device: &SimDevice) -> Self {
        Self {
            addr,
            bytes,
            mapped: device.mapped_behind(addr, bytes),
        }
    }

    /// Its parts: address, where they really are, and bytes.
    fn places(&self) -> impl Iterator<Item = (DeviceAddr, Place, u64)> {
        let unmapped = self.mapped.is_empty().then(|| {
            let place = Place {
                handle: None,
                offset: self.addr.0,
            };
            (self.addr, place, self.bytes)
        });
        let mut addr = self.addr;
        let mapped = self.mapped.iter().map(move |range| {
            let at = addr;
            addr = addr.offset(range.bytes);
            let place = Place {
                handle: Some(range.handle),
                offset: range.offset,
            };
            (at, place, range.bytes)
        });
        unmapped.into_iter().chain(mapped)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.meets(other.addr, other.bytes) || self.shares_pages_with(other)
    }

    /// Whether both are the same bytes, at whatever addresses.
    fn shares_bytes_with(&self, other: &Self) -> bool {
        let is_mapped = !self.mapped.is_empty() && !other.mapped.is_empty();
        self.shares_pages_with(other) || !is_mapped && self.meets(other.addr, other.bytes)
    }

    fn meets(&self, addr: DeviceAddr, bytes: u64) -> bool {
        meet((self.addr.0, self.bytes), (addr.0, bytes))
    }

    fn shares_pages_with(&self, other: &Self) -> bool {
        let mapped = || self.mapped.iter();
        let shared = |b: &PhysicalRange| {
            mapped().any(|a| a.handle == b.handle && meet((a.offset, a.bytes), (b.offset, b.bytes)))
        };
        other.mapped.iter().any(shared)
    }
}

fn meet(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

impl Shadow {
    pub fn live(&self) -> &[Live] {
        &self.live
    }

    /// The live allocation at index `victim`, modulo their number.
    pub fn pick(&self, victim: usize) -> Option<DeviceAddr> {
        let index = victim.checked_rem(self.live.len())?;
        Some(self.live[index].addr)
    }

    /// Records an allocation, which must not overlap any other or memory that streams still use.
    pub fn malloc(
        &mut self,
        addr: DeviceAddr,
        bytes: u64,
        stream: StreamId,
        pool: Option<MempoolId>,
        device: &SimDevice,
    ) {
        if bytes == 0 {
            assert!(addr.is_null(), "0 bytes must give null");
            return;
        }
        let is_aligned = !addr.is_null() && addr.0.is_multiple_of(256);
        assert!(is_aligned, "{addr} is not aligned");
        let memory = Memory::of(addr, bytes, device);
        for other in &self.live {
            assert!(
                !memory.overlaps(&other.memory),
                "{addr} overlaps {}",
                other.addr
            );
        }
        for private in &self.private {
            // The addresses of graphs stay theirs, too.
            let is_taken = if private.pool.is_of_graphs() {
                memory.overlaps(&private.memory)
            } else {
                memory.shares_bytes_with(&private.memory)
            };
            assert!(
                pool == Some(private.pool) || !is_taken,
                "{addr} is memory of the private pool {}",
                private.pool
            );
        }
        if let Some(pool) = pool {
            self.private.push(Private {
                pool,
                memory: memory.clone(),
                is_released: false,
            });
        }
        self.guarded.retain(|guarded| {
            let until = &guarded.until;
            !until.iter().all(|until| until.is_over(device.streams()))
        });
        for guarded in &self.guarded {
            let mut until = guarded.until.iter();
            assert!(
                !memory.overlaps(&guarded.memory)
                    || until.all(|until| until.is_before(stream, device.streams())),
                "{addr} is handed out while streams still use it"
            );
        }
        for (_, place, bytes) in memory.places() {
            let mut overlapping = self
                .freed
                .iter()
                .filter(|freed| freed.overlaps((place, bytes)));
            let early = overlapping.find(|freed| !freed.until.is_before(stream, device.streams()));
            if let Some(freed) = early {
                panic!(
                    "{addr} goes from {:?} to {stream:?}, which does not wait for it",
                    freed.until.stream
                );
            }
            self.forget_freed_at((place, bytes));
        }
        self.live.push(Live {
            addr,
            bytes,
            stream,
            pool,
            uses: Vec::new(),
            memory,
        });
    }

    /// The live allocations of a private pool.
    pub fn live_in(&self, pool: MempoolId) -> Vec<Live> {
        let live = self.live.iter();
        live.filter(|live| live.pool == Some(pool))
            .cloned()
            .collect()
    }

    /// Records that a private pool has the allocations of a checkpoint and no others. The device was waited for, so no
    /// work uses those that were freed.
    pub fn restore(&mut self, pool: MempoolId, saved: &[Live], device: &SimDevice) {
        self.live.retain(|live| live.pool != Some(pool));
        for then in saved {
            self.malloc(then.addr, then.bytes, then.stream, Some(pool), device);
            let now = self.live.last().map(|live| &live.memory);
            assert_eq!(now, Some(&then.memory), "the memory of a block changed");
        }
    }

    /// Records that a private pool has no users any more.
    pub fn release_pool(&mut self, pool: MempoolId) {
        let private = self.private.iter_mut();
        for private in private.filter(|private| private.pool == pool) {
            private.is_released = true;
        }
    }

    /// Checks that the memory that graphs use is where they were captured with it.
    pub fn check_private(&self, device: &SimDevice) {
        for Private { pool, memory, .. } in &self.private {
            let now = Memory::of(memory.addr, memory.bytes, device);
            assert!(
                !pool.is_of_graphs() || now == *memory,
                "memory of graphs at {} changed",
                memory.addr
            );
        }
    }

    /// Forgets memory returned to the device, which waits for all work on it.
    pub fn forget_released(&mut self, calls: Vec<Call>) {
        if calls.contains(&Call::SynchronizeDevice) {
            self.private.retain(|private| !private.is_released);
        }
        let waits = |call: &Call| matches!(call, Call::SynchronizeStream { .. });
        let has_waited = calls.iter().any(waits);
        for call in calls {
            let (Call::Free { addr, bytes } | Call::Unmap { addr, bytes }) = call else {
                continue;
            };
            self.forget_freed((addr, bytes));
            // Unlike a free, unmapping does not wait. A pool that no graph uses may return memory to the device.
            if has_waited || matches!(call, Call::Free { .. }) {
                self.private.retain(|private| {
                    let is_kept = !private.is_released && private.pool.is_of_graphs();
                    is_kept || !private.memory.meets(addr, bytes)
                });
            }
        }
    }

    fn forget_freed(&mut self, (addr, bytes): (DeviceAddr, u64)) {
        self.cut_out((addr.0, bytes), |freed| Some(freed.addr.0));
    }

    fn forget_freed_at(&mut self, (place, bytes): (Place, u64)) {
        let is_beside = |freed: &Freed| freed.place.handle == place.handle;
        self.cut_out((place.offset, bytes), |freed| {
            is_beside(freed).then_some(freed.place.offset)
        });
    }

    /// Forgets the parts of freed memory in a range. `start` is where memory starts, if it can be in the range.
    fn cut_out(&mut self, (from, bytes): (u64, u64), start: impl Fn(&Freed) -> Option<u64>) {
        let mut left = Vec::new();
        self.freed.retain(|freed| {
            let meets = |&start: &u64| meet((start, freed.bytes), (from, bytes));
            let Some(start) = start(freed).filter(meets) else {
                return true;
            };
            left.extend(freed.without(from.saturating_sub(start), from + bytes - start));
            false
        });
        self.freed.append(&mut left);
    }

    /// Forgets a stream that has finished with an allocation.
    pub fn forget_stream(&mut self, addr: DeviceAddr, stream: StreamId) {
        self.find(addr).uses.retain(|&other| other != stream);
    }

    fn find(&mut self, addr: DeviceAddr) -> &mut Live {
        self.live.iter_mut().find(|live| live.addr == addr).unwrap()
    }

    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) {
        let live = self.find(addr);
        if stream != live.stream && !live.uses.contains(&stream) {
            live.uses.push(stream);
        }
    }

    /// Records a free: the other streams must finish their present work and the event that the free
    /// records. Checks that the block always had the same memory.
    pub fn free(&mut self, addr: DeviceAddr, device: &SimDevice) {
        let index = self.live.iter().position(|live| live.addr == addr).unwrap();
        let live = self.live.swap_remove(index);
        let memory = Memory::of(addr, live.bytes, device);
        assert_eq!(memory, live.memory, "the memory of a live block changed");
        let streams = device.streams();
        self.freed
            .extend(memory.places().map(|(addr, place, bytes)| Freed {
                addr,
                place,
                bytes,
                until: Until::now(live.stream, streams),
            }));
        let until = |&stream: &StreamId| Until::now(stream, streams);
        let until: Vec<Until> = live.uses.iter().map(until).collect();
        if !until.is_empty() {
            self.guarded.push(Guarded { memory, until });
        }
    }

    /// Checks peaks and totals after each operation. Reserved memory may have been higher in the
    /// middle of one.
    pub fn observe_stats(&mut self, stats: &DeviceStats) {
        for (stat, peak) in [
            (&stats.allocated_bytes.all(), &mut self.peak_allocated),
            (&stats.requested_bytes.all(), &mut self.peak_requested),
        ] {
            *peak = (*peak).max(stat.current);
            assert_eq!(
                stat.peak, *peak,
                "the peak differs from the highest value observed"
            );
        }
        let reserved = &stats.reserved_bytes.all();
        self.peak_reserved = self.peak_reserved.max(reserved.current);
        assert!(
            reserved.peak >= self.peak_reserved,
            "the peak is below a value observed"
        );
        for (name, array) in stats.arrays() {
            let stat = array.all();
            assert_eq!(
                stat.allocated - stat.freed,
                stat.current,
                "totals of {name}"
            );
            let parts = array.small_pool().current + array.large_pool().current;
            assert_eq!(stat.current, parts, "sum of the kinds of {name}");
        }
    }
}
