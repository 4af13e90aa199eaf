//! Device allocations split into pieces, with best fit among the free ones.
//!
//! The pieces of an allocation cover it without gap or overlap, and no two neighbours are free. Pieces of
//! different allocations are never neighbours, even if their addresses touch: an allocation can only be
//! returned as a whole.
//!
//! Free pieces belong to arenas, which separate what the policy separates: streams, small and large
//! requests. An allocation belongs to one arena.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::check::{Violation, ensure};
use crate::driver::DeviceAddr;

/// A part of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece<A> {
    bytes: u64,
    /// Order among free pieces of equal size: lowest rank first, then lowest address.
    rank: u64,
    arena: A,
    /// Start of its allocation.
    allocation: DeviceAddr,
    is_free: bool,
}

/// A free piece, in search order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FreePiece<A> {
    arena: A,
    bytes: u64,
    rank: u64,
    addr: DeviceAddr,
}

/// All pieces of all allocations.
#[derive(Clone, Debug)]
pub(super) struct Pieces<A> {
    by_addr: BTreeMap<DeviceAddr, Piece<A>>,
    free: BTreeSet<FreePiece<A>>,
}

impl<A> Default for Pieces<A> {
    fn default() -> Self {
        Self {
            by_addr: BTreeMap::new(),
            free: BTreeSet::new(),
        }
    }
}

impl<A: Copy + Ord> Pieces<A> {
    /// Adds an allocation of `bytes` as one piece in use.
    pub(super) fn add(&mut self, allocation: DeviceAddr, bytes: u64, arena: A, rank: u64) {
        let piece = Piece {
            bytes,
            rank,
            arena,
            allocation,
            is_free: false,
        };
        self.by_addr.insert(allocation, piece);
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
        self.by_addr.get_mut(&best.addr)?.is_free = false;
        Some((best.addr, best.bytes))
    }

    /// Splits a piece in use after its first `bytes`. The rest is in use, too, and gets `rank`. Returns
    /// the start of the rest.
    pub(super) fn cut(&mut self, addr: DeviceAddr, bytes: u64, rank: u64) -> DeviceAddr {
        let rest = addr.offset(bytes);
        if let Some(front) = self.by_addr.get_mut(&addr) {
            let back = Piece {
                bytes: front.bytes - bytes,
                rank,
                ..*front
            };
            front.bytes = bytes;
            self.by_addr.insert(rest, back);
        }
        rest
    }

    /// Frees a piece in use and merges it with its free neighbours. The merged piece has the rank of the
    /// lowest one.
    pub(super) fn free(&mut self, addr: DeviceAddr) {
        let Some(&(mut piece)) = self.by_addr.get(&addr) else {
            return;
        };
        let mut start = addr;
        if let Some((next, following)) = self.next(addr)
            && following.is_free
        {
            self.forget(next);
            piece.bytes += following.bytes;
        }
        if let Some((prev, preceding)) = self.prev(addr)
            && preceding.is_free
        {
            self.forget(prev);
            self.by_addr.remove(&addr);
            piece.bytes += preceding.bytes;
            piece.rank = preceding.rank;
            start = prev;
        }
        piece.is_free = true;
        self.by_addr.insert(start, piece);
        self.free.insert(FreePiece::new(start, &piece));
    }

    /// The allocation of a piece in use, with its bytes, if its other pieces are free.
    pub(super) fn would_be_idle_without(&self, addr: DeviceAddr) -> Option<(DeviceAddr, u64)> {
        let here = *self.by_addr.get(&addr)?;
        let is_free = |(_, piece): &(DeviceAddr, Piece<A>)| piece.is_free;
        let (first, below) = match self.prev(addr).filter(is_free) {
            Some((prev, piece)) => (prev, piece.bytes),
            None => (addr, 0),
        };
        let (last, above) = match self.next(addr).filter(is_free) {
            Some((next, piece)) => (next, piece.bytes),
            None => (addr, 0),
        };
        let is_whole = first == here.allocation && self.next(last).is_none();
        is_whole.then_some((first, below + here.bytes + above))
    }

    /// Returns the allocations without a piece in use, with their bytes.
    pub(super) fn idle_allocations(&self) -> Vec<(DeviceAddr, u64)> {
        let is_whole =
            |free: &&FreePiece<A>| self.prev(free.addr).is_none() && self.next(free.addr).is_none();
        let idle = self.free.iter().filter(is_whole);
        idle.map(|free| (free.addr, free.bytes)).collect()
    }

    /// Removes an allocation with all its pieces.
    pub(super) fn remove(&mut self, allocation: DeviceAddr) {
        let mut at = Some(allocation);
        while let Some(addr) = at {
            at = self.next(addr).map(|(next, _)| next);
            self.forget(addr);
        }
    }

    /// Verifies that
    /// - the pieces of an allocation follow one another without gap and have the same arena;
    /// - no two free pieces are neighbours;
    /// - the search index holds exactly the free pieces.
    ///
    /// # Errors
    /// The first broken invariant.
    pub(super) fn check(&self) -> Result<(), Violation> {
        let mut before: Option<(DeviceAddr, &Piece<A>)> = None;
        let mut free = 0;
        for (&addr, piece) in &self.by_addr {
            ensure!(piece.bytes > 0, "the piece at {addr} is empty");
            match before.filter(|(_, other)| other.allocation == piece.allocation) {
                Some((start, other)) => {
                    ensure!(
                        start.offset(other.bytes) == addr,
                        "gap or overlap before the piece at {addr}"
                    );
                    ensure!(
                        other.arena == piece.arena,
                        "the piece at {addr} has another arena than its neighbour"
                    );
                    ensure!(
                        !(other.is_free && piece.is_free),
                        "the free pieces at {start} and {addr} are not merged"
                    );
                }
                None => ensure!(
                    piece.allocation == addr,
                    "the first piece at {addr} is not at the start of its allocation"
                ),
            }
            if piece.is_free {
                free += 1;
                ensure!(
                    self.free.contains(&FreePiece::new(addr, piece)),
                    "the free piece at {addr} is not in the index"
                );
            }
            before = Some((addr, piece));
        }
        ensure!(
            self.free.len() == free,
            "{} free pieces in the index, expected {free}",
            self.free.len()
        );
        Ok(())
    }

    /// Returns the previous piece of the same allocation.
    fn prev(&self, addr: DeviceAddr) -> Option<(DeviceAddr, Piece<A>)> {
        let here = self.by_addr.get(&addr)?;
        let (&prev, &piece) = self.by_addr.range(..addr).next_back()?;
        (piece.allocation == here.allocation).then_some((prev, piece))
    }

    /// Returns the next piece of the same allocation.
    fn next(&self, addr: DeviceAddr) -> Option<(DeviceAddr, Piece<A>)> {
        let here = self.by_addr.get(&addr)?;
        let next = addr.offset(here.bytes);
        let piece = *self.by_addr.get(&next)?;
        (piece.allocation == here.allocation).then_some((next, piece))
    }

    /// Removes one piece.
    fn forget(&mut self, addr: DeviceAddr) {
        if let Some(piece) = self.by_addr.remove(&addr) {
            self.free.remove(&FreePiece::new(addr, &piece));
        }
    }
}

impl<A: Copy> FreePiece<A> {
    fn new(addr: DeviceAddr, piece: &Piece<A>) -> Self {
        Self {
            arena: piece.arena,
            bytes: piece.bytes,
            rank: piece.rank,
            addr,
        }
    }
}
