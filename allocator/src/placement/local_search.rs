//! Local search over the orders of best fit.
//!
//! After each placement, the buffers that exceed the lower bound move to the front of the order. If that
//! does not change the order, a random buffer moves forward. Recorded workloads need only a few rounds.
//!
//! Source: Joslin and Clements, "Squeaky wheel optimization" (1999).

use super::best_fit;
use super::budget::Budget;
use super::order::{self, Key, Random};
use super::sections::Problem;

/// The initial orders, which take turns.
const STARTS: [&[Key]; 3] = [
    &[Key::Lifetime, Key::Size],
    &[Key::Pressure, Key::Area],
    &[Key::Size, Key::Lifetime],
];

/// Searches for placements below `height` and calls `found` with each, for at most `rounds` rounds, until
/// it reaches the lower bound or has spent the budget.
pub(super) fn improve(
    problem: &Problem,
    mut height: u64,
    rounds: u64,
    budget: &mut Budget,
    found: &mut dyn FnMut(&[u64]),
) {
    let bound = problem.lower_bound();
    let mut random = Random::new(1);
    let mut orders = STARTS.map(|keys| order::by(problem, keys));
    for _ in 0..rounds {
        for order in &mut orders {
            if height <= bound || !budget.spend(problem.len() as u64) {
                return;
            }
            let offsets = best_fit::place(problem, order);
            let reached = problem.height(&offsets);
            if reached < height {
                height = reached;
                found(&offsets);
            }
            let sticks_out = |&buffer: &usize| offsets[buffer] + problem.sizes[buffer] > bound;
            if !move_to_front(order, sticks_out) {
                move_one_forward(order, &mut random);
            }
        }
    }
}

/// Moves some buffers to the front. Returns whether the order changed.
fn move_to_front(order: &mut [usize], is_moved: impl Fn(&usize) -> bool) -> bool {
    let stays = |buffer: &usize| !is_moved(buffer);
    let changes = !order.is_sorted_by_key(stays);
    // The sort is stable: both parts keep their order.
    order.sort_by_key(stays);
    changes
}

fn move_one_forward(order: &mut [usize], random: &mut Random) {
    let from = random.below(order.len() as u64) as usize;
    let to = random.below(from as u64 + 1) as usize;
    order[to..=from].rotate_right(1);
}
