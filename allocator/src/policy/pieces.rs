//! Device allocations split into pieces, with best fit among the free ones.
//!
//! The pieces of an allocation are its [`chunks`](super::chunks). Pieces of different allocations are never
//! neighbours, even if their addresses touch: an allocation can only be returned as a whole.
//!
//! Free pieces belong to arenas, which separate what the policy separates: streams, small and large
//! requests. An allocation belongs to one arena.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::chunks::{Chunk, Chunks, Owner};
use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;

/// What a piece belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place<A> {
    arena: A,
    /// Order among free pieces of equal size: lowest rank first, then lowest address.
    rank: u64,
}

/// Merged pieces have the rank of the lowest one.
impl<A: Copy + Eq> Owner for Place<A> {
    fn merged_with(self, _: Self) -> Self {
        self
    }
}

/// A free piece, in search order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FreePiece<A> {
    arena: A,
    bytes: u64,
    rank: u64,
    addr: DeviceAddr,
}

impl<A: Copy> FreePiece<A> {
    fn new(addr: DeviceAddr, piece: &Chunk<Place<A>>) -> Self {
        let Place { arena, rank } = piece.owner;
        Self {
            arena,
            bytes: piece.bytes,
            rank,
            addr,
        }
    }
}

/// All pieces of all allocations.
#[derive(Clone, Debug)]
pub(super) struct Pieces<A> {
    chunks: Chunks<Place<A>>,
    free: BTreeSet<FreePiece<A>>,
}

impl<A> Default for Pieces<A> {
    fn default() -> Self {
        Self {
            chunks: Chunks::default(),
            free: BTreeSet::new(),
        }
    }
}

impl<A: Copy + Ord + Debug> Pieces<A> {
    /// Adds an allocation of `bytes` as one piece in use.
    pub(super) fn add(&mut self, allocation: DeviceAddr, bytes: u64, arena: A, rank: u64) {
        let piece = Chunk {
            bytes,
            in_use: true,
            owner: Place { arena, rank },
        };
        self.chunks.add_region(allocation, piece);
    }

    /// Takes the smallest free piece of an arena with at least `bytes`. Returns its address and size.
    pub(super) fn take_best_fit(&mut self, arena: A, bytes: u64) -> Option<(DeviceAddr, u64)> {
        let least = FreePiece {
            arena,
            bytes,
            rank: 0,
            addr: DeviceAddr::NULL,
        };
        let best = *self.free.range(least..).next()?;
        if best.arena != arena {
            return None;
        }
        self.free.remove(&best);
        self.chunks.get_mut(best.addr)?.in_use = true;
        Some((best.addr, best.bytes))
    }

    /// Splits a piece in use after its first `bytes`. The rest is in use, too, and gets `rank`. Returns
    /// the start of the rest.
    pub(super) fn cut(&mut self, addr: DeviceAddr, bytes: u64, rank: u64) -> DeviceAddr {
        let rest = self.chunks.cut(addr, bytes);
        if let Some(piece) = self.chunks.get_mut(rest) {
            piece.owner.rank = rank;
        }
        rest
    }

    /// Frees a piece in use and merges it with its free neighbours.
    pub(super) fn free(&mut self, addr: DeviceAddr) {
        let Some(piece) = self.chunks.get_mut(addr) else {
            return;
        };
        piece.in_use = false;
        let free = &mut self.free;
        let start = self.chunks.coalesce(addr, |neighbour, piece| {
            free.remove(&FreePiece::new(neighbour, piece));
        });
        if let Some(piece) = self.chunks.get(start) {
            self.free.insert(FreePiece::new(start, piece));
        }
    }

    /// The allocation of a piece in use, with its bytes, if its other pieces are free.
    pub(super) fn would_be_idle_without(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        let here = self.chunks.get(addr)?.bytes;
        let (first, below) = match self.chunks.prev(addr) {
            Some((prev, piece)) if !piece.in_use => (prev, piece.bytes),
            _ => (addr, 0),
        };
        let (last, above) = match self.chunks.next(addr) {
            Some((next, piece)) if !piece.in_use => (next, piece.bytes),
            _ => (addr, 0),
        };
        let is_whole = self.chunks.prev(first).is_none() && self.chunks.next(last).is_none();
        is_whole.then_some((first, below + here + above))
    }

    /// Returns the allocations without a piece in use, with their bytes, in search order.
    pub(super) fn idle_allocations(&self) -> Vec<(DeviceAddr, u64)> {
        let is_whole = |free: &&FreePiece<A>| {
            self.chunks.prev(free.addr).is_none() && self.chunks.next(free.addr).is_none()
        };
        let idle = self.free.iter().filter(is_whole);
        idle.map(|free| (free.addr, free.bytes)).collect()
    }

    /// Removes an allocation with all its pieces.
    pub(super) fn remove(&mut self, allocation: DeviceAddr) {
        let mut at = self.chunks.get(allocation).map(|piece| (allocation, piece));
        while let Some((addr, piece)) = at {
            self.free.remove(&FreePiece::new(addr, piece));
            at = self.chunks.next(addr);
        }
        self.chunks.remove_region(allocation);
    }

    /// The bytes of all allocations.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.bytes()
    }

    /// Verifies that
    /// - the pieces are [chunks](Chunks::check) of whole units, and those of an allocation have the same arena;
    /// - the search index holds exactly the free pieces.
    ///
    /// # Errors
    /// The first broken invariant.
    pub(super) fn check(&self, unit: u64) -> Result<(), Violation> {
        self.chunks.check(unit)?;
        let mut free = BTreeSet::new();
        for (addr, piece) in self.chunks.iter() {
            let next = self.chunks.next(addr);
            ensure!(
                next.is_none_or(|(_, next)| next.owner.arena == piece.owner.arena),
                "the piece at {addr} has another arena than the next one"
            );
            if !piece.in_use {
                free.insert(FreePiece::new(addr, piece));
            }
        }
        ensure!(
            free == self.free,
            "free pieces {free:?}, listed {:?}",
            self.free
        );
        Ok(())
    }
}
