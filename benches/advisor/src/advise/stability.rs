//! How far advice holds for the next run of the same program, which is never quite the same.

use coalesce_workloads::cached::Cached;
use coalesce_workloads::perturbed::perturbed;
use serde::Serialize;

use super::Aim;
use super::ground::{Ground, PYTORCH};
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::measure::least::Bracket;
use coalesce_bench::measure::parallel;

/// Other copies of the program under the present setting and another. See
/// [`perturbed`](mod@workloads::perturbed) for what is other in them.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stability {
    /// The other setting: the best for the aim or, if that is the present one, the next best.
    pub conf: String,
    /// Copies that were run; their seeds are 1, 2, ….
    pub copies: u64,
    /// Copies that were to be run.
    pub wanted: u64,
    /// Of the present setting.
    pub present: Spreads,
    /// Of the other setting.
    pub other: Spreads,
    /// Copies in which the other setting runs in less memory than the present one.
    pub needs_less: u64,
    /// Copies in which it holds less where there is room for everything.
    pub reserves_less: u64,
}

/// How far figures of a setting are apart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Spreads {
    /// Least capacity by what the copy asks for at its peak.
    pub least_capacity: Spread,
    /// Peak reserved with room for everything, by the same.
    pub peak_reserved: Spread,
}

/// The least, the middle and the most of some shares.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The lower median.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Stability {
    /// Whether the other setting is better for an aim in more than two thirds of the copies.
    #[must_use]
    pub fn confirms(&self, aim: Aim) -> bool {
        let better = match aim {
            Aim::LeastCapacity => self.needs_less,
            Aim::Reserved => self.reserves_less,
            // Time was not looked at.
            Aim::DriverTime => return true,
        };
        3 * better > 2 * self.copies
    }
}

impl Spread {
    fn of(mut shares: Vec<f64>) -> Option<Self> {
        shares.sort_by(f64::total_cmp);
        let middle = shares.len().checked_sub(1)? / 2;
        Some(Self {
            min: *shares.first()?,
            median: *shares.get(middle)?,
            max: *shares.last()?,
        })
    }
}

/// One setting on one copy, in bytes.
#[derive(Clone, Copy)]
struct Copy {
    lower_bound: u64,
    least: u64,
    reserved: u64,
}

/// Runs copies of the program under two settings until time is up. `least` is what each needs for the
/// program itself. `None` if there was no time for a single copy.
pub(super) fn stability(
    ground: Ground<'_>,
    present: (&str, u64),
    other: (&str, u64),
    wanted: u64,
    deadline: Deadline,
) -> anyhow::Result<Option<Stability>> {
    let seeds: Vec<u64> = (1..=wanted).collect();
    let copies = parallel::map(&seeds, |&seed| {
        (!deadline.has_passed()).then(|| {
            let program = perturbed(ground.program, seed);
            let present = run(ground, &program, present)?;
            let other = run(ground, &program, other)?;
            anyhow::Ok((present, other))
        })
    });
    let copies: Vec<(Copy, Copy)> = copies
        .into_iter()
        .flatten()
        .collect::<anyhow::Result<_>>()?;
    let count = |is_better: fn(&Copy, &Copy) -> bool| {
        let better = copies
            .iter()
            .filter(|(present, other)| is_better(other, present));
        better.count() as u64
    };
    let presents: Vec<Copy> = copies.iter().map(|(present, _)| *present).collect();
    let others: Vec<Copy> = copies.iter().map(|(_, other)| *other).collect();
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
        needs_less: count(|one, other| one.least < other.least),
        reserves_less: count(|one, other| one.reserved < other.reserved),
    }))
}

fn run(ground: Ground<'_>, program: &Cached, (conf, least): (&str, u64)) -> anyhow::Result<Copy> {
    let original = ground.demand.lower_bound_bytes;
    let ground = ground.with(program)?;
    let (_, with_room) = ground.both(PYTORCH, conf)?;
    let lower_bound = ground.demand.lower_bound_bytes;
    let mut bracket = ground.bracket(PYTORCH, conf, with_room.peak_reserved_bytes)?;
    // It will be about as much beyond what is asked for as it was for the program itself.
    let guess = u128::from(least) * u128::from(lower_bound) / u128::from(original.max(1));
    let guess = u64::try_from(guess).unwrap_or(u64::MAX);
    narrow(&mut bracket, guess, &|bytes| {
        ground.fits(PYTORCH, conf, bytes)
    })?;
    Ok(Copy {
        lower_bound,
        least: bracket.suffices(),
        reserved: with_room.peak_reserved_bytes,
    })
}

/// Looks for the least near a guess, in steps that double, and then between the last two of them to a
/// quarter of a percent.
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

fn spreads(copies: &[Copy]) -> Option<Spreads> {
    let shares = |bytes: fn(&Copy) -> u64| {
        let share = |copy: &Copy| bytes(copy) as f64 / copy.lower_bound.max(1) as f64;
        Spread::of(copies.iter().map(share).collect())
    };
    Some(Spreads {
        least_capacity: shares(|copy| copy.least)?,
        peak_reserved: shares(|copy| copy.reserved)?,
    })
}
