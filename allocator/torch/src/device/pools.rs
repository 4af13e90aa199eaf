//! Private pools, and the captures of graphs that use them.
//!
//! Any policy with [private pools](HasPrivatePools) serves them, and the reference serves [special](super::special) ones.

use coalesce_alloc::driver::Driver;
use coalesce_alloc::error::Error;
use coalesce_alloc::{HasPrivatePools, MempoolId, PoolSource, StreamFilter};

use super::{DeviceAllocator, Policy};

const POOLS: &str = "the private pools of CUDA graphs and torch.cuda.MemPool";
const SOURCES: &str = "a torch.cuda.MemPool with an allocator of its own";
const USE_ON_OOM: &str = "a torch.cuda.MemPool with use_on_oom";
const NO_SPLIT: &str = "a torch.cuda.MemPool with no_split";

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Creates a private pool, or adds a user to one. The segments of a new pool come from `source`, if there is one.
    ///
    /// # Errors
    /// As [`HasPrivatePools::create_or_use_pool`]; [`Error::Unsupported`] by policies without private pools, and for a source
    /// without [the reference](Self::add_reference).
    pub fn create_or_use_pool(
        &mut self,
        pool: MempoolId,
        source: Option<Box<dyn PoolSource>>,
    ) -> Result<(), Error> {
        self.had_pools = true;
        let pools = self.pools_with(pool)?;
        let Some(source) = source else {
            return pools.create_or_use_pool(pool);
        };
        let allocator = self.reference_of(pool, SOURCES)?;
        allocator.create_or_use_pool(pool)?;
        match allocator.pool_use_count(pool)? {
            1 => allocator.set_pool_source(pool, source),
            _ => Ok(()),
        }
    }

    /// Serves the requests that `accepts` from a private pool.
    ///
    /// # Errors
    /// As [`HasPrivatePools::begin_allocate_to_pool`], and [`Self::pools`].
    pub fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.pools_with(pool)?
            .begin_allocate_to_pool(pool, accepts)?;
        self.hardened.iter_mut().for_each(|it| it.note_pool(true));
        Ok(())
    }

    /// Serves requests as before.
    ///
    /// # Errors
    /// As [`HasPrivatePools::end_allocate_to_pool`], and [`Self::pools`].
    pub fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.pools_with(pool)?.end_allocate_to_pool(pool)?;
        self.hardened.iter_mut().for_each(|it| it.note_pool(false));
        Ok(())
    }

    /// Sets whether a request that finds no memory elsewhere may take a free block of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without [the reference](Self::add_reference) if it may: a program that counts on this memory
    /// would run out of memory later.
    pub fn set_use_on_oom(&mut self, pool: MempoolId, on: bool) -> Result<(), Error> {
        if on || self.settings().is_some() || self.special_pools.contains(&pool) {
            let allocator = self.reference_of(pool, USE_ON_OOM)?;
            allocator.set_use_on_oom(pool, on);
        }
        Ok(())
    }

    /// Stops splitting blocks of this pool.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without [the reference](Self::add_reference): a program may rely on one segment for each block.
    pub fn set_no_split(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.reference_of(pool, NO_SPLIT)?.set_no_split(pool);
        Ok(())
    }

    /// Announces that the capture of a graph has begun. Only the reference needs this. Other policies notice a capture by
    /// the requests for a pool of graphs, and ask the device.
    pub fn mark_capture_begin(&mut self) {
        if let Policy::Reference(allocator) = &mut self.policy {
            allocator.mark_capture_begin();
        }
        self.special
            .iter_mut()
            .for_each(|it| it.mark_capture_begin());
    }

    /// Announces that the capture of a graph has ended.
    ///
    /// # Errors
    /// As [`coalesce_alloc::PyTorch::mark_capture_end`].
    pub fn mark_capture_end(&mut self) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.mark_capture_end(),
            Policy::Other { .. } => self.special().map_or(Ok(()), Self::mark_capture_end),
        }
    }

    /// Returns the private pools, of which this is one or becomes one.
    ///
    /// # Errors
    /// As [`Self::pools`].
    pub fn pools_with(&mut self, pool: MempoolId) -> Result<&mut dyn HasPrivatePools, Error> {
        let is_special = self.special_pools.contains(&pool);
        let owner = match self.special {
            Some(_) if is_special => self.special(),
            _ => Some(self),
        };
        let (policy, what) = ("pytorch", POOLS);
        owner.ok_or(Error::Unsupported { policy, what })?.pools()
    }

    /// Returns the private pools, but for special ones.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the policy has no private pools.
    pub fn pools(&mut self) -> Result<&mut dyn HasPrivatePools, Error> {
        let (policy, what) = (self.policy(), POOLS);
        let pools = self.allocator_mut().private_pools();
        pools.ok_or(Error::Unsupported { policy, what })
    }
}
