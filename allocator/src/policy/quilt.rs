//! Quilt: maps free memory at additional addresses.
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
//! 1. the smallest free run at home;
//! 2. the smallest free run in a view;
//! 3. a new or mended view, [stitched](stitch) from free pieces, and from new units for what is missing.
//!
//! This depends on what is free alone, so a program that repeats itself gets the same places again.
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
//! Mapping a unit of up to 128 MiB costs 26 µs on an H200, nearly all of it for `cuMemSetAccess`, whatever its size. A program
//! that repeats itself maps nothing after a few steps. For other programs, an unused view is [mended](mending) where that
//! takes fewer calls than a new one. Without driver calls, a request and its free take 1.3 times as long as the reference's,
//! up to 3.3 times with several streams, whose order is looked up, and 5.5 times in a program that deletes its graphs, for
//! which views are mended often. When there are too many views, the least recently used
//! ones are unmapped as soon as the work on them is complete; nothing waits for it. `empty_cache` waits for the device. Then
//! it unmaps all views that have no blocks, and returns all units that have none.
//!
//! # Settings
//!
//! There is nothing to tune. To measure what its mechanisms contribute, `without:NAME` switches one off, and
//! `without:NAME+NAME` several:
//!
//! | mechanism | without it |
//! |---|---|
//! | `views` | a request that fits in no free run gets new memory |
//! | `ends` | a view contains whole free units only |
//! | `sharing` | a stream uses memory only if it freed it itself, or if it is new |
//! | `slabs` | small requests are placed like large ones |
//! | `large_units` | all units have 2 MiB |

mod checkpoints;
#[cfg(test)]
mod fragments;
mod latest;
mod mechanisms;
mod mending;
mod placement;
mod private_pools;
mod retiring;
mod sharing;
mod sizes;
mod slabs;
mod space;
mod spare;
mod stitch;
mod streams;
mod tag;
mod units;
mod uses;
mod views;

use std::collections::{HashSet, VecDeque};

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};

