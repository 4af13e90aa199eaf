//! Pools that another policy does not serve: those with an allocator of their own, those that serve other requests when memory
//! runs out, and those that never split blocks. The reference serves them, beside the policy.

use coalesce_alloc::driver::{Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::stats::DeviceStats;
use coalesce_alloc::{MempoolId, PyTorch};

use super::{DeviceAllocator, Limited, Policy};

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Whether the policy has private pools, but needs the reference for special ones.
    pub fn needs_reference(&mut self) -> bool {
        matches!(self.policy, Policy::Other { .. })
            && self.special.is_none()
            && self.pools().is_ok()
    }

    /// Lets another allocator of the same device serve special pools.
    ///
    /// # Errors
    /// If the driver cannot give the peers of the device access to its memory.
    pub fn add_reference(&mut self, mut reference: Self) -> Result<(), Error> {
        let limit = self.allocator().driver().hook().bytes();
        let device = reference.allocator_mut().driver_mut();
        device.hook_mut().set(limit);
        let mut peers = self.peers.iter();
        peers.try_for_each(|&peer| reference.open_to_peer(peer))?;
        self.special = Some(Box::new(reference));
        Ok(())
    }

    /// The allocator of special pools, if there is one beside the policy.
    pub fn special(&mut self) -> Option<&mut Self> {
        self.special.as_deref_mut()
    }

    /// The allocator of special pools, if a request goes to it. What each of both holds then counts for the other's limit.
    pub(super) fn special_for(&mut self, stream: StreamId) -> Option<&mut Self> {
        let special = self.special.as_deref()?;
        let Policy::Reference(allocator) = &special.policy else {
            return None;
        };
        let is_directed = allocator.is_directed(stream);
        let (ours, theirs) = (self.held(), special.held());
        self.count_elsewhere(theirs);
        let special = self.special.as_deref_mut()?;
        special.count_elsewhere(ours);
        is_directed.then_some(special)
    }

    fn held(&self) -> u64 {
        let held = self.allocator().driver().hook().held().bytes();
        held.current.cast_unsigned()
    }

    fn count_elsewhere(&mut self, bytes: u64) {
        let device = self.allocator_mut().driver_mut();
        device.hook_mut().count_elsewhere(bytes);
    }

    /// Moves a pool that has no blocks to the allocator of special pools, if there is one. Returns that allocator.
    pub(super) fn reference_of(
        &mut self,
        pool: MempoolId,
        what: &'static str,
    ) -> Result<&mut PyTorch<Limited<D>>, Error> {
        let is_moved = self.special.is_some() && self.special_pools.insert(pool);
        let mut users = 0;
        if is_moved && let Some(pools) = self.allocator_mut().private_pools() {
            users = pools.pool_use_count(pool).unwrap_or(0);
            for _ in 0..users {
                pools.release_pool(pool)?;
            }
        }
        let policy = self.policy();
        let reference = self.special.as_deref_mut().map(|it| &mut it.policy);
        let Policy::Reference(allocator) = reference.unwrap_or(&mut self.policy) else {
            return Err(Error::Unsupported { policy, what });
        };
        for _ in 0..users {
            allocator.create_or_use_pool(pool)?;
        }
        Ok(allocator)
    }

    /// The statistics of the policy, with those of special pools.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let stats = self.allocator().stats();
        match &self.special {
            Some(special) => stats.and(&special.stats()),
            None => stats.clone(),
        }
    }

    /// Resets the peaks to the current values.
    pub fn reset_peak_stats(&mut self) {
        self.allocator_mut().reset_peak_stats();
        self.special.iter_mut().for_each(|it| it.reset_peak_stats());
    }
}
