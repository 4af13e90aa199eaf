//! A model of the driver's pool, for devices without one.
//!
//! Its rules and their sources:
//!
//! - A block freed on a stream can be reused at once on that stream. Other streams can reuse it if the
//!   work before the free is complete (`cudaMemPoolReuseAllowOpportunistic`), or by waiting for that work
//!   (`cudaMemPoolReuseAllowInternalDependencies`). Both are on by default (CUDA C++ Programming Guide
//!   12.9, "Stream Ordered Memory Allocator"). The third rule follows the program's own waits between
//!   streams, which a workload does not record.
//! - The pool grows by multiples of 32 MiB: the reserved memory in rapidsai/rmm#1245 is exactly 2518 times
//!   that.
//! - Above the release threshold, free memory is returned when the device is idle.
//! - A block used on other streams is free once they are done.
//! - Best fit in units of 512 bytes. Blocks of one chunk are merged; chunks are not. Some say that the pool
//!   remaps pages to merge free ranges, but users see otherwise: pytorch/pytorch#110194 fails for 0.7 GiB
//!   with 25 GiB free.
//!
//! Calls cost nothing but the driver calls for chunks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, EventId, PoolSettings, StreamId};
use crate::policy::fence::{Fence, Fences};
use crate::policy::{Block, Policy, Refusal, malloc_or_retry};

/// Granularity of chunks in bytes.
const GROWTH: u64 = 32 << 20;

/// A part of a chunk.
#[derive(Debug)]
struct Piece {
    bytes: u64,
    /// Its chunk.
    chunk: DeviceAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Live, with the other streams that use it.
    Used { users: Vec<StreamId> },
    /// Free for requests on its stream.
    Free { stream: StreamId },
    /// Freed on its stream, but other streams may use it until these events.
    Fenced { stream: StreamId, fence: Fence },
}

impl State {
    fn is_free_for(&self, stream: StreamId) -> bool {
        matches!(self, Self::Free { stream: own } if *own == stream)
    }
}

/// See the [module](self).
///
/// Invariants: the pieces of a chunk cover it without gaps; no two neighbours in a chunk are free for the
/// same stream; `free` holds exactly the free pieces.
#[derive(Debug)]
pub(super) struct Model {
    settings: PoolSettings,
    /// Bytes of the chunks by address.
    chunks: BTreeMap<DeviceAddr, u64>,
    /// Bytes of all chunks.
    held: u64,
    pieces: BTreeMap<DeviceAddr, Piece>,
    free: BTreeSet<(StreamId, u64, DeviceAddr)>,
    fenced: BTreeSet<DeviceAddr>,
    /// An event for each stream, to query its progress.
    ends: HashMap<StreamId, EventId>,
    fences: Fences,
}

