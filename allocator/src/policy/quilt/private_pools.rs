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
use std::collections::BTreeMap;

use crate::driver::{Driver, StreamId};
use crate::mempool::MempoolId;
use crate::policy::free_runs::FreeRuns;
use crate::policy::{Block, PrivatePools, Refusal, Served};

use super::Quilt;
use super::space::Space;
use super::stitch::Pieces;
use super::streams::Mark;
use super::tag::{PoolNumber, Tag};

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
pub(super) struct Pool {
    /// `None` for the common memory, and for a number that no pool has.
    id: Option<MempoolId>,
    pub(super) space: Space,
    state: State,
    /// Live blocks, except in the common memory.
    pub(super) blocks: u64,
}

impl Pool {
    /// Its memory is its own from now on, also if an earlier pool of the same name was released.
    pub(super) fn mark_used(&mut self) {
        self.state = State::Used;
    }
}

/// The common memory and all private pools.
#[derive(Debug)]
pub(super) struct Pools {
    /// By number. Those that no private pool has are empty.
    pools: Vec<Pool>,
    numbers: BTreeMap<MempoolId, PoolNumber>,
    /// The pool that serves requests.
    served: PoolNumber,
    /// Whether a graph is captured, so that nothing can be waited for.
    pub(super) is_capturing: bool,
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            pools: vec![Pool::default()],
            numbers: BTreeMap::new(),
            served: PoolNumber::COMMON,
            is_capturing: false,
        }
    }
}

impl Pools {
    /// The memory of the pool that is served.
    pub(super) fn space(&self) -> &Space {
        &self.pools[self.served.index()].space
    }

    /// The memory of the pool that is served.
    pub(super) fn space_mut(&mut self) -> &mut Space {
        &mut self.pools[self.served.index()].space
    }

    /// The memory of all pools, and the common memory.
    pub(super) fn spaces(&self) -> impl Iterator<Item = &Space> {
        self.pools.iter().map(|pool| &pool.space)
    }

    fn common(&mut self) -> &mut Space {
        &mut self.pools[0].space
    }

    /// The number of the pool that is served.
    pub(super) fn served(&self) -> PoolNumber {
        self.served
    }

    /// The pool that is served, if graphs may use its memory.
    pub(super) fn served_for_graphs(&self) -> Option<MempoolId> {
        let pool = self.pools[self.served.index()].id?;
        (self.is_capturing || pool.is_of_graphs()).then_some(pool)
    }

    /// Whether there are private pools.
    pub(super) fn any_private(&self) -> bool {
        !self.numbers.is_empty()
    }

    pub(super) fn number_of(&self, pool: MempoolId) -> Option<PoolNumber> {
        self.numbers.get(&pool).copied()
    }

    pub(super) fn get(&mut self, pool: PoolNumber) -> &mut Pool {
        &mut self.pools[pool.index()]
    }

    /// The number of a pool, which is created if it does not exist.
    pub(super) fn number_or_new(&mut self, pool: MempoolId) -> Served<PoolNumber> {
        if let Some(number) = self.number_of(pool) {
            return Ok(number);
        }
        let is_vacant = |number: &u16| !self.numbers.values().any(|taken| taken.0 == *number);
        let number = (1..=u16::MAX).find(is_vacant).map(PoolNumber);
        let number = number.ok_or(Refusal::Unsupported("more than 65,535 private pools"))?;
        if number.index() == self.pools.len() {
            self.pools.push(Pool::default());
        }
        self.get(number).id = Some(pool);
        self.numbers.insert(pool, number);
        Ok(number)
    }

    fn remove(&mut self, number: PoolNumber) {
        if let Some(id) = std::mem::take(self.get(number)).id {
            self.numbers.remove(&id);
        }
    }

    fn are_released(&self) -> bool {
        self.pools.iter().any(|pool| pool.state == State::Released)
    }
}

impl Quilt {
    /// Runs `work` while a pool serves requests.
    pub(super) fn serve_from<T>(
        &mut self,
        pool: PoolNumber,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = std::mem::replace(&mut self.pools.served, pool);
        let answer = work(self);
        self.pools.served = before;
        answer
    }

