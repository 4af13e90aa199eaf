//! Checkpoints of private pools, which `torch.compile` needs for its trees of CUDA graphs.
//!
//! A checkpoint lists the blocks of each segment of a pool. Restoring it makes exactly those blocks allocated
//! that were allocated then: first every allocated block of the pool is freed; then each segment of the checkpoint
//! is cut into the blocks of the checkpoint, all of which are allocated; then those that were not allocated are
//! freed. These are ordinary frees and allocations, so statistics and the history show them. Segments that the pool
//! got after the checkpoint stay, free.
//!
//! PyTorch restores the segments whose first block is in use in an order that depends on heap addresses. Here the
//! order is that of their own addresses. The order decides peaks, the order of the history and, in 2.12, the order
//! of free blocks of one size.
//!
//! Source: PyTorch 2.11, `getCheckpointState`, `setCheckpointPoolState`, `freeBlocksAllocatedToPool`,
//! `setSegmentStateToCheckpoint`, `checkPoolLiveAllocations`.

use std::collections::{HashMap, HashSet};

use super::block::{Block, State};
use super::private_pool::PrivatePool;
use super::{BlockId, PyTorch, Request};
pub use crate::checkpoint::RestoredPool;
use crate::driver::{DeviceAddr, Driver};
use crate::error::{CheckpointError, Error, Hazard};
use crate::mempool::MempoolId;

/// Whether an expandable segment may have grown since the checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GrownSegment {
    /// It may not. Until 2.10.
    Refused,
    /// It may: its new memory stays, free. From 2.11 on.
    Restored,
}

/// The blocks of a private pool at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolCheckpoint {
    pool: MempoolId,
    /// The blocks of each segment, by address.
    segments: Vec<Vec<SavedBlock>>,
}

/// A block of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SavedBlock {
    addr: DeviceAddr,
    /// Bytes.
    size: u64,
    is_allocated: bool,
}

impl PoolCheckpoint {
    /// The pool.
    #[must_use]
    pub fn pool(&self) -> MempoolId {
        self.pool
    }

    /// The addresses that were allocated.
    pub fn allocated(&self) -> impl Iterator<Item = DeviceAddr> {
        let blocks = self.segments.iter().flatten();
        blocks.filter(|block| block.is_allocated).map(|b| b.addr)
    }
}

impl<D: Driver> PyTorch<D> {
    /// Records which blocks of a private pool are allocated (`getCheckpointState`). Deferred frees are processed
    /// first.
    ///
    /// # Errors
    /// [`CheckpointError::NothingToSave`] without such a pool; [`CheckpointError::WaitingWhenSaved`] if a freed
    /// block of the pool waits for other streams; [`Error::Driver`] if an event could not be recorded.
    pub fn checkpoint_pool(&mut self, id: MempoolId) -> Result<PoolCheckpoint, Error> {
        self.insert_deferred_events()?;
        let pool = self
            .private_pools
            .get(id)
            .ok_or(CheckpointError::NothingToSave)?;
        let mut segments = Vec::new();
        for head in self.heads_of(pool) {
            let saved = self.chain(head).map(|block| self.saved(block));
            segments.push(saved.collect::<Result<_, _>>()?);
        }
        Ok(PoolCheckpoint { pool: id, segments })
    }

    /// Makes exactly those blocks of a private pool allocated that were so at a checkpoint
    /// (`setCheckpointPoolState`).
    ///
    /// # Errors
    /// [`CheckpointError`] or [`Error::TooManyBlocks`]. The pool then stays as it was when the error was found, and
    /// all its allocations can be freed. [`Error::Driver`] if an event could not be recorded.
    pub fn restore_pool(&mut self, checkpoint: &PoolCheckpoint) -> Result<RestoredPool, Error> {
        if self.private_pools.is_freeable(checkpoint.pool) {
            return Err(CheckpointError::Released.into());
        }
        let pool = self
            .private_pools
            .get(checkpoint.pool)
            .ok_or(CheckpointError::NothingToRestore)?;
        let (small, large) = (pool.small, pool.large);
        let mut restored = RestoredPool::default();
        for head in self.heads_of(pool) {
            self.free_allocated(head, &mut restored.freed)?;
        }
        let free = [small, large].map(|pool| self.pools.free(&self.blocks, pool));
        let free = free.into_iter().flatten();
        let heads: HashMap<DeviceAddr, BlockId> =
            free.map(|id| (self.blocks[id].addr, id)).collect();
        for segment in &checkpoint.segments {
            let Some(first) = segment.first() else {
                continue;
            };
            let head = heads
                .get(&first.addr)
                .copied()
                .ok_or(CheckpointError::SegmentGone(first.addr))?;
            let head = self.allocate_as_saved(head, segment)?;
            self.free_as_saved(head, segment, &mut restored.allocated)?;
        }
        Ok(restored)
    }

    /// Whether the allocations of a private pool are exactly those at `expected` (`checkPoolLiveAllocations`).
    ///
    /// # Errors
    /// [`CheckpointError::NothingToSave`] without such a pool.
    pub fn pool_live_allocations_are(
        &self,
        id: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        let pool = self
            .private_pools
            .get(id)
            .ok_or(CheckpointError::NothingToSave)?;
        let live: HashSet<DeviceAddr> = self
            .blocks
            .iter()
            .map(|(_, block)| block)
            .filter(|b| b.is_allocated() && pool.has(self.pools[b.shelf].pool))
            .map(|block| block.addr)
            .collect();
        Ok(live == *expected)
    }
}

