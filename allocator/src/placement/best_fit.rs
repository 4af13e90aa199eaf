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

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
            skyline.raise_to_neighbour(stretch);
            continue;
        };
        let buffer = order[rank];
        waiting.remove(rank);
        offsets[buffer] = height;
        skyline.put(
            problem.spans[buffer],
            height,
            stretch,
            problem.sizes[buffer],
        );
        left -= 1;
    }
    offsets
}

/// The height reached in each section, as stretches of equal height. Adjacent stretches differ.
struct Skyline {
    /// The stretch that begins at each section, if any: its end and height.
    stretches: Vec<Option<(usize, u64)>>,
    /// The first section of the stretch that ends before each section.
    firsts: Vec<usize>,
    /// All stretches by height and first section, and some that are gone.
    by_height: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Skyline {
    fn new(sections: usize) -> Self {
        let mut skyline = Self {
            stretches: vec![None; sections + 1],
            firsts: vec![0; sections + 1],
            by_height: BinaryHeap::new(),
        };
        skyline.insert(0, sections, 0);
        skyline
    }

    /// Returns the lowest stretch, the earliest among equals.
    fn lowest(&mut self) -> Option<(u64, Span)> {
        while let Some(&Reverse((height, first))) = self.by_height.peek() {
            if let Some((end, level)) = self.stretches[first]
                && level == height
            {
                return Some((height, Span { first, end }));
            }
            self.by_height.pop();
        }
        None
    }

    /// Places a buffer in the lowest stretch, at its `height`.
    fn put(&mut self, buffer: Span, height: u64, stretch: Span, size: u64) {
        self.remove(stretch.first);
        if stretch.first < buffer.first {
            self.insert(stretch.first, buffer.first, height);
        }
        if buffer.end < stretch.end {
            self.insert(buffer.end, stretch.end, height);
        }
        self.join(buffer, height + size);
    }

    /// Raises the lowest stretch to its lower neighbour. Without neighbours, no buffer can be waiting
    /// outside of the stretch.
    fn raise_to_neighbour(&mut self, stretch: Span) {
        let before = self.before(stretch).map(|(_, height)| height);
        let after = self.after(stretch).map(|(_, height)| height);
        let Some(neighbour) = before.into_iter().chain(after).min() else {
            return;
        };
        self.remove(stretch.first);
        self.join(stretch, neighbour);
    }

    /// Inserts a stretch and merges it with neighbours of the same height.
    fn join(&mut self, stretch: Span, height: u64) {
        let Span { mut first, mut end } = stretch;
        if let Some((before, level)) = self.before(stretch)
            && level == height
        {
            self.remove(before);
            first = before;
        }
        if let Some((after, level)) = self.after(stretch)
            && level == height
        {
            self.remove(stretch.end);
            end = after;
        }
        self.insert(first, end, height);
    }

    /// Returns the first section and the height of the stretch before.
    fn before(&self, stretch: Span) -> Option<(usize, u64)> {
        let first = self.firsts[stretch.first];
        let (_, height) = self.stretches[first].filter(|_| first < stretch.first)?;
        Some((first, height))
    }

    /// Returns the end and the height of the stretch after.
    fn after(&self, stretch: Span) -> Option<(usize, u64)> {
        self.stretches[stretch.end]
    }

    fn insert(&mut self, first: usize, end: usize, height: u64) {
        self.stretches[first] = Some((end, height));
        self.firsts[end] = first;
        self.by_height.push(Reverse((height, first)));
    }

    fn remove(&mut self, first: usize) {
        self.stretches[first] = None;
    }
}
