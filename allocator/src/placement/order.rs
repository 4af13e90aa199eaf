//! Orders of the buffers.

use std::cmp::Ordering;

use super::sections::{Problem, Span};

/// A sort key of buffers, largest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// Bytes.
    Size,
    /// Length of the life.
    Lifetime,
    /// Size times lifetime.
    Area,
    /// Peak of live bytes during its life, including its own.
    Pressure,
    /// Start of the life, earliest first.
    Start,
}

impl Key {
    /// Returns the key of each buffer. Only their order matters, so rounding does no harm.
    fn of(self, problem: &Problem) -> Vec<f64> {
        let (sizes, lifetimes) = (problem.sizes.iter(), problem.lifetimes.iter());
        let spans = problem.spans.iter();
        match self {
            Self::Size => sizes.map(|&size| size as f64).collect(),
            Self::Lifetime => lifetimes.map(|&lifetime| lifetime as f64).collect(),
            Self::Area => sizes
                .zip(lifetimes)
                .map(|(&size, &lifetime)| size as f64 * lifetime as f64)
                .collect(),
            Self::Pressure => {
                let live = Maxima::new(&problem.live);
                spans.map(|&span| live.most_in(span) as f64).collect()
            }
            Self::Start => spans.map(|span| -(span.first as f64)).collect(),
        }
    }
}

/// Returns the buffers sorted by the keys in turn, largest first, and then by index.
pub(super) fn by(problem: &Problem, keys: &[Key]) -> Vec<usize> {
    let qualities: Vec<Vec<f64>> = keys.iter().map(|key| key.of(problem)).collect();
    let mut order: Vec<usize> = (0..problem.len()).collect();
    order.sort_by(|&a, &b| {
        let each = qualities
            .iter()
            .map(|quality| quality[b].total_cmp(&quality[a]));
        each.fold(Ordering::Equal, Ordering::then)
    });
    order
}

/// Range maxima of a list: for each power of two, the maxima of all ranges of that length.
struct Maxima(Vec<Vec<u64>>);

impl Maxima {
    fn new(list: &[u64]) -> Self {
        let mut levels = Vec::new();
        let mut level = list.to_vec();
        let mut width = 1;
        while width < level.len() {
            let next = level
                .iter()
                .zip(&level[width..])
                .map(|(a, b)| *a.max(b))
                .collect();
            levels.push(level);
            level = next;
            width *= 2;
        }
        levels.push(level);
        Self(levels)
    }

    fn most_in(&self, span: Span) -> u64 {
        let level = (span.end - span.first).ilog2();
        let maxima = &self.0[level as usize];
        maxima[span.first].max(maxima[span.end - (1 << level)])
    }
}

/// A seeded generator of random numbers: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(scramble(self.0)) * u128::from(bound)) >> 64) as u64
    }
}

/// Mixes the bits of a number. The mapping is one-to-one.
pub(super) fn scramble(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_maxima_equal_those_of_a_scan() {
        for len in 1..20 {
            let mut random = Random::new(len);
            let list: Vec<u64> = (0..len).map(|_| random.below(50)).collect();
            let maxima = Maxima::new(&list);
            for first in 0..list.len() {
                for end in first + 1..=list.len() {
                    let most = list[first..end].iter().copied().max().unwrap();
                    assert_eq!(maxima.most_in(Span { first, end }), most);
                }
            }
        }
    }
}