impl<D: Driver> PyTorch<D> {
    /// The first blocks of a pool's segments: those in use by address, then the free ones in search order.
    fn heads_of(&self, pool: &PrivatePool) -> Vec<BlockId> {
        let in_use = self
            .blocks
            .iter()
            .filter(|(_, block)| !block.is_idle())
            .filter(|(_, block)| pool.has(self.pools[block.shelf].pool));
        let mut heads: Vec<BlockId> = in_use.map(|(id, _)| id).collect();
        heads.sort_by_key(|&id| self.blocks[id].addr);
        for pool in [pool.small, pool.large] {
            heads.extend(self.pools.free(&self.blocks, pool));
        }
        heads.retain(|&id| self.blocks[id].prev.is_none());
        heads
    }

    /// A block and all blocks after it in its segment.
    fn chain(&self, head: BlockId) -> impl Iterator<Item = &Block> {
        let head = Some(&self.blocks[head]);
        std::iter::successors(head, |block| block.next.map(|next| &self.blocks[next]))
    }

    fn saved(&self, block: &Block) -> Result<SavedBlock, CheckpointError> {
        if block.state == State::Waiting {
            return Err(CheckpointError::WaitingWhenSaved);
        }
        Ok(SavedBlock {
            addr: block.addr,
            size: block.size,
            is_allocated: block.is_allocated(),
        })
    }

    /// Frees the allocated blocks of a segment and lists them.
    fn free_allocated(&mut self, head: BlockId, freed: &mut Vec<DeviceAddr>) -> Result<(), Error> {
        let mut next = Some(head);
        while let Some(id) = next {
            let block = &self.blocks[id];
            if block.is_allocated() {
                let addr = block.addr;
                freed.push(addr);
                self.free(addr)?;
            }
            next = self.blocks[id].next;
        }
        Ok(())
    }

    /// Cuts a free segment into the blocks of a checkpoint, all of them allocated. Returns the first one.
    fn allocate_as_saved(
        &mut self,
        head: BlockId,
        segment: &[SavedBlock],
    ) -> Result<BlockId, Error> {
        if !self.blocks.has_room() {
            return Err(Error::TooManyBlocks);
        }
        // The remainder of a split keeps the identity of the block.
        let (mut first, mut id) = (None, head);
        for (left, saved) in (0..segment.len()).rev().zip(segment) {
            if left == 0 && self.blocks[id].is_expandable() {
                self.ensure_tail(id)?;
                break;
            }
            let block = self.allocate_block_as(id, saved)?;
            first.get_or_insert(block);
            match self.blocks[block].next {
                Some(next) if left > 0 => id = next,
                None if left == 0 => {}
                _ => {
                    return Err(changed(
                        "(curr_block != nullptr) == ((i + 1) < (segment_len))",
                    ));
                }
            }
        }
        Ok(first.unwrap_or(head))
    }

    /// Allocates the start of a free block, whatever rules for splitting are in force. Unlike PyTorch, it leaves a block
    /// free that is too small.
    fn allocate_block_as(&mut self, id: BlockId, saved: &SavedBlock) -> Result<BlockId, Error> {
        let block = &self.blocks[id];
        if block.state != State::Free {
            return Err(Hazard::RestoreOfUsedBlock { addr: block.addr }.into());
        }
        if block.size < saved.size {
            return Err(changed("curr_block->size == block_state.size"));
        }
        let shelf = block.shelf;
        let request = Request {
            bytes: saved.size,
            size: saved.size,
            stream: self.pools[shelf].stream,
            shelf,
            segment_size: 0,
            expandable: block.is_expandable(),
        };
        let has_rest = block.size > saved.size;
        self.pools.remove_block(&self.blocks, id);
        let id = if has_rest {
            self.split(id, saved.size)
        } else {
            self.take_whole(id);
            id
        };
        self.hand_out(id, &request);
        Ok(id)
    }

    /// Frees the blocks of a segment that were not allocated at the checkpoint, and lists the others.
    fn free_as_saved(
        &mut self,
        head: BlockId,
        segment: &[SavedBlock],
        allocated: &mut Vec<DeviceAddr>,
    ) -> Result<(), Error> {
        let mut next = Some(head);
        for (left, saved) in (0..segment.len()).rev().zip(segment) {
            let Some(id) = next else {
                break;
            };
            if left == 0 && self.blocks[id].is_expandable() {
                break;
            }
            let addr = self.blocks[id].addr;
            if saved.is_allocated {
                allocated.push(addr);
            } else {
                self.free(addr)?;
                // Behind it, only new memory of the segment can be free. Before it can be a free block if it was not
                // mapped at the checkpoint.
                if self.blocks[id].addr != saved.addr {
                    return Err(changed("curr_block->ptr == block_state.ptr"));
                }
            }
            next = self.blocks[id].next;
        }
        Ok(())
    }

    /// Ensures that a block is the unmapped rest of an expandable segment, or a new block before it, which streams may
    /// still use.
    fn ensure_tail(&self, id: BlockId) -> Result<(), Error> {
        let block = &self.blocks[id];
        match self.rules.grown_segment {
            _ if self.is_tail(id) => Ok(()),
            GrownSegment::Restored if self.is_before_tail(id) => Ok(()),
            GrownSegment::Restored => Err(CheckpointError::TailGone.into()),
            GrownSegment::Refused if block.next.is_some() => {
                Err(changed("curr_block->next == nullptr"))
            }
            GrownSegment::Refused => Err(changed("!curr_block->mapped")),
        }
    }

    fn is_tail(&self, id: BlockId) -> bool {
        let block = &self.blocks[id];
        block.next.is_none() && !block.is_mapped()
    }

    fn is_before_tail(&self, id: BlockId) -> bool {
        let next = self.blocks[id].next;
        next.is_some_and(|next| self.is_tail(next))
    }
}

fn changed(expected: &'static str) -> Error {
    CheckpointError::Changed { expected }.into()
}
