//! How far advice holds for the next run of the same program, which never repeats exactly.

use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::Bracket;
use coalesce_bench::measure::parallel;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::perturbed::perturbed;
use serde::Serialize;

use super::request::Aim;
use super::simulator::{PYTORCH, Simulator};

/// Perturbed copies of the workload under the current settings and others. See
/// [`perturbed`](mod@coalesce_workloads::perturbed) for how they differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
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
}

/// The distribution of figures over the copies.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spreads {
    /// Minimum memory divided by the peak of requested memory.
    pub least_capacity: Spread,
    /// Peak of reserved memory on a roomy device divided by the peak of requested memory.
    pub peak_reserved: Spread,
}

/// Minimum, median and maximum of ratios.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
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

    /// Whether the other settings are better for more than two thirds of the copies.
    #[must_use]
    pub fn confirms(&self, aim: Aim) -> bool {
        self.better(aim)
            .is_none_or(|better| 3 * better > 2 * self.copies)
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

/// Replays copies of the workload under two settings until the deadline. Each of the settings comes with its
/// minimum memory for the workload itself. Returns `None` if there was no time for a single copy.
pub(super) fn compare(
    simulator: Simulator<'_>,
    present: (&str, u64),
    other: (&str, u64),
    wanted: u64,
    deadline: Deadline,
) -> anyhow::Result<Option<Stability>> {
    let seeds: Vec<u64> = (1..=wanted).collect();
    let copies = parallel::map(&seeds, |&seed| {
        (!deadline.has_passed()).then(|| {
            let copy = perturbed(simulator.workload, seed);
            let present = run(simulator, &copy, present)?;
            let other = run(simulator, &copy, other)?;
            anyhow::Ok((present, other))
        })
    });
    let copies = copies.into_iter().flatten();
    let copies: Vec<(CopyFigures, CopyFigures)> = copies.collect::<anyhow::Result<_>>()?;
    let count = |figure: fn(&CopyFigures) -> u64| {
        let pairs = copies.iter();
        let better = pairs.filter(|(present, other)| figure(other) < figure(present));
        better.count() as u64
    };
    let presents: Vec<CopyFigures> = copies.iter().map(|(present, _)| *present).collect();
    let others: Vec<CopyFigures> = copies.iter().map(|(_, other)| *other).collect();
    let (Some(present_spreads), Some(other_spreads)) = (spreads(&presents), spreads(&others))
    else {
        return Ok(None);
    };
    Ok(Some(Stability {
        conf: other.0.to_owned(),
        copies: copies.len() as u64,
        wanted,
        present: present_spreads,
        other: other_spreads,
        needs_less: count(|copy| copy.minimum),
        reserves_less: count(|copy| copy.reserved),
    }))
}

fn run(
    simulator: Simulator<'_>,
    copy: &Cached,
    (conf, minimum): (&str, u64),
) -> anyhow::Result<CopyFigures> {
    let original = simulator.demand.lower_bound_bytes;
    let simulator = simulator.with(copy)?;
    let (_, with_room) = simulator.both(PYTORCH, conf)?;
    let lower_bound = simulator.demand.lower_bound_bytes;
    let mut bracket = simulator.bracket(PYTORCH, conf, with_room.peak_reserved_bytes)?;
    // The ratio to requested memory is about the same as for the workload itself.
    let guess = u128::from(minimum) * u128::from(lower_bound) / u128::from(original.max(1));
    let guess = u64::try_from(guess).unwrap_or(u64::MAX);
    narrow(&mut bracket, guess, &|bytes| {
        simulator.fits(PYTORCH, conf, bytes)
    })?;
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
        at = match enough {
            true => at.saturating_sub(step),
            false => at.saturating_add(step),
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
