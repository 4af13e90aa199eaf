//! Best fit on the skyline: memory is filled from the bottom up.
//!
//! The skyline is the height reached in each section. Its lowest stretch, the earliest among equals, gets
//! the first buffer, in a given order, that lives within it. If there is none, the stretch is raised to its
//! lower neighbour, and the memory below is lost.
//!
//! ```text
//!      ┌──┐
//!      │  │    ┌───┐      the lowest stretch ▁ takes a buffer that lives
//!  ────┘  │    │   └──    no earlier than it begins and no later than it ends
//!         └▁▁▁▁┘
//! ```
//!
//! Source: Sekiyama, Imai, Negishi and Imajo, "Profile-guided memory optimization for deep neural
//! networks" (2018), which takes the buffer with the longest life.

use std::collections::{BTreeMap, BTreeSet};

use super::sections::{Problem, Span};
use super::waiting::Waiting;

/// Places the buffers; `order` decides between those that fit.
pub(super) fn place(problem: &Problem, order: &[usize]) -> Vec<u64> {
    let mut waiting = Waiting::new(problem, order);
    let mut skyline = Skyline::new(problem.sections());
    let mut offsets = vec![0; problem.len()];
    let mut left = problem.len();
    while left > 0
        && let Some((height, stretch)) = skyline.lowest()
    {
        let Some(rank) = waiting.first_within(stretch) else {
            skyline.raise_to_neighbour(height, stretch);
            continue;
        };
        let buffer = order[rank];
        waiting.remove(rank);
        offsets[buffer] = height;
        skyline.put(problem.spans[buffer], height, problem.sizes[buffer]);
        left -= 1;
    }
    offsets
}

/// The height reached in each section, as stretches of equal height. Adjacent stretches differ.
struct Skyline {
    /// End (exclusive) and height of each stretch by its first section.
    stretches: BTreeMap<usize, (usize, u64)>,
    /// Stretches by height.
    by_height: BTreeSet<(u64, usize)>,
}

impl Skyline {
    fn new(sections: usize) -> Self {
        let mut skyline = Self {
            stretches: BTreeMap::new(),
            by_height: BTreeSet::new(),
        };
        skyline.insert(0, sections, 0);
        skyline
    }

    /// Returns the lowest stretch, the earliest among equals.
    fn lowest(&self) -> Option<(u64, Span)> {
        let &(height, first) = self.by_height.first()?;
        let &(end, _) = self.stretches.get(&first)?;
        Some((height, Span { first, end }))
    }

    /// Places a buffer in the lowest stretch, at `height`.
    fn put(&mut self, buffer: Span, height: u64, size: u64) {
        let around = self.stretches.range(..=buffer.first).next_back();
        let Some((&first, &(end, _))) = around else {
            return;
        };
        self.remove(first, height);
        if first < buffer.first {
            self.insert(first, buffer.first, height);
        }
        if buffer.end < end {
            self.insert(buffer.end, end, height);
        }
        self.join(buffer, height + size);
    }

    /// Raises the lowest stretch to its lower neighbour. Without neighbours, no buffer can be waiting
    /// outside of the stretch.
    fn raise_to_neighbour(&mut self, height: u64, stretch: Span) {
        let before = self.before(stretch).map(|(_, height)| height);
        let after = self.after(stretch).map(|(_, height)| height);
        let Some(neighbour) = before.into_iter().chain(after).min() else {
            return;
        };
        self.remove(stretch.first, height);
        self.join(stretch, neighbour);
    }

    /// Inserts a stretch and merges it with neighbours of the same height.
    fn join(&mut self, stretch: Span, height: u64) {
        let Span { mut first, mut end } = stretch;
        if let Some((before, level)) = self.before(stretch)
            && level == height
        {
            self.remove(before.first, level);
            first = before.first;
        }
        if let Some((after, level)) = self.after(stretch)
            && level == height
        {
            self.remove(after.first, level);
            end = after.end;
        }
        self.insert(first, end, height);
    }

    fn before(&self, stretch: Span) -> Option<(Span, u64)> {
        let (&first, &(end, height)) = self.stretches.range(..stretch.first).next_back()?;
        Some((Span { first, end }, height))
    }

    fn after(&self, stretch: Span) -> Option<(Span, u64)> {
        let &(end, height) = self.stretches.get(&stretch.end)?;
        let first = stretch.end;
        Some((Span { first, end }, height))
    }

    fn insert(&mut self, first: usize, end: usize, height: u64) {
        self.stretches.insert(first, (end, height));
        self.by_height.insert((height, first));
    }

    fn remove(&mut self, first: usize, height: u64) {
        self.stretches.remove(&first);
        self.by_height.remove(&(height, first));
    }
}
