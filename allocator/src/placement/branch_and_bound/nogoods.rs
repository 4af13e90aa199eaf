//! States of the search that are known to fail.

use super::floor::Floor;

/// A table of fixed size that keeps the newest state in each place.
///
/// States are compared by 64-bit fingerprints. A collision can cut off an unexplored part of the search: it
/// can cost a placement, but never makes one invalid.
pub(super) struct Nogoods(Vec<Nogood>);

#[derive(Clone, Copy)]
struct Nogood {
    fingerprint: u64,
    /// The search fails from this floor on. It may succeed from a lower one.
    floor: Floor,
}

impl Nogoods {
    const PLACES: usize = 1 << 17;

    pub(super) fn new() -> Self {
        let nothing = Nogood {
            fingerprint: 0,
            floor: Floor::HIGHEST,
        };
        Self(vec![nothing; Self::PLACES])
    }

    pub(super) fn contains(&self, fingerprint: u64, floor: Floor) -> bool {
        let known = self.0[Self::place(fingerprint)];
        known.fingerprint == fingerprint && known.floor.is_at_most(floor)
    }

    pub(super) fn insert(&mut self, fingerprint: u64, floor: Floor) {
        self.0[Self::place(fingerprint)] = Nogood { fingerprint, floor };
    }

    fn place(fingerprint: u64) -> usize {
        fingerprint as usize % Self::PLACES
    }
}
