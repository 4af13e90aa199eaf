//! Quilt: maps free memory at additional addresses, and repeats earlier placements.
//!
//! ```text
//!   home    ┌────┬────┬────┬────┬────┬────┬────┬────┐
//!   units   │#### │    │    │ ## │    │  ##│ ###│    │     # in use: no free run is long enough
//!           └──a─┴─b──┴─c──┴────┴─d──┴────┴─e──┴────┘
//!                 ╲                    ╱
//!   view    ┌────┬────┬────┬────┬────┐
//!           │####█████████████████ ###│                   █ the new block: the free end of a, all of b, c and d,
//!           └──a─┴─b──┴─c──┴─d──┴──e─┘                     and the free start of e
//! ```
//!
//! Physical memory consists of [*units*](units), which are mapped contiguously at their *home*. If free memory is
//! fragmented, the fragments are mapped a second time at consecutive addresses, as a [*view*](views). A block has one
//! address, but blocks of different views can share a unit, each with bytes of its own. Freeing a block changes no
//! mapping. Views are kept and serve later requests.
//!
//! # A request
//!
//! Requests of up to 256 KiB are packed into [slabs](slabs) of 2 MiB, which are requested like blocks. Larger ones,
//! in multiples of 512 bytes, get the first of
//!
//! 1. the place of an earlier request like this one, if it is free: the [history](history) finds the part of the
//!    program's past that repeats now;
//! 2. the smallest free run at home;
//! 3. the smallest free run in a view;
//! 4. a new view [stitched](stitch) from free pieces, and from new units for what is missing.
//!
//! Memory is taken from the device only if the free memory that one view can contain is too small: all whole units,
//! one free end of a unit and one free start.
//!
//! # Streams
//!
//! All streams share all memory except slabs, which belong to one stream. A stream can reuse memory freed on another
//! stream at once if its work is already ordered after the work submitted before the free, or if that work is complete.
//! Otherwise it [waits for that work on the device](streams). The host never waits. The memory of a block recorded on
//! other streams is available as soon as the block is freed; a stream that reuses it waits for these streams too.
//!
//! # Costs
//!
//! A page that is mapped costs 24 µs on an H200, nearly all of it for `cuMemSetAccess`; a program that repeats itself
//! maps nothing after a few steps. Without driver calls, a request and its free take about twice as long as the
//! reference's, because a block of a view has its memory in several places. When there are too many views, those
//! unused for longest are unmapped once the work on them is over, without waiting for it. `empty_cache` waits for the
//! device, unmaps all views without blocks and returns all units without blocks.
//!
//! # Settings
//!
//! There is nothing to tune. To measure what its mechanisms contribute, `without:NAME` switches one off, and
//! `without:NAME+NAME` several:
//!
//! | mechanism | without it |
//! |---|---|
//! | `repeat` | the places of earlier requests are not tried |
//! | `views` | a request that fits in no free run gets new memory |
//! | `ends` | a view contains whole free units only |
//! | `sharing` | a stream uses memory only if it freed it itself, or if it is new |
//! | `slabs` | small requests are placed like large ones |
//! | `large_units` | all units have 2 MiB |
//! | `scarce_units` | units do not become smaller as device memory becomes scarce |

mod checkpoints;
mod history;
mod mechanisms;
mod placement;
mod private_pools;
mod retiring;
mod sharing;
mod slabs;
mod space;
mod stitch;
mod streams;
mod units;
mod uses;
mod views;

use std::collections::{HashMap, HashSet, VecDeque};

use foldhash::fast::FixedState;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};

use self::mechanisms::Mechanisms;
use self::private_pools::Pools;
use self::retiring::Retired;
use self::sharing::Pending;
use self::slabs::{SLAB, Slabs};
use self::space::Space;
use self::streams::UsedStreams;
use self::units::Units;
use self::uses::Uses;
use self::views::{Place, Views};
use super::fence::Users;
use super::free_runs::Run;
use super::settings::{PolicySettings, PolicySettingsError};
use super::undo::Undo;
use super::{Block, Policy, PrivatePools, Refusal, Served, memory_of};

/// Granularity of blocks, in bytes.
const MIN_BLOCK: u64 = 512;
/// The largest small request.
const SMALL_LIMIT: u64 = 256 << 10;

