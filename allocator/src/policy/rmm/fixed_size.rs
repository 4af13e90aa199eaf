//! Blocks of one size, split from a pool 128 at a time.
//!
//! The free blocks of a stream form a queue: the block freed longest ago is next. Blocks are never merged,
//! and they are returned to the pool only when the cache is emptied.
//!
//! Source: librmm 26.10, `fixed_size_memory_resource` and `mr/detail/fixed_size_free_list.hpp`. RMM does
//! not record the stream's event when it takes blocks from the pool, so a third stream could use them
//! before work that the pool made the stream wait for is complete. Here the event is recorded before
//! another stream waits for it.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::stream_ordered::{FreeList, Seat, StreamOrdered};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::policy::rmm_pool::RmmPool;
use crate::policy::{Block, Policy, Served};

/// Blocks in a chunk.
const BLOCKS_IN_A_CHUNK: u64 = 128;

/// Free blocks of one size, the next one first.
#[derive(Debug, Default)]
struct Queue(VecDeque<DeviceAddr>);

impl FreeList for Queue {
    type Block = DeviceAddr;

    fn can_serve(&self, _: u64) -> bool {
        !self.0.is_empty()
    }

    fn take(&mut self, _: u64) -> Option<DeviceAddr> {
        self.0.pop_front()
    }

    fn insert(&mut self, block: DeviceAddr) {
        self.0.push_back(block);
    }

    fn absorb(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(in crate::policy) struct FixedSize {
    /// Bytes of every block: a multiple of 256.
    block_bytes: u64,
    /// Chunks taken from the pool, by address.
    chunks: BTreeMap<DeviceAddr, Block>,
    free: StreamOrdered<Queue>,
}

impl FixedSize {
    /// An empty bin of blocks of `block_bytes`.
    pub(in crate::policy) fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            chunks: BTreeMap::new(),
            free: StreamOrdered::default(),
        }
    }

    /// Bytes of every block.
    pub(in crate::policy) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Takes the first chunk if there is none yet.
    pub(in crate::policy) fn begin(
        &mut self,
        device: &mut dyn Driver,
        pool: &mut RmmPool,
    ) -> Served {
        if self.chunks.is_empty() {
            let seat = self.free.seat(device, StreamId::DEFAULT)?;
            self.add_chunk(device, pool, seat, StreamId::DEFAULT)?;
        }
        Ok(())
    }

    /// Takes a block for work on `stream`.
    pub(in crate::policy) fn malloc(
        &mut self,
        device: &mut dyn Driver,
        pool: &mut RmmPool,
        stream: StreamId,
    ) -> Served<Block> {
        let bytes = self.block_bytes;
        let seat = self.free.seat(device, stream)?;
        loop {
            if let Some(addr) = self.free.take(device, seat, bytes)? {
                return Ok(Block::new(addr, bytes, stream));
            }
            self.add_chunk(device, pool, seat, stream)?;
        }
    }

    fn add_chunk(
        &mut self,
        device: &mut dyn Driver,
        pool: &mut RmmPool,
        seat: Seat,
        stream: StreamId,
    ) -> Served {
        let bytes = self.block_bytes * BLOCKS_IN_A_CHUNK;
        let chunk = pool.malloc(device, bytes, stream)?;
        self.chunks.insert(chunk.addr, chunk);
        for index in 0..BLOCKS_IN_A_CHUNK {
            let block = chunk.addr.offset(index * self.block_bytes);
            self.free.insert_used(seat, block);
        }
        Ok(())
    }

    /// Frees a block of [`FixedSize::malloc`].
    pub(in crate::policy) fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        self.free.give_back(device, block.stream, block.addr)
    }

    /// Returns the chunks without a block in use to the pool.
    pub(in crate::policy) fn return_idle_chunks(
        &mut self,
        device: &mut dyn Driver,
        pool: &mut RmmPool,
    ) -> Served {
        let idle = self.idle_chunks();
        if !idle.is_empty() {
            self.free.synchronize(device)?;
        }
        for chunk in idle {
            pool.free(device, chunk)?;
            self.chunks.remove(&chunk.addr);
            for queue in self.free.lists_mut() {
                queue.0.retain(|&block| !is_inside(block, chunk));
            }
        }
        if self.chunks.is_empty() {
            self.free.forget();
        }
        Ok(())
    }

    fn idle_chunks(&self) -> Vec<Block> {
        let free_blocks_in = |chunk: Block| {
            let free = self.free.lists().flat_map(|queue| &queue.0);
            free.filter(|&&block| is_inside(block, chunk)).count() as u64
        };
        let chunks = self.chunks.values().copied();
        chunks
            .filter(|&chunk| free_blocks_in(chunk) == BLOCKS_IN_A_CHUNK)
            .collect()
    }

    /// Verifies that every free block belongs to a chunk and is listed once.
    pub(in crate::policy) fn check(&self) -> Result<(), Violation> {
        let mut seen = HashSet::new();
        for &block in self.free.lists().flat_map(|queue| &queue.0) {
            ensure!(seen.insert(block), "free block {block} is listed twice");
            let chunk = self.chunks.range(..=block).next_back();
            let is_cut = chunk.is_some_and(|(addr, &chunk)| {
                let into = block.offset_from(*addr);
                is_inside(block, chunk) && into.is_multiple_of(self.block_bytes)
            });
            ensure!(is_cut, "free block {block} is in no chunk");
        }
        Ok(())
    }
}

fn is_inside(block: DeviceAddr, chunk: Block) -> bool {
    (chunk.addr..chunk.addr.offset(chunk.bytes)).contains(&block)
}
