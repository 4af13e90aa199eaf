//! Private pools: separate pools for CUDA graphs and `torch.cuda.MemPool`.
//!
//! A pool exists from its first user until it has no users and, by PyTorch's count, no memory. As in
//! PyTorch, any id is accepted: `(0, 0)`, which denotes the default pools, can also name a private
//! pool. What captures of CUDA graphs change is in `capture.rs`.
//!
//! Source: PyTorch 2.11, `create_or_incref_pool`, `beginAllocateToPool`, `endAllocateToPool`,
//! `releasePool`, `try_mempool_fallback`.

use std::fmt;

use super::flat_hash::{FlatHashMap, FlatKey};
use super::pool::Pools;
use super::{BlockId, PoolId, PyTorch, Request, ShelfId};
use crate::driver::{Driver, StreamId};
use crate::error::{Error, Hazard, PoolError};
use crate::mempool::{MempoolId, PoolSource, StreamFilter};
use crate::stats::PoolKind;

/// Whether the bytes reserved by each private pool are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PoolStatistics {
    /// They are not. Until 2.12.
    None,
    /// They are, also after the pool is gone. From 2.13 on.
    Kept,
}

/// Which of several redirections that accept a stream applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nesting {
    /// The oldest. Until 2.9.
    Outermost,
    /// The newest. From 2.10 on.
    Innermost,
}

/// When a request may take a free block of a private pool that allows it (`use_on_oom`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Borrowing {
    /// After all cached memory was returned. Until 2.10.
    LastResort,
    /// Before cached memory is returned. From 2.11 on.
    BeforeReturning,
}

/// The rules by which such a block is found and split while expandable segments are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BorrowedBlock {
    /// Those for expandable segments, as anywhere. Until 2.9.
    AsExpandable,
    /// Those for plain segments. From 2.10 on.
    AsPlain,
}

impl FlatKey for MempoolId {
    fn flat_hash(self) -> u64 {
        if self.0 != 0 { self.0 } else { self.1 }
    }
}

/// A private pool: one pool per kind of block, and its users.
#[derive(Debug)]
pub(super) struct PrivatePool {
    id: MempoolId,
    /// Number of users. At 0 the pool's memory may be returned.
    use_count: u64,
    /// Segments reserved minus segments returned, as PyTorch counts them: with expandable segments,
    /// once per allocation that mapped pages and once per unmapped region ([`Hazard`]).
    device_mallocs: u64,
    /// Reserved bytes.
    pub(super) reserved: u64,
    pub(super) small: PoolId,
    pub(super) large: PoolId,
    /// Where its segments come from, if not from the device.
    source: Source,
}

#[derive(Default)]
struct Source(Option<Box<dyn PoolSource>>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "own" } else { "device" })
    }
}

struct Recording {
    pool: MempoolId,
    accepts: StreamFilter,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recording({})", self.pool)
    }
}

/// All private pools of a device.
#[derive(Debug, Default)]
pub(super) struct PrivatePools {
    pools: Vec<PrivatePool>,
    /// Pools without users, in the order in which they are emptied.
    freeable: FlatHashMap<MempoolId, ()>,
    /// Active redirections, oldest first. [`Nesting`] tells which applies.
    recordings: Vec<Recording>,
    use_on_oom: FlatHashMap<MempoolId, ()>,
    no_split: Vec<MempoolId>,
}

impl PrivatePools {
    /// Whether allocations of any stream are directed to a private pool.
    pub(super) fn is_recording(&self) -> bool {
        !self.recordings.is_empty()
    }

    /// The pool of a kind to which allocations of `stream` are directed, if any. The pool may no longer
    /// exist if it was released and emptied before the redirection ended.
    pub(super) fn redirection(
        &self,
        stream: StreamId,
        kind: PoolKind,
        nesting: Nesting,
    ) -> Result<Option<PoolId>, PoolError> {
        let mut accepting = self.recordings.iter().filter(|r| (r.accepts)(stream));
        let recording = match nesting {
            Nesting::Outermost => accepting.next(),
            Nesting::Innermost => accepting.next_back(),
        };
        let Some(recording) = recording else {
            return Ok(None);
        };
        let id = recording.pool;
        let pool = self.get(id).ok_or(PoolError::Unknown(id))?;
        Ok(Some(pool.of(kind)))
    }

    /// Whether the blocks of any pool are never split.
    pub(super) fn is_any_never_split(&self) -> bool {
        !self.no_split.is_empty()
    }

    /// Whether blocks of this pool are never split.
    pub(super) fn is_never_split(&self, pool: MempoolId) -> bool {
        self.no_split.contains(&pool)
    }

    /// The pools without users, in the order in which PyTorch empties them.
    pub(super) fn freeable(&self) -> Vec<MempoolId> {
        self.freeable.keys().collect()
    }

    /// Whether a pool has no users. Its memory waits to be returned.
    pub(super) fn is_freeable(&self, id: MempoolId) -> bool {
        self.freeable.get(id).is_some()
    }

