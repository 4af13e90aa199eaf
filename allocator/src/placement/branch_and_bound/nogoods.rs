//! States of the search that are known to lead nowhere.

use super::floor::Floor;

/// A table of a fixed size, in which the newest of several states with one place is kept.
///
/// States are compared by 64-bit fingerprints. Two that differ and have the same one would cut off a
/// part of the search that had not been looked at: this can cost a placement, never its validity.
pub(super) struct Nogoods(Vec<Nogood>);

#[derive(Clone, Copy)]
struct Nogood {
    fingerprint: u64,
    /// From here on there is no way; from a lower floor on there might be.
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
