//! Offline placement: every buffer and its lifetime are known before the first one needs memory, and
//! all get a fixed offset in one arena.
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
//! The problem is known as dynamic storage allocation: rectangles that may be moved up and down but
//! not left or right. No placement is lower than the most bytes that live at one moment, the
//! [`lower_bound`]; to find the lowest is NP-hard.

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

/// Memory that is needed from the moment `lower` until just before the moment `upper`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// The first moment, in any unit.
    pub lower: u64,
    /// The moment after the last. A buffer with `upper <= lower` never lives: it gets offset 0
    /// and counts for nothing.
    pub upper: u64,
    /// Bytes, or any other unit of memory.
    pub size: u64,
}

impl Buffer {
    fn lives(&self) -> bool {
        self.lower < self.upper && self.size > 0
    }

    /// Whether there is a moment at which both live.
    #[must_use]
    pub fn lives_with(&self, other: &Buffer) -> bool {
        self.lives() && other.lives() && self.lower < other.upper && other.lower < self.upper
    }
}

/// How long [`pack`] looks for a lower placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// So many steps of search. The same buffers and steps always get the same placement.
    Steps(u64),
    /// So much time. What is found depends on the machine and on what else it does.
    Time(Duration),
}

/// An offset for every buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The offset of each buffer, in the order the buffers came in.
    pub offsets: Vec<u64>,
    /// The highest end of a buffer: what the arena must have.
    pub height: u64,
    /// The algorithm that found it.
    pub packer: &'static str,
}

impl Placement {
    /// Verifies that no two buffers that live at one moment share memory, and that `height` is right.
    ///
    /// # Errors
    /// What is wrong, of the first fault found.
    pub fn check(&self, buffers: &[Buffer]) -> Result<(), Fault> {
        check::check(self, buffers)
    }
}

/// Buffers whose sizes add up to 2^63 or more: offsets could overflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the sizes of all buffers add up to 2^63 or more")]
pub struct TooLarge;

/// Places all buffers, as low as it can with so much effort.
///
/// Several packers try in turn, and the lowest placement is taken; one at the [`lower_bound`] ends
/// it. A packer that only goes once through the buffers is not interrupted: 10^5 buffers are a
/// matter of a second, whatever the effort.
///
/// Every offset is a sum of sizes: if all sizes are multiples of an alignment, all offsets are.
///
/// # Errors
/// [`TooLarge`] if the sizes add up to 2^63 or more.
pub fn pack(buffers: &[Buffer], effort: Effort) -> Result<Placement, TooLarge> {
    pack_watched(buffers, effort, &mut |_| {})
}

/// Like [`pack`], and shows `watch` each placement that is lower than those before it.
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

/// The most bytes that live at one moment: no placement is lower.
#[must_use]
pub fn lower_bound(buffers: &[Buffer]) -> u64 {
    let mut changes: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * buffers.len());
    for buffer in buffers.iter().filter(|buffer| buffer.lives()) {
        changes.push((buffer.lower, true, buffer.size));
        changes.push((buffer.upper, false, buffer.size));
    }
    // What ends at a moment ends before anything begins at it.
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