    pub(super) fn get(&self, id: MempoolId) -> Option<&PrivatePool> {
        self.pools.iter().find(|pool| pool.id == id)
    }

    pub(super) fn get_mut(&mut self, id: MempoolId) -> Option<&mut PrivatePool> {
        self.pools.iter_mut().find(|pool| pool.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PrivatePool> {
        self.pools.iter()
    }

    /// Removes a pool that has no memory and no users.
    pub(super) fn remove(&mut self, id: MempoolId, pools: &mut Pools) {
        if let Some(index) = self.pools.iter().position(|pool| pool.id == id) {
            let pool = self.pools.swap_remove(index);
            pools.remove(pool.small);
            pools.remove(pool.large);
        }
        self.freeable.remove(id);
    }

    fn create_or_use(&mut self, id: MempoolId, pools: &mut Pools) -> Result<(), PoolError> {
        if let Some(pool) = self.get_mut(id) {
            if pool.use_count == 0 {
                return Err(PoolError::Released(id));
            }
            pool.use_count += 1;
            return Ok(());
        }
        self.pools.push(PrivatePool {
            id,
            use_count: 1,
            device_mallocs: 0,
            reserved: 0,
            small: pools.add(PoolKind::Small, Some(id)),
            large: pools.add(PoolKind::Large, Some(id)),
            source: Source::default(),
        });
        Ok(())
    }

    fn begin(
        &mut self,
        id: MempoolId,
        accepts: StreamFilter,
        pools: &mut Pools,
    ) -> Result<(), PoolError> {
        self.create_or_use(id, pools)?;
        if self.recordings.iter().any(|recording| recording.pool == id) {
            return Err(PoolError::AlreadyRecording);
        }
        self.recordings.push(Recording { pool: id, accepts });
        Ok(())
    }

    fn end(&mut self, id: MempoolId) -> Result<(), PoolError> {
        let position = self
            .recordings
            .iter()
            .position(|r| r.pool == id)
            .ok_or(PoolError::NotRecording)?;
        self.recordings.remove(position);
        Ok(())
    }

    fn release(&mut self, id: MempoolId) -> Result<(), PoolError> {
        let pool = self.get_mut(id).ok_or(PoolError::Unknown(id))?;
        pool.use_count = pool
            .use_count
            .checked_sub(1)
            .ok_or(PoolError::Released(id))?;
        if pool.use_count == 0 {
            self.freeable.insert(id, ());
        }
        Ok(())
    }
}

impl PrivatePool {
    /// Whether, by PyTorch's count, it holds no memory.
    pub(super) fn counts_as_empty(&self) -> bool {
        self.device_mallocs == 0
    }

    /// Counts an allocation that reserved memory.
    pub(super) fn count_malloc(&mut self) {
        self.device_mallocs += 1;
    }

    /// Counts a segment or region returned to the device.
    pub(super) fn count_free(&mut self) -> Result<(), Hazard> {
        match self.device_mallocs.checked_sub(1) {
            Some(left) => {
                self.device_mallocs = left;
                Ok(())
            }
            None => Err(Hazard::PrivatePoolOverreleased { pool: self.id }),
        }
    }

    /// Whether a pool is one of its two.
    pub(super) fn has(&self, pool: PoolId) -> bool {
        [self.small, self.large].contains(&pool)
    }

    pub(super) fn of(&self, kind: PoolKind) -> PoolId {
        match kind {
            PoolKind::Small => self.small,
            PoolKind::Large => self.large,
        }
    }
}

impl<D: Driver> PyTorch<D> {
    /// The private pool that contains a shelf.
    pub(super) fn private_pool_of(&mut self, shelf: ShelfId) -> Option<&mut PrivatePool> {
        let owner = self.pools.pool_of(shelf).owner()?;
        self.private_pools.get_mut(owner)
    }

    /// Creates a private pool, or adds a user to one (`createOrIncrefPool`).
    ///
    /// # Errors
    /// [`PoolError::Released`] if it exists but has no users.
    pub fn create_or_use_pool(&mut self, id: MempoolId) -> Result<(), Error> {
        Ok(self.private_pools.create_or_use(id, &mut self.pools)?)
    }

    /// Lets the segments of a private pool come from `source` instead of the device (the allocator of a
    /// `torch.cuda.MemPool`). It must not call this allocator.
    ///
    /// # Errors
    /// [`PoolError::Unknown`].
    pub fn set_pool_source(
        &mut self,
        id: MempoolId,
        source: Box<dyn PoolSource>,
    ) -> Result<(), Error> {
        let pool = self.private_pools.get_mut(id);
        pool.ok_or(PoolError::Unknown(id))?.source = Source(Some(source));
        Ok(())
    }

    /// Whether the segments of a shelf do not come from the device. They are then never expandable.
    pub(super) fn has_own_source(&mut self, shelf: ShelfId) -> bool {
        self.source_of(shelf).is_some()
    }

    /// The source of a shelf's segments, if it is not the device.
    pub(super) fn source_of(&mut self, shelf: ShelfId) -> Option<&mut dyn PoolSource> {
        match &mut self.private_pool_of(shelf)?.source.0 {
            Some(source) => Some(&mut **source),
            None => None,
        }
    }

    /// Whether allocations of `stream` are directed to a private pool.
    #[must_use]
    pub fn is_directed(&self, stream: StreamId) -> bool {
        let mut recordings = self.private_pools.recordings.iter();
        recordings.any(|recording| (recording.accepts)(stream))
    }

    /// Directs the allocations of streams that `accepts` selects to a private pool, and adds a user to
    /// it (`beginAllocateToPool`).
    ///
    /// # Errors
    /// [`PoolError::AlreadyRecording`], although the user was added, or [`PoolError::Released`].
    pub fn begin_allocate_to_pool(
        &mut self,
        id: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        Ok(self.private_pools.begin(id, accepts, &mut self.pools)?)
    }

    /// Ends the redirection. The pool keeps its users (`endAllocateToPool`).
    ///
    /// # Errors
    /// [`PoolError::NotRecording`]; [`Error::Driver`] if an event could not be recorded for a deferred free.
    pub fn end_allocate_to_pool(&mut self, id: MempoolId) -> Result<(), Error> {
        self.graph_reuse.forget();
        self.private_pools.end(id)?;
        self.insert_deferred_events_of(id)
    }

    /// Removes a user (`releasePool`). The memory of a pool without users is returned when the cache is
    /// next emptied.
    ///
    /// # Errors
    /// [`PoolError::Unknown`], [`PoolError::Released`].
    pub fn release_pool(&mut self, id: MempoolId) -> Result<(), Error> {
        Ok(self.private_pools.release(id)?)
    }

    /// The number of users of a private pool.
    ///
    /// # Errors
    /// [`PoolError::Unknown`].
    pub fn pool_use_count(&self, id: MempoolId) -> Result<u64, Error> {
        let pool = self.private_pools.get(id).ok_or(PoolError::Unknown(id))?;
        Ok(pool.use_count)
    }

    /// Sets whether a request that finds no memory elsewhere may take a free block of this pool.
    pub fn set_use_on_oom(&mut self, id: MempoolId, on: bool) {
        if on {
            self.private_pools.use_on_oom.insert(id, ());
        } else {
            self.private_pools.use_on_oom.remove(id);
        }
    }

    /// Stops splitting blocks of this pool.
    pub fn set_no_split(&mut self, id: MempoolId) {
        if !self.private_pools.is_never_split(id) {
            self.private_pools.no_split.push(id);
        }
    }

    /// Takes a free block of a pool with `use_on_oom`. The request then belongs to that pool. Applies
    /// only to requests of the default pools.
    pub(super) fn take_from_use_on_oom_pools(
        &mut self,
        request: &mut Request,
    ) -> Result<Option<BlockId>, Error> {
        if self.pools.pool_of(request.shelf).is_private()
            || self.private_pools.use_on_oom.is_empty()
        {
            return Ok(None);
        }
        let candidates: Vec<MempoolId> = self.private_pools.use_on_oom.keys().collect();
        for id in candidates {
            // As in PyTorch: direct everything to the pool, search, undo. A pool that does not exist is
            // created and left without users.
            self.begin_allocate_to_pool(id, Box::new(|_| true))?;
            let redirected = Request {
                shelf: self.shelf_for(request.size, request.stream)?,
                expandable: request.expandable
                    && self.rules.borrowed_block == BorrowedBlock::AsExpandable,
                ..*request
            };
            let found = self.take_free_block(&redirected);
            self.end_allocate_to_pool(id)?;
            self.release_pool(id)?;
            if found.is_some() {
                *request = redirected;
                return Ok(found);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash decides the order in which pools are borrowed from.
    #[test]
    fn pools_are_hashed_as_in_pytorch() {
        assert_eq!(MempoolId(0, 7).flat_hash(), 7, "torch.cuda.MemPool");
        assert_eq!(MempoolId(3, 0).flat_hash(), 3, "graph capture");
    }

    #[test]
    fn a_private_pool_that_is_removed_leaves_nothing_behind() {
        let (mut private, mut pools) = (PrivatePools::default(), Pools::default());
        for nth in 0..3 {
            private
                .create_or_use(MempoolId(0, nth), &mut pools)
                .unwrap();
        }
        private.release(MempoolId(0, 1)).unwrap();
        assert_eq!(private.freeable(), [MempoolId(0, 1)]);
        private.remove(MempoolId(0, 1), &mut pools);
        assert!(private.get(MempoolId(0, 1)).is_none() && private.freeable().is_empty());
        let left: Vec<PoolId> = private
            .iter()
            .flat_map(|pool| [pool.small, pool.large])
            .collect();
        assert_eq!(left.len(), 4);
        assert!(pools.iter().all(|pool| left.contains(&pool)));
        private.remove(MempoolId(0, 1), &mut pools);
        assert_eq!(private.iter().count(), 2, "nothing is removed twice");
    }
}
