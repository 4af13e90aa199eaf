//! Segments: memory reserved from the device and returned to it.
//!
//! Source: PyTorch 2.11, `alloc_block`, `release_block`.

use super::block::Block;
use super::private_pool::PoolStatistics;
use super::{BlockId, PyTorch, Request, ShelfId};
use crate::driver::{DeviceAddr, Driver, DriverError, Status};
use crate::error::{Error, Hazard};
use crate::history::Action;

/// The attempt to reserve memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Before all cached memory was returned.
    First,
    /// After all cached memory was returned.
    Retry,
}

/// Where a block for a request comes from.
pub(super) enum Supply {
    /// A large enough block that is in no pool.
    Block(BlockId),
    /// The device, if it has memory for a segment: its answer goes to [`PyTorch::add_segment`].
    AskDevice,
    /// Nowhere.
    Nothing,
}

impl From<Option<BlockId>> for Supply {
    fn from(block: Option<BlockId>) -> Self {
        block.map_or(Self::Nothing, Self::Block)
    }
}

impl<D: Driver> PyTorch<D> {
    /// Finds out where a segment for the request comes from. Memory of a pool's own allocator and of expandable
    /// segments is reserved at once. Nothing comes if the limit allows no more.
    pub(super) fn request_segment(
        &mut self,
        request: &Request,
        attempt: Attempt,
    ) -> Result<Supply, Error> {
        self.driver.last_error()?;
        if attempt == Attempt::Retry {
            self.stats.num_alloc_retries += 1;
        }
        if self.would_exceed_limit(request.segment_size) {
            return Ok(Supply::Nothing);
        }
        self.ensure_not_rejected(request)?;
        let bytes = request.segment_size;
        let own = self.source_of(request.shelf);
        if let Some(answer) = own.map(|source| source.malloc(bytes)) {
            let block = answer.map(|addr| self.add_plain_segment(addr, request));
            return Ok(block.into());
        }
        if !request.expandable {
            return Ok(Supply::AskDevice);
        }
        let block = self.alloc_expandable(request)?;
        if block.is_some()
            && let Some(private) = self.private_pool_of(request.shelf)
        {
            private.count_malloc();
        }
        Ok(block.into())
    }

    /// Adds the segment that the device gave for a request, as a block that is in no pool. Returns `None` if it had
    /// no memory.
    pub(super) fn add_segment(
        &mut self,
        answer: Status<DeviceAddr>,
        request: &Request,
    ) -> Result<Option<BlockId>, Error> {
        match answer {
            Ok(addr) => Ok(Some(self.add_plain_segment(addr, request))),
            Err(DriverError::OutOfMemory) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn add_plain_segment(&mut self, addr: DeviceAddr, request: &Request) -> BlockId {
        let (size, shelf) = (request.segment_size, request.shelf);
        let kind = self.pools[shelf].kind;
        let id = self.insert_segment(Block::whole_segment(addr, size, shelf, kind, None));
        self.stats.num_device_alloc += 1;
        self.trace(Action::SegmentAlloc, shelf, addr, size);
        id
    }

    /// Counts bytes that the device gave to a pool.
    pub(super) fn count_reserved(&mut self, shelf: ShelfId, bytes: u64) {
        self.reserved += bytes;
        let (kind, owner) = (self.pools[shelf].kind, self.pools.pool_of(shelf).owner());
        self.stats.reserved_bytes.increase(kind, bytes);
        if let Some(id) = owner.filter(|_| self.rules.pool_statistics == PoolStatistics::Kept) {
            let of_pools = &mut self.stats.reserved_bytes_by_private_pools;
            of_pools.entry(id).or_default().increase(kind, bytes);
        }
        if let Some(private) = self.private_pool_of(shelf) {
            private.reserved += bytes;
        }
    }

    /// Counts bytes that a pool returned to the device in one call.
    ///
    /// # Errors
    /// [`Hazard::PrivatePoolOverreleased`]; everything is counted nevertheless.
    pub(super) fn count_returned(&mut self, shelf: ShelfId, bytes: u64) -> Result<(), Hazard> {
        self.reserved -= bytes;
        let (kind, owner) = (self.pools[shelf].kind, self.pools.pool_of(shelf).owner());
        self.stats.reserved_bytes.decrease(kind, bytes);
        let of_pools = &mut self.stats.reserved_bytes_by_private_pools;
        if let Some(of_pool) = owner.and_then(|id| of_pools.get_mut(&id)) {
            of_pool.decrease(kind, bytes);
        }
        self.private_pool_of(shelf).map_or(Ok(()), |private| {
            private.reserved -= bytes;
            private.count_free()
        })
    }

    /// Counts and inserts a block that is a whole segment.
    pub(super) fn insert_segment(&mut self, mut block: Block) -> BlockId {
        let (size, kind) = (block.size, block.kind);
        block.rank = self.ranks.of_segment(block.addr, size);
        if let Some(private) = self.private_pool_of(block.shelf) {
            private.count_malloc();
        }
        self.count_reserved(block.shelf, size);
        self.stats.segment.increase(kind, 1);
        if self.settings.is_oversize(size) {
            self.stats.oversize_segments.increase(1);
        }
        self.blocks.insert(block)
    }

    /// Returns a segment, a free block that is not split, to the device.
    ///
    /// As in PyTorch, the call is counted and recorded even if the device fails; the block is then
    /// kept.
    pub(super) fn release_block(&mut self, id: BlockId) -> Result<(), Error> {
        let block = &self.blocks[id];
        let (addr, size, shelf, kind) = (block.addr, block.size, block.shelf, block.kind);
        if block.is_split() {
            return Err(Error::Hazard(Hazard::ReleaseOfSplitBlock {
                addr,
                bytes: size,
                is_head: block.prev.is_none(),
            }));
        }
        self.stats.num_device_free += 1;
        self.trace(Action::SegmentFree, shelf, addr, size);
        match self.source_of(shelf) {
            Some(source) => source.free(addr, size),
            None => self.driver.free(addr, size)?,
        }
        let counted = self.count_returned(shelf, size);
        self.stats.segment.decrease(kind, 1);
        if self.settings.is_oversize(size) {
            self.stats.oversize_segments.decrease(1);
        }
        self.pools.remove_block(&self.blocks, id);
        self.blocks.remove(id);
        Ok(counted?)
    }
}
