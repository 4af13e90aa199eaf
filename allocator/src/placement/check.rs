//! Verifies placements.

use std::collections::BTreeMap;

use super::{Buffer, Placement};

/// A fault of a placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// The number of offsets differs from the number of buffers.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// Number of offsets.
        offsets: usize,
        /// Number of buffers.
        buffers: usize,
    },
    /// Two buffers, given by their indexes, overlap while both are live.
    #[error("buffers {0} and {1} share memory while both are live")]
    Overlap(usize, usize),
    /// The height is not the highest end of a buffer.
    #[error("the height is {given}, but the highest end of a buffer is {actual}")]
    Height {
        /// The height of the placement.
        given: u64,
        /// The highest end of a buffer.
        actual: u64,
    },
}

/// Sweeps through time and keeps the live buffers sorted by offset: a new one must fit between its
/// neighbours.
pub(super) fn check(placement: &Placement, buffers: &[Buffer]) -> Result<(), Fault> {
    let offsets = &placement.offsets;
    if offsets.len() != buffers.len() {
        return Err(Fault::Count {
            offsets: offsets.len(),
            buffers: buffers.len(),
        });
    }
    let mut changes = Vec::with_capacity(2 * buffers.len());
    let mut height = 0;
    for (index, buffer) in buffers.iter().enumerate().filter(|(_, b)| b.lives()) {
        changes.push((buffer.lower, true, index));
        changes.push((buffer.upper, false, index));
        height = offsets[index].saturating_add(buffer.size).max(height);
    }
    // At the same time, ends come before beginnings.
    changes.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    let end = |index: usize| offsets[index].saturating_add(buffers[index].size);
    for (_, begins, index) in changes {
        let offset = offsets[index];
        if !begins {
            live.remove(&offset);
            continue;
        }
        let below = live.range(..=offset).next_back();
        let below = below.filter(|&(_, &below)| end(below) > offset);
        let above = live.range(offset..end(index)).next();
        if let Some((_, &other)) = below.or(above) {
            return Err(Fault::Overlap(other.min(index), other.max(index)));
        }
        live.insert(offset, index);
    }
    if height != placement.height {
        return Err(Fault::Height {
            given: placement.height,
            actual: height,
        });
    }
    Ok(())
}
