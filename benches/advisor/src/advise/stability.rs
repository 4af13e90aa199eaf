//! How far advice holds for the next run of the same program, which never repeats exactly.

use std::collections::BTreeSet;
use std::sync::Arc;

use coalesce_alloc::scheduled::Schedule;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::Bracket;
use coalesce_workloads::created_first::created_first;
use coalesce_workloads::perturbed::perturbed;
use schemars::JsonSchema;
use serde::Serialize;

use super::request::Aim;
use super::simulator::{PYTORCH, Simulator};

/// Perturbed copies of the workload under the current settings and others. See
/// [`perturbed`](mod@coalesce_workloads::perturbed) for how they differ.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Stability {
    /// The other settings: the best for the aim or, if those are the current ones, the next best.
    pub conf: String,
    /// Copies that were replayed; their seeds are 1, 2, ….
    pub copies: u64,
    /// Copies that were requested.
    pub wanted: u64,
    /// The current settings.
    pub present: Spreads,
    /// The other settings.
    pub other: Spreads,
    /// Copies that need less memory under the other settings.
    pub needs_less: u64,
    /// Copies that reserve less on a roomy device under the other settings.
    pub reserves_less: u64,
    /// By how much less memory the copies need under the other settings.
    pub least_capacity_gain: Gain,
    /// By how much less the copies reserve on a roomy device under the other settings.
    pub peak_reserved_gain: Gain,
}

/// The distribution of a gain over the copies, divided by the peak of requested memory.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Gain {
    /// The minimum; negative if a copy is worse under the other settings.
    pub min: f64,
    /// The lower median.
    pub median: f64,
    /// The maximum.
    pub max: f64,
    /// How much the gain varies: the median distance from its median.
    pub noise: f64,
}

/// The distribution of figures over the copies.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Spreads {
    /// Minimum memory divided by the peak of requested memory.
    pub least_capacity: Spread,
    /// Peak of reserved memory on a roomy device divided by the peak of requested memory.
    pub peak_reserved: Spread,
}

/// Minimum, median and maximum of ratios.
#[derive(Clone, Copy, PartialEq, Debug, JsonSchema, Serialize)]
pub struct Spread {
    /// The minimum.
    pub min: f64,
    /// The lower median.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

impl Stability {
    /// The number of copies for which the other settings are better; `None` for driver time, which is not
    /// measured on copies.
    #[must_use]
    pub fn better(&self, aim: Aim) -> Option<u64> {
        match aim {
            Aim::LeastCapacity => Some(self.needs_less),
            Aim::Reserved => Some(self.reserves_less),
            Aim::DriverTime => None,
        }
    }

    /// Whether the other settings are better for more than two thirds of the copies, by at least 1 % of the
    /// current figure and by more than the gain varies. Driver time is not measured on copies.
    #[must_use]
    pub fn confirms(&self, aim: Aim) -> bool {
        const LEAST: f64 = 0.01;
        let (better, gain, present) = match aim {
            Aim::LeastCapacity => (
                self.needs_less,
                self.least_capacity_gain,
                self.present.least_capacity,
            ),
            Aim::Reserved => (
                self.reserves_less,
                self.peak_reserved_gain,
                self.present.peak_reserved,
            ),
            Aim::DriverTime => return true,
        };
        let matters = gain.median >= LEAST * present.median && gain.median > gain.noise;
        3 * better > 2 * self.copies && matters
    }
}

impl Gain {
    fn of(gains: Vec<f64>) -> Option<Self> {
        let Spread { min, median, max } = Spread::of(gains.clone())?;
        let distances = gains.iter().map(|gain| (gain - median).abs());
        let noise = Spread::of(distances.collect())?.median;
        Some(Self {
            min,
            median,
            max,
            noise,
        })
    }
}

impl Spread {
    fn of(mut ratios: Vec<f64>) -> Option<Self> {
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.len().checked_sub(1)? / 2;
        Some(Self {
            min: *ratios.first()?,
            median: *ratios.get(middle)?,
            max: *ratios.last()?,
        })
    }
}

/// Figures of one copy under one of the settings, in bytes.
#[derive(Clone, Copy)]
struct CopyFigures {
    lower_bound: u64,
    minimum: u64,
    reserved: u64,
}

/// Settings, with what the program does otherwise, and their minimum memory for the workload itself.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub conf: &'a str,
    pub change: Change<'a>,
    pub minimum: u64,
}

/// What a program does otherwise.
#[derive(Clone, Copy, Default)]
pub(super) struct Change<'a> {
    pub schedule: Option<&'a Arc<Schedule>>,
    /// The ids of the requests that it makes before all others.
    pub first: Option<&'a BTreeSet<u64>>,
}