use self::latest::Latest;
use self::mechanisms::Mechanisms;
use self::private_pools::Pools;
use self::retiring::Retired;
use self::sharing::Pending;
use self::slabs::{SLAB, Slab, Slabs};
use self::space::Space;
use self::streams::{StreamNumber, UsedStreams};
use self::tag::{PoolNumber, Tag};
use self::units::Units;
use self::uses::{Marks, Uses};
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

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Quilt {
    mechanisms: Mechanisms,
    units: Units,
    pools: Pools,
    /// A block that is not yet free memory.
    latest: Option<Latest>,
    views: Views,
    /// Views to unmap once the work on them is complete.
    retired: VecDeque<Retired>,
    /// What a failing device did not take back.
    undo: Undo,
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
        let number = self.meet(stream)?;
        let bytes = bytes.next_multiple_of(MIN_BLOCK);
        let (at, addr) = if self.is_small(bytes) {
            self.malloc_small(device, bytes, number)?
        } else {
            let place = self.malloc_large(device, bytes, number)?;
            let in_view = match place {
                Place::Home(_) => 0,
                Place::View(view, _) => view.0 + 1,
            };
            (in_view, self.addr(place))
        };
        let tag = Tag {
            pool: self.pools.served(),
            stream: number,
            at,
        };
        Ok(Block {
            tag: tag.pack(),
            ..Block::new(addr, bytes, stream)
        })
    }

    /// Returns the first cell of the block, and its address.
    fn malloc_small(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamNumber,
    ) -> Served<(u32, DeviceAddr)> {
        if !self.pools.space().pending.is_empty() {
            self.take_back_pending(device, stream)?;
        }
        if let Some(taken) = self.pools.space_mut().slabs_of(stream).take(bytes) {
            return Ok(taken);
        }
        let place = self.malloc_large(device, SLAB, stream)?;
        let addr = self.addr(place);
        let slabs = self.pools.space_mut().slabs_of(stream);
        slabs.add(Slab { addr, place });
        slabs.take(bytes).ok_or(Refusal::OutOfMemory)
    }

    fn malloc_large(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamNumber,
    ) -> Served<Place> {
        let place = match self.take_latest(bytes, stream) {
            Some(place) => place,
            None => self.take_free(device, bytes, stream)?,
        };
        if let Some(pool) = self.pools.served_for_graphs() {
            self.views.keep_for(pool, place);
        }
        Ok(place)
    }

    /// Finds free memory for a block, and takes it.
    fn take_free(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamNumber,
    ) -> Served<Place> {
        self.free_latest(device);
        if let Some(place) = self.take_ready(bytes, stream) {
            return Ok(place);
        }
        let mut place = self.place(device, bytes, stream);
        if place == Err(Refusal::OutOfMemory) && self.give_empty_slabs(device) {
            place = self.place(device, bytes, stream);
        }
        let place = place?;
        self.wait_for_uses(device, place, bytes, stream)?;
        let free = &mut self.pools.space_mut().free;
        self.views.each_run(place, bytes, |run| {
            free.take(run);
            self.uses.forget(run);
        });
        self.views.enter(place);
        Ok(place)
    }

    /// Frees a block of the pool that is served.
    fn free_block(&mut self, device: &mut dyn Driver, tag: Tag, block: Block) {
        let users = self.users.take(block);
        if self.is_small(block.bytes) {
            self.free_small(device, tag, &users);
        } else if users.is_empty() {
            let place = self.place_of(block.addr, tag);
            self.keep_latest(device, place, block.bytes, tag.stream);
        } else {
            self.free_used(device, tag, block, &users);
        }
    }

    /// Frees a small block, or notes that other streams still use it.
    fn free_small(&mut self, device: &mut dyn Driver, tag: Tag, users: &[StreamId]) {
        if users.is_empty() {
            return self.give_small(device, tag.at, tag.stream);
        }
        let pending = Pending {
            cell: tag.at,
            marks: self.ends_of_users(users),
        };
        let queues = &mut self.pools.space_mut().pending;
        queues.entry(tag.stream.0).or_default().push_back(pending);
    }

    /// Frees a small block, and its slab if that is spare.
    fn give_small(&mut self, device: &mut dyn Driver, cell: u32, stream: StreamNumber) {
        let spare = self.pools.space_mut().slabs_of(stream).give(cell);
        if let Some(slab) = spare {
            self.keep_latest(device, slab.place, SLAB, stream);
        }
    }

    /// Frees a large block that other streams use.
    #[inline(never)]
    fn free_used(&mut self, device: &mut dyn Driver, tag: Tag, block: Block, users: &[StreamId]) {
        let place = self.place_of(block.addr, tag);
        let marks = self.ends_of(tag.stream, users);
        self.give(device, place, block.bytes, tag.stream, marks);
    }

    /// Makes a block free memory of the pool that is served.
    fn give(
        &mut self,
        device: &mut dyn Driver,
        place: Place,
        bytes: u64,
        stream: StreamNumber,
        marks: Marks,
    ) {
        self.views.leave(place, self.streams.ends());
        let has_marks = self.streams.are_several();
        let free = &mut self.pools.space_mut().free;
        self.views.each_run(place, bytes, |run| {
            if has_marks {
                self.uses.set(run, marks.clone());
            }
            free.give(run);
        });
        if self.pools.is_capturing {
            return;
        }
        let bytes_per_event = (self.units.bytes() / EVENT_PART).max(LEAST_PER_EVENT);
        let counted = self
            .streams
            .count_freed(device, stream, bytes, bytes_per_event);
        // If the device refuses, the event is recorded when another stream needs it.
        if counted == Ok(true) {
            self.uses.raise(self.streams.oldest_kept());
        }
    }

    /// Makes the empty slabs of the pool that is served free memory, and the block that was freed last. Returns whether there
    /// were any slabs.
    fn give_empty_slabs(&mut self, device: &mut dyn Driver) -> bool {
        let mut any = false;
        let streams = self.pools.space().slabs.len();
        for stream in (0..).take(streams).map(StreamNumber) {
            while let Some(slab) = self.pools.space_mut().slabs_of(stream).take_empty() {
                self.keep_latest(device, slab.place, SLAB, stream);
                any = true;
            }
        }
        self.free_latest(device);
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
        self.malloc_block(device, bytes, stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let tag = Tag::unpack(block.tag);
        if tag.pool == PoolNumber::COMMON {
            self.free_block(device, tag, block);
        } else {
            self.free_in_pool(device, tag, block);
        }
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        self.meet(stream)?;
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
        let before = self.units.bytes();
        let units: Vec<_> = self.units.iter().collect();
        for unit in units {
            let free = &mut self.pools.space_mut().free;
            if !in_views.contains(&unit.run.start) && free.contains(unit.run) {
                free.take(unit.run);
                self.units.remove(&mut self.undo, unit);
            }
        }
        let left = self.pools.space().free.iter().map(|run| run.bytes).sum();
        self.units.note_return(before, left);
        self.settle(device)?;
        self.units.leave_home(&mut self.undo);
        self.settle(device)
    }

    fn private_pools(&mut self) -> Option<&mut dyn PrivatePools> {
        Some(self)
    }

    fn check_with(&self, live: &[Block]) -> Result<(), Violation> {
        self.pools.spaces().try_for_each(Space::check)?;
        let slabs = self.pools.spaces().flat_map(|space| &space.slabs);
        let slabs = slabs.flat_map(Slabs::iter).map(|slab| (slab.place, SLAB));
        let large = live.iter().filter(|block| !self.is_small(block.bytes));
        let large = large.map(|block| {
            let place = self.place_of(block.addr, Tag::unpack(block.tag));
            (place, block.bytes)
        });
        let latest = self
            .latest
            .iter()
            .map(|latest| (latest.place, latest.bytes));
        let in_use = slabs.chain(large).chain(latest);
        let in_use = in_use.flat_map(|(place, bytes)| self.views.runs(place, bytes));
        let free = self.pools.spaces().flat_map(|space| space.free.iter());
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
