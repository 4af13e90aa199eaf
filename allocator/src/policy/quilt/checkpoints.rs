//! Checkpoints of private pools, for trees of CUDA graphs.
//!
//! The memory of a pool only grows until the pool is released, and the views of its blocks stay mapped. So a pool can always
//! be made what it was: its free memory and slabs are those of the checkpoint, and memory that it got since is free.

use crate::driver::{DeviceAddr, Driver};
use crate::mempool::MempoolId;
use crate::policy::free_runs::{FreeRuns, Run};
use crate::policy::{Block, Refusal, Served};

use super::Quilt;
use super::slabs::{SLAB, Slab, Slabs};
use super::tag::{PoolNumber, Tag};
use super::views::Place;

/// A large block or a slab.
#[derive(Clone, Copy, Debug)]
struct Held {
    addr: DeviceAddr,
    place: Place,
    bytes: u64,
}

/// A private pool at one time.
#[derive(Debug)]
pub(super) struct SavedPool {
    free: FreeRuns,
    /// By the number of the stream.
    slabs: Vec<Slabs>,
    held: Vec<Held>,
    /// The number of blocks.
    blocks: u64,
}

impl Quilt {
    /// Saves that `live` are the blocks of a pool.
    pub(super) fn save_pool(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        live: &[Block],
    ) -> Served<SavedPool> {
        let number = self.pools.number_or_new(pool)?;
        self.serve_from(number, |quilt| quilt.take_back_all_pending(device))?;
        self.free_latest(device);
        let held = self.held_by(number, live);
        for held in &held {
            self.views.keep_for(pool, held.place);
        }
        let private = self.pools.get(number);
        private.mark_used();
        if !private.space.pending.is_empty() {
            let waits = "a freed block of the pool waits for other streams";
            return Err(Refusal::Failed(waits.to_owned()));
        }
        Ok(SavedPool {
            free: private.space.free.clone(),
            slabs: private.space.slabs.clone(),
            held,
            blocks: live.len() as u64,
        })
    }

    /// Makes exactly those blocks live that were so then, in place of `live`. Waits for the device, so that no work uses the
    /// blocks that are freed, and none that is freed waits for other streams.
    pub(super) fn restore_pool(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        saved: &SavedPool,
        live: &[Block],
    ) -> Served {
        if device.is_capturing() {
            return Err(Refusal::Unsupported(
                "restoring a private pool while a graph is captured",
            ));
        }
        self.free_latest(device);
        let returned = || Refusal::Failed("the memory of the checkpoint was returned".to_owned());
        let number = self.pools.number_of(pool).ok_or_else(returned)?;
        let held = self.held_by(number, live);
        let new = self.new_since(number, &held, saved).ok_or_else(returned)?;
        device.synchronize_device()?;
        self.all_over();
        for held in held {
            self.views.leave(held.place, self.streams.ends());
        }
        for &block in live {
            self.users.forget(block);
        }
        for held in &saved.held {
            self.views.enter(held.place);
        }
        let private = self.pools.get(number);
        private.blocks = saved.blocks;
        private.space.pending.clear();
        private.space.slabs.clone_from(&saved.slabs);
        private.space.free = saved.free.clone();
        for run in new {
            private.space.free.give(run);
        }
        Ok(())
    }

    /// The memory that a pool got since, which holds `held` now; `None` if it does not have all that it had.
    fn new_since(
        &mut self,
        pool: PoolNumber,
        held: &[Held],
        saved: &SavedPool,
    ) -> Option<Vec<Run>> {
        let is_mapped = |held: &Held| self.addr(held.place) == held.addr;
        if !saved.held.iter().all(is_mapped) {
            return None;
        }
        let behind = |held: &Held| self.views.runs(held.place, held.bytes).collect::<Vec<_>>();
        let now: Vec<Run> = held.iter().flat_map(behind).collect();
        let then: Vec<Run> = saved.held.iter().flat_map(behind).collect();
        let mut memory = self.pools.get(pool).space.free.clone();
        for run in now {
            memory.give(run);
        }
        for run in then.into_iter().chain(saved.free.iter()) {
            if !memory.contains(run) {
                return None;
            }
            memory.take(run);
        }
        Some(memory.iter().collect())
    }

    /// The large ones of the live blocks of a pool, and its slabs.
    fn held_by(&mut self, pool: PoolNumber, live: &[Block]) -> Vec<Held> {
        let slabs = self
            .pools
            .get(pool)
            .space
            .slabs
            .iter()
            .flat_map(Slabs::iter);
        let mut held: Vec<Held> = slabs
            .map(|Slab { addr, place }| Held {
                addr,
                place,
                bytes: SLAB,
            })
            .collect();
        let large = live.iter().filter(|block| !self.is_small(block.bytes));
        held.extend(large.map(|block| Held {
            addr: block.addr,
            place: self.place_of(block.addr, Tag::unpack(block.tag)),
            bytes: block.bytes,
        }));
        held
    }
}