impl Model {
    pub(super) fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            chunks: BTreeMap::new(),
            held: 0,
            pieces: BTreeMap::new(),
            free: BTreeSet::new(),
            fenced: BTreeSet::new(),
            ends: HashMap::new(),
            fences: Fences::default(),
        }
    }

    /// Returns the smallest large enough piece that is free for `stream`.
    fn best_fit(&self, stream: StreamId, bytes: u64) -> Option<DeviceAddr> {
        let from = (stream, bytes, DeviceAddr::NULL);
        let (own, _, addr) = self.free.range(from..).next()?;
        (*own == stream).then_some(*addr)
    }

    /// Returns the best fit among the pieces of other streams.
    fn best_fit_elsewhere(&self, stream: StreamId, bytes: u64) -> Option<(StreamId, DeviceAddr)> {
        let elsewhere = self.free.iter().filter(|&&(own, ..)| own != stream);
        let fitting = elsewhere.filter(|&&(_, size, _)| size >= bytes);
        fitting
            .min_by_key(|&&(_, size, addr)| (size, addr))
            .map(|&(own, _, addr)| (own, addr))
    }

    /// Takes the first `bytes` of a free piece. The rest is free for `stream`.
    fn take(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Block {
        self.set_free(addr, None);
        if let Some(piece) = self.pieces.get_mut(&addr) {
            let rest = piece.bytes - bytes;
            let chunk = piece.chunk;
            piece.bytes = bytes;
            piece.state = State::Used { users: Vec::new() };
            if rest > 0 {
                let state = State::Used { users: Vec::new() };
                let after = addr.offset(bytes);
                let piece = Piece {
                    bytes: rest,
                    chunk,
                    state,
                };
                self.pieces.insert(after, piece);
                self.release(after, stream);
            }
        }
        Block {
            addr,
            bytes,
            stream,
        }
    }

    /// Makes a piece free for a stream, or for none, and updates the index.
    fn set_free(&mut self, addr: DeviceAddr, stream: Option<StreamId>) {
        let Some(piece) = self.pieces.get_mut(&addr) else {
            return;
        };
        if let State::Free { stream } = piece.state {
            self.free.remove(&(stream, piece.bytes, addr));
        }
        if let Some(stream) = stream {
            piece.state = State::Free { stream };
            self.free.insert((stream, piece.bytes, addr));
        }
    }

    /// Makes a piece free for its stream and merges it with neighbours that are free for it.
    fn release(&mut self, addr: DeviceAddr, stream: StreamId) {
        self.set_free(addr, Some(stream));
        if let Some((&after, _)) = self.pieces.range(addr.offset(1)..).next() {
            self.join(addr, after, stream);
        }
        if let Some((&before, _)) = self.pieces.range(..addr).next_back() {
            self.join(before, addr, stream);
        }
    }

    /// Merges two neighbours of one chunk if both are free for `stream`.
    fn join(&mut self, first: DeviceAddr, second: DeviceAddr, stream: StreamId) {
        let (Some(a), Some(b)) = (self.pieces.get(&first), self.pieces.get(&second)) else {
            return;
        };
        let both_free = a.state.is_free_for(stream) && b.state.is_free_for(stream);
        if a.chunk != b.chunk || !both_free {
            return;
        }
        let bytes = b.bytes;
        self.free.remove(&(stream, a.bytes, first));
        self.free.remove(&(stream, bytes, second));
        self.pieces.remove(&second);
        if let Some(piece) = self.pieces.get_mut(&first) {
            piece.bytes += bytes;
            self.free.insert((stream, piece.bytes, first));
        }
    }

    /// Frees the fenced pieces that no other stream uses any more.
    fn lift_fences(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        let fenced: Vec<DeviceAddr> = self.fenced.iter().copied().collect();
        for addr in fenced {
            let Some(piece) = self.pieces.get_mut(&addr) else {
                continue;
            };
            let State::Fenced { stream, ref fence } = piece.state else {
                continue;
            };
            if !fence.is_over(device)? {
                continue;
            }
            let used = State::Used { users: Vec::new() };
            if let State::Fenced { fence, .. } = std::mem::replace(&mut piece.state, used) {
                self.fences.take_down(fence);
            }
            self.fenced.remove(&addr);
            self.release(addr, stream);
        }
        Ok(())
    }

    /// Records an event at the end of a stream's work. Returns whether the work is complete, and the event.
    fn is_over(
        &mut self,
        device: &mut dyn Driver,
        stream: StreamId,
    ) -> Result<(bool, EventId), Refusal> {
        let event = match self.ends.get(&stream) {
            Some(&event) => event,
            None => device.create_event()?,
        };
        self.ends.insert(stream, event);
        device.record_event(event, stream)?;
        Ok((device.event_is_complete(event)?, event))
    }

    /// Whether `follower` can reuse memory of another stream: its work is complete, or `follower` now waits
    /// for it, as the settings allow.
    fn may_follow(
        &mut self,
        device: &mut dyn Driver,
        follower: StreamId,
        stream: StreamId,
    ) -> Result<bool, Refusal> {
        let (over, end) = self.is_over(device, stream)?;
        if over && self.settings.reuse_opportunistic {
            return Ok(true);
        }
        if self.settings.reuse_internal_dependencies {
            device.wait_event(follower, end)?;
        }
        Ok(self.settings.reuse_internal_dependencies)
    }

    fn grow(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DeviceAddr, Refusal> {
        let chunk_bytes = bytes.next_multiple_of(GROWTH);
        let addr = malloc_or_retry(device, chunk_bytes, |device| {
            device.synchronize_device()?;
            self.lift_fences(device)?;
            self.trim(device, 0)
        })?;
        self.chunks.insert(addr, chunk_bytes);
        self.held += chunk_bytes;
        let state = State::Used { users: Vec::new() };
        let piece = Piece {
            bytes: chunk_bytes,
            chunk: addr,
            state,
        };
        self.pieces.insert(addr, piece);
        self.set_free(addr, Some(stream));
        Ok(addr)
    }

    /// Returns free chunks to the device until at most `keep` bytes are reserved. No stream uses them.
    fn trim(&mut self, device: &mut dyn Driver, keep: u64) -> Result<(), Refusal> {
        let chunks: Vec<(DeviceAddr, u64)> = self.chunks.iter().map(|(&a, &b)| (a, b)).collect();
        for (addr, bytes) in chunks {
            if self.held <= keep || !self.is_all_free(addr, bytes) {
                continue;
            }
            device.free(addr, bytes)?;
            let end = addr.offset(bytes);
            let inside: Vec<DeviceAddr> = self.pieces.range(addr..end).map(|(&a, _)| a).collect();
            for piece in inside {
                self.set_free(piece, None);
                self.pieces.remove(&piece);
            }
            self.chunks.remove(&addr);
            self.held -= bytes;
        }
        Ok(())
    }

    fn is_all_free(&self, chunk: DeviceAddr, bytes: u64) -> bool {
        let mut inside = self.pieces.range(chunk..chunk.offset(bytes));
        inside.all(|(_, piece)| matches!(piece.state, State::Free { .. }))
    }

    /// Whether the work of all streams that have free pieces is complete.
    fn is_idle(&mut self, device: &mut dyn Driver) -> Result<bool, Refusal> {
        let streams: BTreeSet<StreamId> = self.free.iter().map(|&(stream, ..)| stream).collect();
        for stream in streams {
            if !self.is_over(device, stream)?.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Policy for Model {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        self.lift_fences(device)?;
        if self.held > self.settings.release_threshold && self.is_idle(device)? {
            self.trim(device, self.settings.release_threshold)?;
        }
        if let Some(addr) = self.best_fit(stream, bytes) {
            return Ok(self.take(addr, bytes, stream));
        }
        if let Some((other, addr)) = self.best_fit_elsewhere(stream, bytes)
            && self.may_follow(device, stream, other)?
        {
            return Ok(self.take(addr, bytes, stream));
        }
        let addr = self.grow(device, bytes, stream)?;
        Ok(self.take(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        let stream = block.stream;
        let users = match self.pieces.get(&block.addr) {
            Some(Piece {
                state: State::Used { users },
                ..
            }) => users.clone(),
            _ => Vec::new(),
        };
        if users.is_empty() {
            self.release(block.addr, stream);
            return Ok(());
        }
        let fence = self.fences.raise(device, &users)?;
        if let Some(piece) = self.pieces.get_mut(&block.addr) {
            piece.state = State::Fenced { stream, fence };
            self.fenced.insert(block.addr);
        }
        Ok(())
    }

    fn record_stream(
        &mut self,
        _: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        if let Some(piece) = self.pieces.get_mut(&block.addr)
            && let State::Used { users } = &mut piece.state
            && !users.contains(&stream)
        {
            users.push(stream);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        device.synchronize_device()?;
        self.lift_fences(device)?;
        self.trim(device, 0)
    }

    fn check(&self) -> Result<(), Violation> {
        for (&chunk, &bytes) in &self.chunks {
            let mut end = chunk;
            for (&addr, piece) in self.pieces.range(chunk..chunk.offset(bytes)) {
                ensure!(addr == end, "gap or overlap at {addr}");
                ensure!(piece.chunk == chunk, "{addr} is in another chunk");
                end = addr.offset(piece.bytes);
            }
            ensure!(end == chunk.offset(bytes), "chunk {chunk} is not covered");
        }
        let free = self
            .pieces
            .iter()
            .filter_map(|(&addr, piece)| match piece.state {
                State::Free { stream } => Some((stream, piece.bytes, addr)),
                _ => None,
            });
        let free: BTreeSet<_> = free.collect();
        ensure!(
            free == self.free,
            "the index does not hold exactly the free pieces"
        );
        for &(stream, bytes, addr) in &self.free {
            let next = addr.offset(bytes);
            let touching = self.pieces.get(&next).zip(self.pieces.get(&addr));
            let apart =
                touching.is_none_or(|(b, a)| a.chunk != b.chunk || !b.state.is_free_for(stream));
            ensure!(apart, "{addr} and {next} are not merged");
        }
        Ok(())
    }
}