    /// Frees a block of a private pool.
    pub(super) fn free_in_pool(&mut self, device: &mut dyn Driver, tag: Tag, block: Block) {
        self.serve_from(tag.pool, |quilt| quilt.free_block(device, tag, block));
        let pool = self.pools.get(tag.pool);
        pool.blocks -= 1;
        if pool.state == State::Over {
            self.make_common(device, tag.pool);
        }
    }

    /// Moves whole units from the common memory to the private pool that is served, if one is: at least `bytes` if there
    /// are so many. Returns the bytes moved.
    pub(super) fn feed(&mut self, bytes: u64) -> u64 {
        if self.pools.served == PoolNumber::COMMON {
            return 0;
        }
        // During a capture nothing can be waited for.
        let may_wait = !self.pools.is_capturing;
        let streams = &self.streams;
        let is_pending = |marks: &[Mark]| marks.iter().any(|&mark| !streams.is_known_over(mark));
        let is_unwanted = |marks: &[Mark]| !may_wait && is_pending(marks);
        let free = self.pools.pools[0].space.free.iter();
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
                self.pools.common().free.take(unit.run);
                self.pools.space_mut().free.give(unit.run);
                moved += unit.run.bytes;
            }
        }
        moved
    }

    /// Makes the memory of released pools common, unless a private pool is served. Returns whether there were any.
    pub(super) fn reclaim_pools(&mut self, device: &mut dyn Driver) -> Served<bool> {
        let can_wait = !self.pools.is_capturing && self.pools.served == PoolNumber::COMMON;
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
        let numbers: Vec<(MempoolId, PoolNumber)> = self
            .pools
            .numbers
            .iter()
            .map(|(&id, &number)| (id, number))
            .collect();
        for (id, number) in numbers {
            let pool = self.pools.get(number);
            if pool.state != State::Used {
                pool.state = State::Over;
                self.views.let_go(id);
                self.make_common(device, number);
            }
        }
    }

    /// Makes the free memory of a pool that no graph uses common, and forgets the pool if it has no blocks.
    fn make_common(&mut self, device: &mut dyn Driver, pool: PoolNumber) {
        let free: FreeRuns = self.serve_from(pool, |quilt| {
            // What the device does not answer for is taken back the next time.
            let _later = quilt.take_back_all_pending(device);
            quilt.give_empty_slabs(device);
            std::mem::take(&mut quilt.pools.space_mut().free)
        });
        for run in free.iter() {
            self.pools.common().free.give(run);
        }
        let left = self.pools.get(pool);
        if left.blocks == 0 && left.space.pending.is_empty() {
            self.pools.remove(pool);
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
        let pool = self.pools.number_or_new(pool)?;
        self.pools.get(pool).mark_used();
        let mut answer = self.serve_from(pool, |quilt| quilt.malloc_block(device, bytes, stream));
        if answer == Err(Refusal::OutOfMemory) && self.reclaim_pools(device)? {
            answer = self.serve_from(pool, |quilt| quilt.malloc_block(device, bytes, stream));
        }
        self.pools.get(pool).blocks += u64::from(answer.is_ok());
        answer
    }

    fn release_pool(&mut self, pool: MempoolId) {
        if let Some(pool) = self.pools.number_of(pool) {
            self.pools.get(pool).state = State::Released;
        }
    }

    fn empty_released_pools(&mut self, device: &mut dyn Driver) -> Served {
        self.reclaim_pools(device).map(|_| ())
    }

    fn owns(&self, pool: MempoolId, block: Block) -> bool {
        self.pools.number_of(pool) == Some(Tag::unpack(block.tag).pool)
    }

    fn save(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        live: &[Block],
    ) -> Served<Box<dyn Any + Send>> {
        Ok(Box::new(self.save_pool(device, pool, live)?))
    }

    fn restore(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        saved: &(dyn Any + Send),
        live: &[Block],
    ) -> Served {
        let foreign = || Refusal::Failed("the checkpoint is of another policy".to_owned());
        let saved = saved.downcast_ref().ok_or_else(foreign)?;
        self.restore_pool(device, pool, saved, live)
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
