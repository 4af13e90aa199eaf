//! Returns cached memory to the device.
//!
//! Source: PyTorch 2.11, `release_available_cached_blocks`, `release_cached_blocks`,
//! `release_blocks`.

use super::events::Waiting;
use super::{BlockId, PoolId, PyTorch, Request};
use crate::driver::Driver;
use crate::error::{Error, Hazard};
use crate::mempool::MempoolId;

/// Collects hazards, so that an operation completes before it reports the first.
#[derive(Default)]
struct Hazards(Option<Hazard>);

impl Hazards {
    /// Keeps a hazard for later; returns any other error at once.
    fn defer(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Err(Error::Hazard(hazard)) => {
                self.0.get_or_insert(hazard);
                Ok(())
            }
            other => other,
        }
    }

    fn first(self) -> Result<(), Error> {
        self.0.map_or(Ok(()), |hazard| Err(hazard.into()))
    }
}

impl<D: Driver> PyTorch<D> {
    /// Returns just enough oversize blocks of the request's stream and pool: a single one that is large
    /// enough, else the largest first until they add up. Does nothing without `max_split_size`. Returns
    /// whether they were enough; the blocks are returned in any case.
    pub(super) fn release_available_cached_blocks(
        &mut self,
        request: &Request,
    ) -> Result<bool, Error> {
        let Some(max_split_size) = self.settings.max_split_size else {
            return Ok(false);
        };
        let wanted = request.size.max(max_split_size);
        let free = &self.pools[request.shelf].free;
        let one = free.best_fit(self.blocks.slots(), wanted);
        if let Some(one) = one.filter(|one| !self.blocks[one.id].is_expandable()) {
            self.release_block(one.id)?;
            return Ok(true);
        }
        let mut bytes = 0;
        let mut chosen: Vec<BlockId> = Vec::new();
        for id in free.below(self.blocks.slots(), wanted) {
            let block = &self.blocks[id];
            if bytes >= wanted || !self.settings.is_oversize(block.size) {
                break;
            }
            if !block.is_expandable() {
                bytes += block.size;
                chosen.push(id);
            }
        }
        for id in chosen {
            self.release_block(id)?;
        }
        Ok(bytes >= wanted)
    }

    /// Returns cached memory as far as possible: of the default pools, except during a capture, and of all
    /// private pools without users; or of one such pool alone.
    pub(super) fn release_cached_blocks(&mut self, which: MempoolId) -> Result<(), Error> {
        let all = which == MempoolId::DEFAULT;
        if all && !self.is_capturing() {
            self.synchronize_and_free_events(Waiting::All)?;
            self.release_blocks(self.large)?;
            self.release_blocks(self.small)?;
            self.return_leftover_pages()?;
        }
        let mut hazards = Hazards::default();
        for id in self.private_pools.freeable() {
            if !all && id != which {
                continue;
            }
            if !all {
                self.synchronize_and_free_events(Waiting::OfPool(id))?;
            }
            hazards.defer(self.release_private_pool(id))?;
        }
        hazards.first()
    }

    /// Returns the memory of a private pool without users as far as possible, and removes the pool if
    /// PyTorch's count is zero.
    fn release_private_pool(&mut self, id: MempoolId) -> Result<(), Error> {
        let Some((small, large)) = self.private_pools.get(id).map(|p| (p.small, p.large)) else {
            return Ok(());
        };
        let mut hazards = Hazards::default();
        for pool in [small, large] {
            hazards.defer(self.release_blocks(pool))?;
        }
        if let Some(pool) = self.private_pools.get(id)
            && pool.counts_as_empty()
        {
            if pool.reserved == 0 {
                self.release_unmapped_segments(small)?;
                self.release_unmapped_segments(large)?;
                self.private_pools.remove(id, &mut self.pools);
            } else {
                let hazard = Hazard::PrivatePoolDestroyedInUse { pool: id };
                hazards.defer(Err(hazard.into()))?;
            }
        }
        hazards.first()
    }

    /// Returns the wholly free segments of a pool in search order, then the whole free pages of its
    /// expandable segments.
    fn release_blocks(&mut self, pool: PoolId) -> Result<(), Error> {
        let (expandable, others): (Vec<BlockId>, Vec<BlockId>) = self
            .pools
            .free(&self.blocks, pool)
            .partition(|&id| self.blocks[id].is_expandable());
        for id in others {
            if !self.blocks[id].is_split() {
                self.release_block(id)?;
            }
        }
        let mut hazards = Hazards::default();
        for id in expandable {
            // Even if the device fails at the last page, the addresses are marked for release.
            let unmapped = self.unmap_block(id);
            let released = self.release_if_unmapped(id);
            hazards.defer(unmapped)?;
            released?;
        }
        hazards.first()
    }

    /// Frees the addresses of a pool's expandable segments that have nothing mapped. PyTorch leaks them
    /// when it destroys a private pool.
    fn release_unmapped_segments(&mut self, pool: PoolId) -> Result<(), Error> {
        let ranges: Vec<BlockId> = self.pools.unmapped(pool).collect();
        for id in ranges {
            self.release_if_unmapped(id)?;
        }
        Ok(())
    }
}