/// Replays copies of the workload under two settings until the deadline. Copies under which the allocator fails are left out. Returns `None`
/// if no copy was completed.
pub(super) fn compare(
    simulator: Simulator<'_>,
    present: Known<'_>,
    other: Known<'_>,
    wanted: u64,
    deadline: Deadline,
) -> Option<Stability> {
    let simulator = simulator.until(deadline);
    let original = simulator.demand.lower_bound_bytes;
    let seeds: Vec<u64> = (1..=wanted).collect();
    let copies: Vec<(CopyFigures, CopyFigures)> = simulator
        .jobs
        .map(&seeds, |&seed| {
            (!deadline.has_passed()).then(|| {
                let copy = perturbed(simulator.workload, seed);
                let on_copy = simulator.with(&copy)?;
                let present = run(on_copy, original, present)?;
                let other = run(on_copy, original, other)?;
                anyhow::Ok((present, other))
            })
        })
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let count = |figure: fn(&CopyFigures) -> u64| {
        let pairs = copies.iter();
        let better = pairs.filter(|(present, other)| figure(other) < figure(present));
        better.count() as u64
    };
    let (presents, others): (Vec<_>, Vec<_>) = copies.iter().copied().unzip();
    let gain = |figure: fn(&CopyFigures) -> u64| {
        let gains = copies.iter().map(|(present, other)| {
            let gain = figure(present) as f64 - figure(other) as f64;
            gain / present.lower_bound.max(1) as f64
        });
        Gain::of(gains.collect())
    };
    Some(Stability {
        conf: other.conf.to_owned(),
        copies: copies.len() as u64,
        wanted,
        present: spreads(&presents)?,
        other: spreads(&others)?,
        needs_less: count(|copy| copy.minimum),
        reserves_less: count(|copy| copy.reserved),
        least_capacity_gain: gain(|copy| copy.minimum)?,
        peak_reserved_gain: gain(|copy| copy.reserved)?,
    })
}

/// Finds the figures of a copy, which the simulator replays. `original` is the lower bound of the workload itself.
fn run(simulator: Simulator<'_>, original: u64, known: Known<'_>) -> anyhow::Result<CopyFigures> {
    let Known { conf, minimum, .. } = known;
    let Change { schedule, first } = known.change;
    let moved = first.map(|first| created_first(simulator.workload, first));
    let simulator = Simulator {
        schedule,
        ..match &moved {
            Some(moved) => simulator.with(moved)?,
            None => simulator,
        }
    };
    let (_, with_room) = simulator.both(PYTORCH, conf)?;
    let lower_bound = simulator.demand.lower_bound_bytes;
    let fits = |bytes: u64| simulator.fits(PYTORCH, conf, bytes);
    let mut bracket = Bracket::new(lower_bound, with_room.peak_reserved_bytes);
    bracket.widen(&fits)?;
    // The ratio to requested memory is about the same as for the workload itself.
    let guess = u128::from(minimum) * u128::from(lower_bound) / u128::from(original.max(1));
    let guess = u64::try_from(guess).unwrap_or(u64::MAX);
    narrow(&mut bracket, guess, &fits)?;
    Ok(CopyFigures {
        lower_bound,
        minimum: bracket.suffices(),
        reserved: with_room.peak_reserved_bytes,
    })
}

/// Searches for the minimum near a guess, in steps that double, and then between the last two steps to
/// within a quarter of a percent.
fn narrow(
    bracket: &mut Bracket,
    guess: u64,
    fits: &dyn Fn(u64) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let unit = (guess / 400).max(1);
    let mut step = unit;
    let mut at = guess;
    let mut before = None;
    while bracket.contains(at) {
        let enough = fits(at)?;
        bracket.learn(at, enough);
        if before.is_some_and(|before| before != enough) {
            break;
        }
        before = Some(enough);
        at = if enough {
            at.saturating_sub(step)
        } else {
            at.saturating_add(step)
        };
        step *= 2;
    }
    bracket.close_to(unit, fits)
}

fn spreads(copies: &[CopyFigures]) -> Option<Spreads> {
    let ratios = |bytes: fn(&CopyFigures) -> u64| {
        let ratio = |copy: &CopyFigures| bytes(copy) as f64 / copy.lower_bound.max(1) as f64;
        Spread::of(copies.iter().map(ratio).collect())
    };
    Some(Spreads {
        least_capacity: ratios(|copy| copy.minimum)?,
        peak_reserved: ratios(|copy| copy.reserved)?,
    })
}

#[cfg(test)]
pub(super) mod tests;
