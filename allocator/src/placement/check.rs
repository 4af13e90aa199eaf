//! Whether a placement is one.

use std::collections::BTreeMap;

use super::{Buffer, Placement};

/// What is wrong with a placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// There are more or fewer offsets than buffers.
    #[error("{offsets} offsets for {buffers} buffers")]
    Count {
        /// How many offsets.
        offsets: usize,
        /// How many buffers.
        buffers: usize,
    },
    /// Two buffers, by their indices, share memory while both live.
    #[error("buffers {0} and {1} share memory while both live")]
    Overlap(usize, usize),
    /// The height is not the highest end of a buffer.
    #[error("the height is {said}, but the highest end of a buffer is {is}")]
    Height {
        /// What the placement says.
        said: u64,
        /// What it is.
        is: u64,
    },
}

/// Goes through time and keeps what lives in the order of offsets: whoever comes must fit between
/// its neighbours.
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
    // What ends at a moment ends before anything begins at it.
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
            said: placement.height,
            is: height,
        });
    }
    Ok(())
}
