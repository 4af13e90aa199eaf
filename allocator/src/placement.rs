//! Offline placement: all buffers and their lifetimes are known, and each gets a fixed offset in one arena.
//!
//! ```text
//! offset
//!   ▲  ┌───────────┐┌─────────┐ ◄─ height
//!   │  │ 2         ││ 3       │
//!   │  ├─────┬─────┴┴──┬──────┘
//!   │  │ 0   │ 1       │
//!   └──┴─────┴─────────┴─────────► time
//! ```
//!
//! The problem is known as dynamic storage allocation: rectangles can be moved up and down, but not left or
//! right. No placement is lower than the peak of live bytes, the [`lower_bound`]. Finding the lowest
//! placement is NP-hard.

mod best_fit;
mod branch_and_bound;
mod budget;
mod check;
mod colouring;
mod first_fit;
mod local_search;
mod occupied;
mod order;
mod portfolio;
mod sections;
mod waiting;

use std::time::Duration;

use self::budget::Budget;
pub use self::check::Fault;
use self::portfolio::Best;
use self::sections::Problem;

/// Memory that is live from time `lower` until just before time `upper`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// Start of the life, in any unit of time.
    pub lower: u64,
    /// End of the life, exclusive. A buffer with `upper <= lower` is never live: it gets offset 0 and is
    /// otherwise ignored.
    pub upper: u64,
    /// Bytes, or any other unit of memory.
    pub size: u64,
}

impl Buffer {
    fn lives(&self) -> bool {
        self.lower < self.upper && self.size > 0
    }

    /// Whether both are live at some time.
    #[must_use]
    pub fn lives_with(&self, other: &Buffer) -> bool {
        self.lives() && other.lives() && self.lower < other.upper && other.lower < self.upper
    }
}

/// The effort that [`pack`] spends on the search for a lower placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Steps of search. The result depends only on the buffers and the steps.
    Steps(u64),
    /// Time. The result depends on the machine and its load.
    Time(Duration),
}

/// An offset for every buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The offset of each buffer, in the given order.
    pub offsets: Vec<u64>,
    /// The highest end of a buffer: the size of the arena.
    pub height: u64,
    /// The algorithm that found it.
    pub packer: &'static str,
}

impl Placement {
    /// Verifies that no two buffers that are live at the same time overlap, and that `height` is correct.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, buffers: &[Buffer]) -> Result<(), Fault> {
        check::check(self, buffers)
    }
}

/// The sizes of the buffers add up to 2^63 or more, so that offsets could overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the sizes of all buffers add up to 2^63 or more")]
pub struct TooLarge;

/// Places all buffers as low as possible with the given effort.
///
/// Tries several packers in turn and returns the lowest placement, or the first at the [`lower_bound`].
/// Packers without search are not interrupted: 10^5 buffers take about a second, whatever the effort.
///
/// Every offset is a sum of sizes: if all sizes are multiples of an alignment, so are all offsets.
///
/// # Errors
/// [`TooLarge`] if the sizes add up to 2^63 or more.
pub fn pack(buffers: &[Buffer], effort: Effort) -> Result<Placement, TooLarge> {
    pack_watched(buffers, effort, &mut |_| {})
}

/// Like [`pack`]; also calls `watch` with each placement that is lower than all before.
///
/// # Errors
/// [`TooLarge`] if the sizes add up to 2^63 or more.
pub fn pack_watched(
    buffers: &[Buffer],
    effort: Effort,
    watch: &mut dyn FnMut(&Placement),
) -> Result<Placement, TooLarge> {
    let sum = buffers
        .iter()
        .try_fold(0_u64, |sum, buffer| sum.checked_add(buffer.size));
    if sum.is_none_or(|sum| sum >= 1 << 63) {
        return Err(TooLarge);
    }
    let mut budget = Budget::new(effort);
    let indices: Vec<usize> = (0..buffers.len())
        .filter(|&index| buffers[index].lives())
        .collect();
    let living: Vec<Buffer> = indices.iter().map(|&index| buffers[index]).collect();
    let problem = Problem::new(&living);
    let mut best = Best::new(buffers.len(), indices, watch);
    portfolio::run(&problem, &mut budget, &mut best);
    Ok(best.placement)
}

/// Returns the peak of live bytes: no placement is lower.
#[must_use]
pub fn lower_bound(buffers: &[Buffer]) -> u64 {
    let mut changes: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * buffers.len());
    for buffer in buffers.iter().filter(|buffer| buffer.lives()) {
        changes.push((buffer.lower, true, buffer.size));
        changes.push((buffer.upper, false, buffer.size));
    }
    // At the same time, ends come before beginnings.
    changes.sort_unstable();
    let (mut live, mut most) = (0u64, 0);
    for (_, begins, size) in changes {
        if begins {
            live = live.saturating_add(size);
            most = live.max(most);
        } else {
            live = live.saturating_sub(size);
        }
    }
    most
}

#[cfg(test)]
mod tests;
