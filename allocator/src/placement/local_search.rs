//! Local search over the orders of best fit: whoever sticks out comes first next time.
//!
//! After each placement the buffers that reach above the lower bound move to the front of the order,
//! and the next placement is made. Where that changes nothing a buffer chosen at random moves
//! forward. On recorded programs a few rounds are enough.
//!
//! Source: Joslin and Clements, "Squeaky wheel optimization" (1999).

use super::best_fit;
use super::budget::Budget;
use super::order::{self, Key, Random};
use super::sections::Problem;

/// Where it begins: the orders take turns.
const STARTS: [&[Key]; 3] = [
    &[Key::Lifetime, Key::Size],
    &[Key::Pressure, Key::Area],
    &[Key::Size, Key::Lifetime],
];

/// Looks for placements below `height` and tells `found` of each, for so many rounds at most, until
/// the lower bound is reached or the budget is spent.
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

/// Moves some buffers to the front, and says whether that changes anything.
fn move_to_front(order: &mut [usize], is_moved: impl Fn(&usize) -> bool) -> bool {
    let stays = |buffer: &usize| !is_moved(buffer);
    let changes = !order.is_sorted_by_key(stays);
    // The order among those that move is kept, and among those that stay.
    order.sort_by_key(stays);
    changes
}

fn move_one_forward(order: &mut [usize], random: &mut Random) {
    let from = random.below(order.len() as u64) as usize;
    let to = random.below(from as u64 + 1) as usize;
    order[to..=from].rotate_right(1);
}
