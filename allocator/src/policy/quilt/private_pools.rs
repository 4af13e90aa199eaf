//! Private pools, for CUDA graphs and `torch.cuda.MemPool`.
//!
//! A private pool gets whole units from the common memory, and from the device if there are none. What its requests used
//! stays in the pool, also after they are freed, and the views of a captured graph stay mapped, because the graph uses
//! the same addresses each time it is launched.
//!
//! When a pool is released, its graphs are gone but may still be running, on streams that are not known here. So its
//! memory becomes common once the host has waited for the device: when the cache is emptied, or before more memory is
//! taken from the device.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::mempool::MempoolId;
use crate::policy::{Block, PrivatePools, Refusal, Served};

use super::Quilt;
use super::space::Space;
use super::stitch::Pieces;
use super::streams::Mark;
use crate::policy::free_runs::Run;

/// Whether graphs use a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Its memory serves its own requests only.
    #[default]
    Used,
    /// It has no users any more, but graphs may still be running.
    Released,
    /// No graph uses it. What is freed in it becomes common memory.
    Over,
}

#[derive(Debug, Default)]
pub(super) struct PrivatePool {
    pub(super) space: Space,
    state: State,
    /// Live blocks.
    pub(super) blocks: u64,
}

impl PrivatePool {
    /// Its memory is its own from now on, also if an earlier pool of the same name was released.
    pub(super) fn mark_used(&mut self) {
        self.state = State::Used;
    }
}

/// All private pools.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pub(super) pools: BTreeMap<MempoolId, PrivatePool>,
    /// The pools of live blocks, except blocks of the common memory.
    pub(super) owners: HashMap<DeviceAddr, MempoolId, FixedState>,
    /// The pool that is served and the common memory, while that is a private pool. [`Quilt`] then has the memory of the
    /// pool in place of the common memory.
    served: Option<(MempoolId, Space)>,
    /// Whether a graph is captured, so that nothing can be waited for.
    pub(super) is_capturing: bool,
}

impl Pools {
    /// The private pool of a block that is freed.
    pub(super) fn take_owner(&mut self, addr: DeviceAddr) -> Option<MempoolId> {
        if self.owners.is_empty() {
            None
        } else {
            self.owners.remove(&addr)
        }
    }

    /// The live blocks of a pool.
    pub(super) fn blocks_of(&self, pool: MempoolId) -> Vec<DeviceAddr> {
        let owned = self.owners.iter().filter(|(_, owner)| **owner == pool);
        owned.map(|(&addr, _)| addr).collect()
    }

    /// The memory of the pools that are not served.
    pub(super) fn others(&self) -> impl Iterator<Item = &Space> {
        let common = self.served.iter().map(|(_, common)| common);
        self.pools.values().map(|pool| &pool.space).chain(common)
    }

    /// The pool that is served, if graphs may use its memory.
    pub(super) fn served_for_graphs(&self) -> Option<MempoolId> {
        let &(pool, _) = self.served.as_ref()?;
        (self.is_capturing || pool.is_of_graphs()).then_some(pool)
    }

    fn are_released(&self) -> bool {
        let mut pools = self.pools.values();
        pools.any(|pool| pool.state == State::Released)
    }
}

impl Quilt {
    /// Runs `work` with the memory of a private pool in place of the common memory.
    pub(super) fn serve_from<T>(
        &mut self,
        pool: MempoolId,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let private = self.pools.pools.entry(pool).or_default();
        let space = std::mem::take(&mut private.space);
        let common = std::mem::replace(&mut self.space, space);
        self.pools.served = Some((pool, common));
        let answer = work(self);
        if let Some((pool, common)) = self.pools.served.take() {
            let space = std::mem::replace(&mut self.space, common);
            self.pools.pools.entry(pool).or_default().space = space;
        }
        answer
    }

    /// Frees a block of a private pool.
    pub(super) fn free_in(&mut self, device: &mut dyn Driver, pool: MempoolId, block: Block) {
        self.serve_from(pool, |quilt| quilt.free_block(device, block));
        if let Some(private) = self.pools.pools.get_mut(&pool) {
            private.blocks -= 1;
            if private.state == State::Over {
                self.make_common(device, pool);
            }
        }
    }

