//! Whether the program would hold less if it created tensors that stay before anything else.
//!
//! A tensor that lives to the end splits what others leave where it was created among them: the state that an optimizer
//! creates in its first step, the workspace of the first matrix product. The recording does not show whether the program can
//! create it earlier. The answer says what that would gain, by the same rule as a schedule, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use coalesce_alloc::pytorch::size::SMALL_LIMIT;
use coalesce_bench::measure::deadline::Deadline;
use coalesce_bench::text::{Unit, count, quoted};
use coalesce_workloads::created_first::created_first;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Bar, Figures, InTime, examined};
use crate::advise::preference::NEAR;
use crate::advise::request::AdviceRequest;
use crate::advise::search::{PRESENT, Search, TriedSettings};
use crate::advise::simulator::{RunFigures, Simulator};
use crate::advise::stability::{Change, Stability};
use crate::diagnose::Evidence;
use crate::holders::{Category, Holders};

/// Another order of creation that is better than the best constant settings.
#[derive(Clone, PartialEq, Debug, JsonSchema, Serialize)]
pub struct InOrder {
    /// The answer in sentences.
    pub sentences: Vec<String>,
    /// What would come first; none for all that stays.
    pub category: Option<Category>,
    /// The number of its tensors, and their bytes.
    pub tensors: u64,
    /// Bytes requested for them.
    pub bytes: u64,
    /// In this order.
    pub with_order: Figures,
    /// In the order of the program.
    pub constant: Figures,
    /// How far it holds for the next run: `other` is in this order, `present` in that of the program.
    pub stability: Option<Stability>,
}

/// Tensors that are created in the first half of the program and live to its end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::advise) struct Lasting {
    /// What they are for; none for all.
    category: Option<Category>,
    ids: BTreeSet<u64>,
    bytes: u64,
    /// Whether others are requested before the last of them.
    may_move: bool,
}

/// The tensors that could come first: of each category, and all together.
pub(super) fn lasting(
    evidence: &Evidence<'_>,
    holders: &Holders<'_>,
    is_in_pool: impl Fn(usize) -> bool,
) -> Vec<Lasting> {
    // A program that was running when its recording began did what it did before.
    if evidence.subject.workload.start().is_some() {
        return Vec::new();
    }
    let last = evidence.log.allocations.last().map_or(0, |last| last.born);
    let half = evidence.log.end() / 2;
    let staying = evidence.allocations().filter(|&(request, one)| {
        let stays = one.born < half && one.is_live_after(last);
        stays && one.bytes > SMALL_LIMIT && !is_in_pool(request)
    });
    let mut all: BTreeMap<Option<Category>, Lasting> = BTreeMap::new();
    for (request, one) in staying {
        for category in [Some(holders.category(request)), None] {
            let lasting = all.entry(category).or_default();
            lasting.category = category;
            lasting.may_move = request > lasting.ids.len();
            lasting.ids.insert(one.id);
            lasting.bytes += one.bytes;
        }
    }
    // All are named by their category if they have the same.
    if let [all, _] = &mut *all.values_mut().collect::<Vec<_>>() {
        all.may_move = false;
    }
    all.into_values().filter(|one| one.may_move).collect()
}

/// The order that is best, if it is worth more than the settings that are `advised`, and than the schedule that was `found`.
pub(in crate::advise) fn search(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    advised: Option<usize>,
    lasting: &[Lasting],
    found: Option<&InTime>,
    deadline: Deadline,
) -> Option<InOrder> {
    let constant = search.tried.get(advised.unwrap_or(PRESENT))?;
    let simulator = search.simulator.until(deadline);
    let bar = Bar::above(constant, request.aim, simulator.demand.lower_bound_bytes)?;
    let bar = bar.beyond(found.map(|found| &found.with_schedule))?;
    let passed = simulator.jobs.map(lasting, |one| {
        let moved = created_first(simulator.workload, &one.ids);
        bar.passed(simulator.with(&moved).ok()?, &constant.conf)
    });
    let passed = lasting.iter().zip(passed);
    let mut good: Vec<(&Lasting, RunFigures)> = passed
        .filter_map(|(one, figures)| Some((one, figures?)))
        .collect();
    good.sort_by_key(|(one, figures)| (figures.peak_reserved_bytes, one.ids.len()));
    good.into_iter()
        .find_map(|(one, figures)| answer(request, search, constant, (one, figures), simulator))
}

impl Bar {
    /// The same, or what is better than a schedule by more than makes a difference; none if nothing can be.
    fn beyond(self, schedule: Option<&Figures>) -> Option<Self> {
        let Some(schedule) = schedule else {
            return Some(self);
        };
        let less = |bytes: u64| bytes - bytes / NEAR;
        match self {
            Self::Completes => None,
            Self::Reserves(most) => {
                let held = schedule.on_device.peak_reserved_bytes;
                Some(Self::Reserves(most.min(less(held))))
            }
            Self::Needs(most) => {
                let needed = schedule.least_capacity_bytes.map_or(most, less);
                Some(Self::Needs(most.min(needed)))
            }
        }
    }
}

fn answer(
    request: &AdviceRequest<'_>,
    search: &Search<'_>,
    constant: &TriedSettings,
    (first, figures): (&Lasting, RunFigures),
    simulator: Simulator<'_>,
) -> Option<InOrder> {
    let moved = created_first(simulator.workload, &first.ids);
    let on_moved = simulator.with(&moved).ok()?;
    let change = Change {
        schedule: None,
        first: Some(&first.ids),
    };
    let trial = (&*constant.conf, figures, change);
    let (then, stability) = examined(request, search, constant, trial, on_moved)?;
    let now = Figures::of(constant);
    Some(InOrder {
        sentences: sentences(
            first,
            &then,
            &now,
            Unit::of(simulator.demand.lower_bound_bytes),
        ),
        category: first.category,
        tensors: first.ids.len() as u64,
        bytes: first.bytes,
        with_order: then,
        constant: now,
        stability,
    })
}

fn sentences(first: &Lasting, then: &Figures, now: &Figures, unit: Unit) -> Vec<String> {
    let what = match first.category {
        Some(Category::Unknown) | None => "what it keeps to its end",
        Some(category) => &format!("its {}", category.name()),
    };
    let held = |figures: &Figures| unit.amount(figures.on_device.peak_reserved_bytes);
    let now = if now.on_device.fits() {
        format!("instead of {}", held(now))
    } else {
        "instead of running out of memory".to_owned()
    };
    let gain = format!(
        "If it created {what} ({}, {}) before all else, the program would hold {} at its peak {now}, with {}.",
        count(first.ids.len() as u64, "tensor"),
        unit.amount(first.bytes),
        held(then),
        quoted(&then.conf)
    );
    let how = match first.category {
        Some(Category::OptimizerState) => {
            "An optimizer creates its state in its first step, which may come before the first batch, with gradients and a learning rate of zero."
        }
        Some(Category::Workspace) => {
            "cuBLAS creates it for the first matrix product: a small one at the start does."
        }
        _ => {
            "That includes what libraries keep, such as the workspace of cuBLAS, created for the first matrix product."
        }
    };
    let unknown = "Whether it can come first, the recording does not show.";
    vec![gain, how.to_owned(), unknown.to_owned()]
}
