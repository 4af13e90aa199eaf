//! Runs several packers and keeps the lowest placement.
//!
//! None is best everywhere. Best fit is at or near the lower bound if few large buffers live long and many
//! small ones fill the gaps, as in training. If almost all memory is live at almost all times, only search
//! finds a placement.

use super::budget::Budget;
use super::order::{self, Key};
use super::sections::Problem;
use super::{Placement, best_fit, branch_and_bound, colouring, first_fit, local_search};

/// Places buffers in a given order.
type Packer = fn(&Problem, &[usize]) -> Vec<u64>;

/// The packers without search, the most promising first.
const ONCE: [(&str, Packer, &[Key]); 8] = [
    (
        "best fit by pressure",
        best_fit::place,
        &[Key::Pressure, Key::Area],
    ),
    (
        "best fit by lifetime",
        best_fit::place,
        &[Key::Lifetime, Key::Size],
    ),
    ("best fit by area", best_fit::place, &[Key::Area]),
    (
        "best fit by size",
        best_fit::place,
        &[Key::Size, Key::Lifetime],
    ),
    (
        "first fit by size",
        first_fit::place,
        &[Key::Size, Key::Lifetime],
    ),
    (
        "first fit by lifetime",
        first_fit::place,
        &[Key::Lifetime, Key::Size],
    ),
    ("first fit by area", first_fit::place, &[Key::Area]),
    ("first fit by start", first_fit::place, &[Key::Start]),
];

/// Rounds of local search if branch and bound follows.
const ROUNDS_IF_FEW: u64 = 20;

/// The lowest placement so far.
pub(super) struct Best<'a> {
    pub placement: Placement,
    /// The index of each buffer of the problem among all buffers, some of which may never be live.
    indices: Vec<usize>,
    watch: &'a mut dyn FnMut(&Placement),
}

impl<'a> Best<'a> {
    /// No placement yet of `buffers` buffers, of which `indices` are live.
    pub(super) fn new(
        buffers: usize,
        indices: Vec<usize>,
        watch: &'a mut dyn FnMut(&Placement),
    ) -> Self {
        let height = if indices.is_empty() { 0 } else { u64::MAX };
        Self {
            placement: Placement {
                offsets: vec![0; buffers],
                height,
                packer: "nothing to place",
            },
            indices,
            watch,
        }
    }

    /// Keeps a placement if it is the lowest so far.
    fn offer(&mut self, problem: &Problem, offsets: &[u64], packer: &'static str) {
        let height = problem.height(offsets);
        if height >= self.placement.height {
            return;
        }
        for (&index, &offset) in self.indices.iter().zip(offsets) {
            self.placement.offsets[index] = offset;
        }
        self.placement.height = height;
        self.placement.packer = packer;
        (self.watch)(&self.placement);
    }
}

/// Runs the packers in turn until the lower bound is reached or the budget is spent.
pub(super) fn run(problem: &Problem, budget: &mut Budget, best: &mut Best<'_>) {
    let bound = problem.lower_bound();
    if let Some(offsets) = colouring::place(problem) {
        best.offer(problem, &offsets, "interval colouring");
    }
    for (name, place, keys) in ONCE {
        let placed = best.placement.height < u64::MAX;
        if best.placement.height <= bound || placed && !budget.spend(problem.len() as u64) {
            return;
        }
        best.offer(problem, &place(problem, &order::by(problem, keys)), name);
    }
    let few = problem.len() <= branch_and_bound::MOST_BUFFERS;
    let rounds = if few { ROUNDS_IF_FEW } else { u64::MAX };
    let height = best.placement.height;
    local_search::improve(problem, height, rounds, budget, &mut |offsets| {
        best.offer(problem, offsets, "local search");
    });
    if few {
        let height = best.placement.height;
        branch_and_bound::improve(problem, height, budget, &mut |offsets| {
            best.offer(problem, offsets, "branch and bound");
        });
    }
}