/// A stream records an event each time it has freed this fraction (1/64) of all memory.
const EVENT_PART: u64 = 64;
/// The fewest bytes that it frees between two events.
const LEAST_PER_EVENT: u64 = 16 << 20;

/// A block that is not in a slab, or a slab.
#[derive(Clone, Copy, Debug)]
struct Held {
    place: Place,
    bytes: u64,
    /// Its number among the requests of the history.
    request: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Quilt {
    mechanisms: Mechanisms,
    units: Units,
    /// The memory that serves requests: the common memory, or that of the private pool that is served.
    space: Space,
    pools: Pools,
    views: Views,
    /// Views to unmap once the work on them is complete.
    retired: VecDeque<Retired>,
    /// What a failing device did not take back.
    undo: Undo,
    held: HashMap<DeviceAddr, Held, FixedState>,
    streams: UsedStreams,
    /// The last uses of free memory, as far as streams must wait for them. Empty while there is one stream.
    uses: Uses,
    /// Other streams that use a live block.
    users: Users,
}

impl Quilt {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self {
            mechanisms: settings.take("without", Mechanisms::default())?,
            ..Self::default()
        })
    }

    fn is_small(&self, bytes: u64) -> bool {
        bytes <= SMALL_LIMIT && self.mechanisms.slabs
    }

    /// Allocates a block from the pool that is served.
    fn malloc_block(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Block> {
        let bytes = bytes.next_multiple_of(MIN_BLOCK);
        let addr = if self.is_small(bytes) {
            self.malloc_small(device, bytes, stream)?
        } else {
            self.malloc_large(device, bytes, stream)?
        };
        Ok(Block::new(addr, bytes, stream))
    }

    fn malloc_small(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<DeviceAddr> {
        self.take_back_pending(device, stream)?;
        let taken = self
            .space
            .slabs
            .get_mut(&stream)
            .and_then(|slabs| slabs.take(bytes));
        if let Some(addr) = taken {
            return Ok(addr);
        }
        let slab = self.malloc_large(device, SLAB, stream)?;
        let slabs = self.space.slabs.entry(stream).or_default();
        slabs.add(slab);
        slabs.take(bytes).ok_or(Refusal::OutOfMemory)
    }

    fn malloc_large(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Served<DeviceAddr> {
        let number = self.space.history.request(bytes, stream);
        let place = match self.place(device, bytes, stream, number) {
            Err(Refusal::OutOfMemory) if self.give_empty_slabs(device) => {
                self.place(device, bytes, stream, number)?
            }
            place => place?,
        };
        self.wait_for_uses(device, place, bytes, stream)?;
        for run in self.views.runs(place, bytes) {
            self.space.free.take(run);
            self.uses.forget(run);
        }
        self.space.history.set_place(number, place);
        self.views.enter(place);
        if let Some(pool) = self.pools.served_for_graphs() {
            self.views.keep_for(pool, place);
        }
        let addr = self.addr(place);
        let request = self.space.history.requests();
        let held = Held {
            place,
            bytes,
            request,
        };
        self.held.insert(addr, held);
        Ok(addr)
    }

    /// Frees a block of the pool that is served.
    fn free_block(&mut self, device: &mut dyn Driver, block: Block) {
        if self.is_small(block.bytes) {
            self.free_small(device, block);
        } else {
            let users = self.users.take(block);
            self.free_large(device, block.addr, block.stream, &users);
        }
    }

    /// Frees a small block, or notes that other streams still use it.
    fn free_small(&mut self, device: &mut dyn Driver, block: Block) {
        let Block { addr, stream, .. } = block;
        let users = self.users.take(block);
        if users.is_empty() {
            return self.give_small(device, addr, stream);
        }
        let ends = users.iter().map(|&user| self.streams.end_of(user));
        let pending = Pending {
            block: addr,
            marks: ends.collect(),
        };
        self.space
            .pending
            .entry(stream)
            .or_default()
            .push_back(pending);
    }

    /// Frees a small block, and its slab if that is spare.
    fn give_small(&mut self, device: &mut dyn Driver, addr: DeviceAddr, stream: StreamId) {
        let slabs = self.space.slabs.get_mut(&stream);
        if let Some(slab) = slabs.and_then(|slabs| slabs.give(addr)) {
            self.free_large(device, slab, stream, &[]);
        }
    }

    /// Frees a block or a slab that was allocated on `stream` and that `users` use too.
    fn free_large(
        &mut self,
        device: &mut dyn Driver,
        addr: DeviceAddr,
        stream: StreamId,
        users: &[StreamId],
    ) {
        let Some(held) = self.held.remove(&addr) else {
            return;
        };
        self.space.history.free(held.request);
        self.views.leave(held.place);
        for run in self.views.runs(held.place, held.bytes) {
            if self.streams.are_several() {
                self.uses.set(run, self.streams.ends_of(stream, users));
            }
            self.space.free.give(run);
        }
        if self.pools.is_capturing {
            return;
        }
        // If the device refuses, the event is recorded when another stream needs it.
        let bytes_per_event = (self.units.bytes() / EVENT_PART).max(LEAST_PER_EVENT);
        let _recorded_later = self
            .streams
            .count_freed(device, stream, held.bytes, bytes_per_event);
    }

    /// Frees the empty slabs of the pool that is served. Returns whether there were any.
    fn give_empty_slabs(&mut self, device: &mut dyn Driver) -> bool {
        let mut any = false;
        let streams: Vec<StreamId> = self.space.slabs.keys().copied().collect();
        for stream in streams {
            while let Some(slab) = self
                .space
                .slabs
                .get_mut(&stream)
                .and_then(Slabs::take_empty)
            {
                self.free_large(device, slab, stream, &[]);
                any = true;
            }
        }
        any
    }

    /// Retries the steps that a failing device refused before.
    fn settle(&mut self, device: &mut dyn Driver) -> Served {
        match device.virtual_memory() {
            Some(memory) => Ok(self.undo.run(memory)?),
            None => Ok(()),
        }
    }
}

impl Policy for Quilt {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.meet(stream);
        self.malloc_block(device, bytes, stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        match self.pools.take_owner(block.addr) {
            Some(pool) => self.free_in(device, pool, block),
            None => self.free_block(device, block),
        }
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.meet(stream);
        self.users.add(block, stream);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        if self.pools.is_capturing {
            return Ok(());
        }
        device.synchronize_device()?;
        self.all_over();
        self.take_released_pools(device);
        self.take_back_all_pending(device)?;
        self.give_empty_slabs(device);
        while let Some(retired) = self.retired.pop_front() {
            retired.unmap(&mut self.undo);
        }
        while let Some(view) = self.views.take_oldest() {
            view.unmap(&mut self.undo);
        }
        let in_views: HashSet<u64> = self
            .views
            .iter()
            .flat_map(|(_, view)| view.units())
            .map(|unit| unit.run.start)
            .collect();
        let units: Vec<_> = self.units.iter().collect();
        for unit in units {
            if !in_views.contains(&unit.run.start) && self.space.free.contains(unit.run) {
                self.space.free.take(unit.run);
                self.units.remove(&mut self.undo, unit);
            }
        }
        self.settle(device)?;
        self.units.leave_home(&mut self.undo);
        self.settle(device)
    }

    fn private_pools(&mut self) -> Option<&mut dyn PrivatePools> {
        Some(self)
    }

    fn check(&self) -> Result<(), Violation> {
        let spaces: Vec<&Space> = self.pools.others().chain([&self.space]).collect();
        spaces.iter().try_for_each(|space| space.check())?;
        let held = self.held.values();
        let in_use = held.flat_map(|held| self.views.runs(held.place, held.bytes));
        let free = spaces.iter().flat_map(|space| space.free.iter());
        let mut all: Vec<Run> = in_use.chain(free).collect();
        all.sort_unstable();
        let units: Vec<Run> = self.units.iter().map(|unit| unit.run).collect();
        let bytes = |runs: &[Run]| runs.iter().map(|run| run.bytes).sum::<u64>();
        ensure!(
            bytes(&all) == bytes(&units),
            "blocks and free runs have {} bytes, units {}",
            bytes(&all),
            bytes(&units)
        );
        for pair in all.windows(2) {
            ensure!(
                pair[0].end() <= pair[1].start,
                "the bytes at {} are in use twice, or free and in use",
                pair[1].start
            );
        }
        Ok(())
    }
}