    /// Moves whole units from the common memory to the private pool that is served, if one is: at least `bytes` if there
    /// are so many. Returns the bytes moved.
    pub(super) fn feed(&mut self, bytes: u64) -> u64 {
        let Some((_, common)) = &mut self.pools.served else {
            return 0;
        };
        // During a capture nothing can be waited for.
        let may_wait = !self.pools.is_capturing;
        let streams = &self.streams;
        let is_pending = |marks: &[Mark]| marks.iter().any(|&mark| !streams.is_known_over(mark));
        let is_unwanted = |marks: &[Mark]| !may_wait && is_pending(marks);
        let free = common.free.iter();
        let ready = free.flat_map(|run| self.uses.without(run, is_unwanted));
        let mut runs = Pieces::of(ready, &self.units).whole;
        runs.sort_unstable_by_key(|run| (run.bytes, run.start));
        let mut moved = 0;
        while moved < bytes && !runs.is_empty() {
            // The shortest run that suffices, or else the longest.
            let sufficient = runs.partition_point(|run| run.bytes < bytes - moved);
            let run = runs.remove(sufficient.min(runs.len() - 1));
            for unit in self.units.within(run) {
                if moved >= bytes {
                    break;
                }
                common.free.take(unit.run);
                self.space.free.give(unit.run);
                moved += unit.run.bytes;
            }
        }
        moved
    }

    /// Makes the memory of released pools common, unless a private pool is served. Returns whether there were any.
    pub(super) fn reclaim_pools(&mut self, device: &mut dyn Driver) -> Served<bool> {
        let can_wait = !self.pools.is_capturing && self.pools.served.is_none();
        if !can_wait || !self.pools.are_released() {
            return Ok(false);
        }
        device.synchronize_device()?;
        self.all_over();
        self.take_released_pools(device);
        Ok(true)
    }

    /// Makes the memory of released pools common. All work is complete.
    pub(super) fn take_released_pools(&mut self, device: &mut dyn Driver) {
        let pools = self.pools.pools.iter_mut();
        let unused = pools.filter(|(_, pool)| pool.state != State::Used);
        let ids: Vec<MempoolId> = unused
            .map(|(&id, pool)| {
                pool.state = State::Over;
                id
            })
            .collect();
        for id in ids {
            self.views.let_go(id);
            self.make_common(device, id);
        }
    }

    /// Makes the free memory of a pool that no graph uses common, and forgets the pool if it has no blocks.
    fn make_common(&mut self, device: &mut dyn Driver, pool: MempoolId) {
        let free: Vec<Run> = self.serve_from(pool, |quilt| {
            // What the device does not answer for is taken back the next time.
            let _later = quilt.take_back_all_pending(device);
            quilt.give_empty_slabs(device);
            let free = quilt.space.free.iter().collect();
            quilt.space.free = Default::default();
            free
        });
        for run in free {
            self.space.free.give(run);
        }
        let is_gone = |pool: &PrivatePool| pool.blocks == 0 && pool.space.pending.is_empty();
        if self.pools.pools.get(&pool).is_some_and(is_gone) {
            self.pools.pools.remove(&pool);
        }
    }
}

impl PrivatePools for Quilt {
    fn malloc_in(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Block> {
        self.meet(stream);
        self.pools.pools.entry(pool).or_default().mark_used();
        let mut answer = self.serve_from(pool, |quilt| quilt.malloc_block(device, bytes, stream));
        if answer == Err(Refusal::OutOfMemory) && self.reclaim_pools(device)? {
            answer = self.serve_from(pool, |quilt| quilt.malloc_block(device, bytes, stream));
        }
        let block = answer?;
        self.pools.owners.insert(block.addr, pool);
        self.pools.pools.entry(pool).or_default().blocks += 1;
        Ok(block)
    }

    fn release_pool(&mut self, pool: MempoolId) {
        if let Some(pool) = self.pools.pools.get_mut(&pool) {
            pool.state = State::Released;
        }
    }

    fn empty_released_pools(&mut self, device: &mut dyn Driver) -> Served {
        self.reclaim_pools(device).map(|_| ())
    }

    fn blocks_of(&self, pool: MempoolId) -> Vec<DeviceAddr> {
        self.pools.blocks_of(pool)
    }

    fn save(&mut self, device: &mut dyn Driver, pool: MempoolId) -> Served<Box<dyn Any + Send>> {
        Ok(Box::new(self.save_pool(device, pool)?))
    }

    fn restore(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        saved: &(dyn Any + Send),
    ) -> Served {
        let foreign = || Refusal::Failed("the checkpoint is of another policy".to_owned());
        let saved = saved.downcast_ref().ok_or_else(foreign)?;
        self.restore_pool(device, pool, saved)
    }

    fn begin_capture(&mut self, device: &mut dyn Driver) -> Served {
        if !device.is_capturing() {
            // What is free now can then be used by the graph on whichever stream it is launched.
            device.synchronize_device()?;
            self.all_over();
        }
        self.pools.is_capturing = true;
        Ok(())
    }

    fn end_capture(&mut self) {
        self.pools.is_capturing = false;
    }
}
