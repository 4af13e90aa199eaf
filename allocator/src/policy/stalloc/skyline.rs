//! The filled height of a stripe of memory over time.

use super::time::Life;

/// A height for every moment.
#[derive(Clone, Debug)]
pub(super) struct Skyline {
    /// Times at which the height changes, in order, with the new height. Before the first it is `ground`.
    steps: Vec<(u64, u64)>,
    ground: u64,
}

impl Skyline {
    /// A constant height of `ground`.
    pub(super) fn flat(ground: u64) -> Self {
        Self {
            steps: Vec::new(),
            ground,
        }
    }

    /// Stacks `bytes` on the highest point during `life`, up to `limit`. Returns their start.
    pub(super) fn stack(&mut self, life: Life, bytes: u64, limit: u64) -> Option<u64> {
        let floor = self.floor(life, bytes, limit)?;
        self.set(life.from, life.until, floor + bytes);
        Some(floor)
    }

    /// Returns the highest point during `life` if there is room for `bytes` above it, up to `limit`.
    pub(super) fn floor(&self, life: Life, bytes: u64, limit: u64) -> Option<u64> {
        self.top(life.from, life.until, limit.checked_sub(bytes)?)
    }

    /// Returns the intervals in which the height is at most `limit`: first and last event of each.
    pub(super) fn lows(&self, limit: u64) -> impl Iterator<Item = (u64, u64)> {
        let before = (0, self.ground);
        let starts = std::iter::once(before).chain(self.steps.iter().copied());
        let ends = self.steps.iter().map(|&(at, _)| at).chain([u64::MAX]);
        let mut runs = starts.zip(ends).peekable();
        std::iter::from_fn(move || {
            let ((from, _), mut end) = runs.find(|&((_, height), _)| height <= limit)?;
            while let Some((_, longer)) = runs.next_if(|&((_, height), _)| height <= limit) {
                end = longer;
            }
            Some((from, end.saturating_sub(1)))
        })
    }

    /// Returns the greatest height from `from` to `until`, inclusive, if it is at most `highest`.
    fn top(&self, from: u64, until: u64, highest: u64) -> Option<u64> {
        let first = self.steps.partition_point(|&(at, _)| at <= from);
        let mut top = self.before(first);
        for &(at, height) in &self.steps[first..] {
            if at > until || top > highest {
                break;
            }
            top = top.max(height);
        }
        (top <= highest).then_some(top)
    }

    /// Sets the height from `from` to `until`, inclusive.
    pub(super) fn set(&mut self, from: u64, until: u64, height: u64) {
        let first = self.steps.partition_point(|&(at, _)| at < from);
        let after = self.steps.partition_point(|&(at, _)| at <= until + 1);
        let height_after = self.before(after);
        let changed = [(from, height), (until + 1, height_after)];
        self.steps.splice(first..after, changed);
    }

    /// Returns the height before the step at `index`.
    fn before(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(last) => self.steps[last].1,
            None => self.ground,
        }
    }
}
