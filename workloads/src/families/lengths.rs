//! Lengths of sequences and sides of images, which vary by batch.

use serde::{Deserialize, Serialize};

use crate::families::rng::Rng;

/// The lengths of the batches of a run, in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(
    rename_all = "snake_case",
    deny_unknown_fields,
    expecting = "a length, as in 1024, or { uniform = { min = 1, max = 9 } }, or log_uniform, or \
                 { sorted = { min = 1, max = 9, count = 4 } }, or { list = [1, 5, 9] }"
)]
pub enum Lengths {
    /// Uniform between two lengths, inclusive.
    Uniform {
        /// Shortest.
        min: u64,
        /// Longest.
        max: u64,
    },
    /// Between two lengths, inclusive, with each bit length equally likely: many short and few long ones.
    LogUniform {
        /// Shortest.
        min: u64,
        /// Longest.
        max: u64,
    },
    /// Uniform, but shortest first, as samplers do that group by length. Repeats after `count` batches.
    Sorted {
        /// Shortest.
        min: u64,
        /// Longest.
        max: u64,
        /// Batches until the pattern repeats.
        count: u64,
    },
    /// These lengths, repeated.
    List(Vec<u64>),
    /// The same length each time, written as a number.
    #[serde(untagged)]
    Fixed(u64),
}

/// An endless sequence of lengths.
pub(crate) type Draw = Box<dyn Iterator<Item = u64>>;

/// The most lengths of a sorted pattern, which is held in memory.
const MOST: u64 = 1 << 20;

impl Lengths {
    /// The longest possible length.
    #[must_use]
    pub fn longest(&self) -> u64 {
        match self {
            Self::Fixed(length) => *length,
            Self::Uniform { max, .. } | Self::LogUniform { max, .. } | Self::Sorted { max, .. } => {
                *max
            }
            Self::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }

    /// What is wrong with the parameters, if anything.
    pub(crate) fn fault(&self) -> Option<String> {
        let (min, max) = match self {
            Self::Fixed(length) => (*length, *length),
            Self::Uniform { min, max }
            | Self::LogUniform { min, max }
            | Self::Sorted { min, max, .. } => (*min, *max),
            Self::List(list) => (list.iter().copied().min().unwrap_or(0), self.longest()),
        };
        if let Self::Sorted { count, .. } = self
            && !(1..=MOST).contains(count)
        {
            return Some(format!("count is {count}; it must be from 1 to {MOST}"));
        }
        (!(1..=max).contains(&min)).then(|| format!("lengths cannot be from {min} to {max}"))
    }

    /// Draws lengths without end.
    pub(crate) fn draw(&self, mut rng: Rng) -> Draw {
        match self.clone() {
            Self::Fixed(length) => Box::new(std::iter::repeat(length)),
            Self::Uniform { min, max } => {
                Box::new(std::iter::repeat_with(move || rng.between(min, max)))
            }
            Self::LogUniform { min, max } => {
                Box::new(std::iter::repeat_with(move || rng.log_uniform(min, max)))
            }
            Self::Sorted { min, max, count } => {
                let mut list: Vec<u64> = (0..count).map(|_| rng.between(min, max)).collect();
                list.sort_unstable();
                Box::new(list.into_iter().cycle())
            }
            Self::List(list) => Box::new(list.into_iter().cycle()),
        }
    }
}
