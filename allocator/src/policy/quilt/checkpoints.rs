//! Checkpoints of private pools, for trees of CUDA graphs.
//!
//! The memory of a pool only grows until the pool is released, and the views of its blocks stay mapped. So a pool can always
//! be made what it was: its free memory and slabs are those of the checkpoint, and memory that it got since is free.

use std::collections::BTreeMap;

use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::mempool::MempoolId;
use crate::policy::free_runs::{FreeRuns, Run};
use crate::policy::{Refusal, Served};

use super::slabs::Slabs;
use super::views::Place;
use super::{Held, Quilt};

/// A private pool at one time.
#[derive(Debug)]
pub(super) struct SavedPool {
    free: FreeRuns,
    slabs: BTreeMap<StreamId, Slabs>,
    /// Its large blocks and its slabs.
    held: BTreeMap<DeviceAddr, Held>,
    /// Its blocks.
    blocks: Vec<DeviceAddr>,
}

impl Quilt {
    /// Saves which blocks of a pool are live.
    pub(super) fn save_pool(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
    ) -> Served<SavedPool> {
        self.serve_from(pool, |quilt| quilt.take_back_all_pending(device))?;
        let held = self.held_by(pool);
        for held in held.values() {
            self.views.keep_for(pool, held.place);
        }
        let private = self.pools.pools.entry(pool).or_default();
        private.mark_used();
        if !private.space.pending.is_empty() {
            let waits = "a freed block of the pool waits for other streams";
            return Err(Refusal::Failed(waits.to_owned()));
        }
        Ok(SavedPool {
            free: private.space.free.clone(),
            slabs: private.space.slabs.clone(),
            held,
            blocks: self.pools.blocks_of(pool),
        })
    }

    /// Makes exactly those blocks live that were so then. Waits for the device, so that no work uses the blocks that are
    /// freed, and none that is freed waits for other streams.
    pub(super) fn restore_pool(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        saved: &SavedPool,
    ) -> Served {
        if device.is_capturing() {
            return Err(Refusal::Unsupported(
                "restoring a private pool while a graph is captured",
            ));
        }
        let new = self.new_since(pool, saved).ok_or_else(|| {
            Refusal::Failed("the memory of the checkpoint was returned".to_owned())
        })?;
        device.synchronize_device()?;
        self.all_over();
        for (addr, held) in self.held_by(pool) {
            self.held.remove(&addr);
            self.views.leave(held.place);
        }
        for addr in self.pools.blocks_of(pool) {
            self.pools.owners.remove(&addr);
            self.users.forget_at(addr);
        }
        for (&addr, &held) in &saved.held {
            self.held.insert(addr, held);
            self.views.enter(held.place);
        }
        let owners = saved.blocks.iter().map(|&addr| (addr, pool));
        self.pools.owners.extend(owners);
        let private = self.pools.pools.entry(pool).or_default();
        private.blocks = saved.blocks.len() as u64;
        private.space.pending.clear();
        private.space.slabs.clone_from(&saved.slabs);
        private.space.free = saved.free.clone();
        for run in new {
            private.space.free.give(run);
        }
        Ok(())
    }

    /// The memory that a pool got since; `None` if it does not have all that it had.
    fn new_since(&mut self, pool: MempoolId, saved: &SavedPool) -> Option<Vec<Run>> {
        let is_mapped = |held: &Held| match held.place {
            Place::Home(_) => true,
            Place::View(id, _) => self.views.get(id).is_some(),
        };
        if !saved.held.values().all(is_mapped) {
            return None;
        }
        let behind = |held: &Held| self.views.runs(held.place, held.bytes).collect::<Vec<_>>();
        let mut memory = self.pools.pools.get(&pool)?.space.free.clone();
        for run in self.held_by(pool).values().flat_map(behind) {
            memory.give(run);
        }
        let then = saved.held.values().flat_map(behind);
        for run in then.chain(saved.free.iter()) {
            if !memory.contains(run) {
                return None;
            }
            memory.take(run);
        }
        Some(memory.iter().collect())
    }

    /// The large blocks of a pool and its slabs.
    fn held_by(&self, pool: MempoolId) -> BTreeMap<DeviceAddr, Held> {
        let slabs = self
            .pools
            .pools
            .get(&pool)
            .into_iter()
            .flat_map(|pool| pool.space.slabs.values().flat_map(Slabs::iter));
        let addresses = self.pools.blocks_of(pool).into_iter().chain(slabs);
        let held = addresses.filter_map(|addr| Some((addr, *self.held.get(&addr)?)));
        held.collect()
    }
}
