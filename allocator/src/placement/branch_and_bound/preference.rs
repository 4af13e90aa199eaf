//! The order in which buffers are tried at an offset.

use crate::placement::order::{self, Key, Random};
use crate::placement::sections::Problem;

/// An order of the buffers that can depend on what is left to place.
///
/// Sorts by lifetime or by pressure, the peak of bytes left during a buffer's life, and then by two more keys.
#[derive(Clone, Debug)]
pub(super) struct Preference {
    /// Whether the key is pressure times weight, or the weight alone.
    by_pressure: bool,
    weights: Vec<f64>,
    /// Position of each buffer among equals.
    ties: Vec<u32>,
}

/// The orders of MiniMalloc.
const KEYS: [[Key; 3]; 3] = [
    [Key::Lifetime, Key::Area, Key::Pressure],
    [Key::Pressure, Key::Area, Key::Lifetime],
    [Key::Pressure, Key::Lifetime, Key::Area],
];

impl Preference {
    /// Number of orders of [`Preference::new`].
    pub(super) const COUNT: u64 = KEYS.len() as u64;

    pub(super) fn new(problem: &Problem, number: u64) -> Self {
        let [first, ties @ ..] = KEYS[(number % Self::COUNT) as usize];
        let by_pressure = first == Key::Pressure;
        let weight = |&lifetime: &u64| if by_pressure { 1.0 } else { lifetime as f64 };
        let mut places = vec![0; problem.len()];
        for (place, buffer) in order::by(problem, &ties).into_iter().enumerate() {
            places[buffer] = place as u32;
        }
        Self {
            by_pressure,
            weights: problem.lifetimes.iter().map(weight).collect(),
            ties: places,
        }
    }

    /// Multiplies each weight by a random number, proportional to one between 0.5 and 1.5.
    pub(super) fn blurred(mut self, random: &mut Random) -> Self {
        const BLUR_PERCENT: u64 = 50;
        for weight in &mut self.weights {
            *weight *= (100 - BLUR_PERCENT + random.below(2 * BLUR_PERCENT + 1)) as f64;
        }
        self
    }

    /// Returns the sort key of a buffer, greatest first, given the peak of bytes left during its life.
    pub(super) fn key(&self, buffer: usize, pressure: u64) -> (f64, u32) {
        let pressure = if self.by_pressure {
            pressure as f64
        } else {
            1.0
        };
        (self.weights[buffer] * pressure, self.ties[buffer])
    }
}
