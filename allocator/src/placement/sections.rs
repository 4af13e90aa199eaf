//! Sections: the times that matter for overlaps.
//!
//! In the figure, every set of buffers that is live at some time is also live at ① or at ②. These times are
//! the *sections*. A lifetime becomes a [`Span`] of sections, and two buffers are live together exactly if
//! their spans meet.
//!
//! ```text
//!  a ├────────────────┤
//!  b    ├──────┤
//!  c               ├──────┤
//!       ①          ②
//! ```
//!
//! Source: the sections of MiniMalloc (Moffitt, ASPLOS 2023), without those contained in a neighbour.

use super::Buffer;

/// Consecutive sections, from `first` to before `end`. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Span {
    pub first: usize,
    pub end: usize,
}

impl Span {
    pub(super) fn meets(self, other: Span) -> bool {
        self.first < other.end && other.first < self.end
    }

    pub(super) fn is_within(self, other: Span) -> bool {
        other.first <= self.first && self.end <= other.end
    }

    pub(super) fn sections(self) -> std::ops::Range<usize> {
        self.first..self.end
    }
}

/// Buffers to place, numbered from 0. All of them are live at some time.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    /// Size of each buffer, more than 0.
    pub sizes: Vec<u64>,
    /// Lifetime of each buffer in sections.
    pub spans: Vec<Span>,
    /// Length of each buffer's life, in its unit of time.
    pub lifetimes: Vec<u64>,
    /// Live bytes in each section.
    pub live: Vec<u64>,
}

impl Problem {
    /// All buffers must have a life, and the sum of their sizes must fit a `u64`.
    pub(super) fn new(buffers: &[Buffer]) -> Self {
        let spans = spans(buffers);
        let sections = spans.iter().map(|span| span.end).max().unwrap_or(0);
        let mut live = vec![0; sections];
        // Differences first, then their sums; differences can wrap around.
        for (buffer, span) in buffers.iter().zip(&spans) {
            live[span.first] = buffer.size.wrapping_add(live[span.first]);
            if let Some(after) = live.get_mut(span.end) {
                *after = after.wrapping_sub(buffer.size);
            }
        }
        let mut sum = 0_u64;
        for bytes in &mut live {
            sum = sum.wrapping_add(*bytes);
            *bytes = sum;
        }
        Self {
            sizes: buffers.iter().map(|buffer| buffer.size).collect(),
            spans,
            lifetimes: buffers
                .iter()
                .map(|buffer| buffer.upper - buffer.lower)
                .collect(),
            live,
        }
    }

    /// The number of buffers.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// The number of sections.
    pub(super) fn sections(&self) -> usize {
        self.live.len()
    }

    /// Returns the peak of live bytes: no placement is lower.
    pub(super) fn lower_bound(&self) -> u64 {
        self.live.iter().copied().max().unwrap_or(0)
    }

    /// Returns the highest end of a buffer.
    pub(super) fn height(&self, offsets: &[u64]) -> u64 {
        let ends = offsets.iter().zip(&self.sizes);
        ends.map(|(offset, size)| offset + size).max().unwrap_or(0)
    }
}

/// Returns the lifetime of each buffer in sections.
///
/// A section is the last of several beginnings before an end: more buffers are live than shortly before,
/// and none has ended yet.
fn spans(buffers: &[Buffer]) -> Vec<Span> {
    let mut beginnings: Vec<u64> = buffers.iter().map(|buffer| buffer.lower).collect();
    let mut ends: Vec<u64> = buffers.iter().map(|buffer| buffer.upper).collect();
    beginnings.sort_unstable();
    ends.sort_unstable();
    // The beginning of each section, the last one before the next end.
    let mut sections = Vec::new();
    let mut ends = ends.into_iter().peekable();
    for (index, &beginning) in beginnings.iter().enumerate() {
        while ends.next_if(|&end| end <= beginning).is_some() {}
        let next = beginnings.get(index + 1);
        let end = ends.peek().copied();
        if next.is_none_or(|&next| end.is_some_and(|end| end <= next)) {
            sections.push(beginning);
        }
    }
    let at = |moment: u64| sections.partition_point(|&section| section < moment);
    let span = |buffer: &Buffer| Span {
        first: at(buffer.lower),
        end: at(buffer.upper),
    };
    buffers.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(lifetimes: &[(u64, u64)]) -> Problem {
        let buffer = |&(lower, upper): &(u64, u64)| Buffer {
            lower,
            upper,
            size: 1,
        };
        let buffers: Vec<Buffer> = lifetimes.iter().map(buffer).collect();
        Problem::new(&buffers)
    }

    #[test]
    fn sections_are_the_times_of_most_live_buffers() {
        let problem = problem(&[(0, 20), (3, 10), (18, 27), (30, 31), (30, 40)]);
        let spans: Vec<(usize, usize)> = problem.spans.iter().map(|s| (s.first, s.end)).collect();
        assert_eq!(spans, [(0, 2), (0, 1), (1, 2), (2, 3), (2, 3)]);
        assert_eq!(problem.live, [2, 2, 2]);
    }

    #[test]
    fn a_buffer_that_ends_when_another_begins_does_not_overlap_it() {
        let problem = problem(&[(0, 5), (5, 9), (9, 10)]);
        assert_eq!(problem.live, [1, 1, 1]);
        assert_eq!(problem.lower_bound(), 1);
    }
}
