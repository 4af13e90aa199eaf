//! Which memory serves a capture of a graph. From 2.11 on, the requests of a capture have pools of their own, because a
//! graph uses the same addresses whenever it runs.

use super::PinnedAllocator;
use crate::driver::Driver;
use crate::error::{Error, PoolError};
use crate::mempool::MempoolId;
use crate::pytorch::flat_hash::FlatHashMap;

/// The captures under way, and the pools without users.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// The pool of each capture. The first serves all requests.
    under_way: Vec<MempoolId>,
    /// Pools without users, in the order in which they are emptied.
    released: FlatHashMap<MempoolId, ()>,
}

impl Captures {
    pub(super) fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The pool of the next request.
    pub(super) fn pool(&self) -> MempoolId {
        let first = self.under_way.first();
        first.copied().unwrap_or(MempoolId::DEFAULT)
    }
}

impl<D: Driver> PinnedAllocator<D> {
    /// Begins a capture: until its end, every request is made by it and served from `pool`.
    ///
    /// # Errors
    /// If the release has no such pools, the pool was released by all its users, or a capture already uses it.
    pub fn begin_capture(&mut self, pool: MempoolId) -> Result<(), Error> {
        if !self.rules.captures_have_pools {
            return Err(Error::Unsupported {
                policy: "pinned host memory, before 2.11,",
                what: "captures of graphs",
            });
        }
        if self.captures.released.get(pool).is_some() {
            return Err(PoolError::Released(pool).into());
        }
        self.pools.entry(pool).or_default().users += 1;
        if self.captures.under_way.contains(&pool) {
            return Err(PoolError::AlreadyRecording.into());
        }
        self.captures.under_way.push(pool);
        Ok(())
    }

    /// Ends the capture that uses `pool`. The graph stays a user of the pool.
    ///
    /// # Errors
    /// If there is none.
    pub fn end_capture(&mut self, pool: MempoolId) -> Result<(), Error> {
        let mut under_way = self.captures.under_way.iter();
        let at = under_way.position(|&of_capture| of_capture == pool);
        self.captures
            .under_way
            .remove(at.ok_or(PoolError::NotRecording)?);
        Ok(())
    }

    /// Removes a graph that uses `pool`. Without graphs, the free memory of the pool can be returned.
    ///
    /// # Errors
    /// If the pool does not exist or has no users.
    pub fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        let state = self.pools.get_mut(&pool).ok_or(PoolError::Unknown(pool))?;
        let users = state.users.checked_sub(1);
        state.users = users.ok_or(PoolError::Released(pool))?;
        if state.users == 0 {
            self.captures.released.insert(pool, ());
        }
        Ok(())
    }

    /// Returns the free memory of the pools without users, and removes those that have no blocks left.
    pub(super) fn empty_released_pools(&mut self) -> Result<(), Error> {
        let mut next = 0;
        while let Some((at, pool, ())) = self.captures.released.at_or_after(next) {
            self.process_events(pool, None)?;
            self.release_free(pool);
            if self.pools.get(&pool).is_some_and(|pool| pool.blocks > 0) {
                next = at + 1;
                continue;
            }
            self.captures.released.remove_at(at);
            next = at;
            if let Some(gone) = self.pools.remove(&pool) {
                let kept = &mut self.pools.entry(MempoolId::DEFAULT).or_default().counters;
                kept.add(&gone.counters);
            }
        }
        Ok(())
    }
}
