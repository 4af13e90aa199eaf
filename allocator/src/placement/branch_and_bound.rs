//! Branch and bound with restarts.
//!
//! The time of a search depends on luck: with one order of the buffers it succeeds at once, with another
//! never. So many searches are started. Two kinds share the budget equally:
//!
//! - at the lower bound, in orders known to be good, each time for twice as long. This is often the easiest,
//!   because a placement without waste leaves few choices;
//! - at a random height between the bound and the best placement, in randomized orders, most of them short
//!   and few long (Luby, Sinclair and Zuckerman, 1993).
//!
//! A search that ends without a placement proves that none exists, and raises the bound.

mod floor;
mod nogoods;
mod preference;
mod relations;
mod search;
mod state;

use self::preference::Preference;
use self::search::{Outcome, Search};
use super::budget::Budget;
use super::order::Random;
use super::sections::Problem;

/// Maximum number of buffers: the time of a node and the depth of the recursion are proportional to it.
pub(super) const MOST_BUFFERS: usize = 2048;

/// Searches for placements below `height` and calls `found` with each, until it has the lowest one or has
/// spent the budget.
pub(super) fn improve(
    problem: &Problem,
    mut height: u64,
    budget: &mut Budget,
    found: &mut dyn FnMut(&[u64]),
) {
    let mut bound = problem.lower_bound();
    let mut search = Search::new(problem);
    let mut schedule = Schedule::new(problem);
    while height > bound && !budget.is_spent() {
        let attempt = schedule.next(bound, height);
        let outcome = search.run(attempt.preference, attempt.target, attempt.nodes, budget);
        schedule.account(attempt.kind, attempt.nodes - search.nodes_left());
        match outcome {
            Outcome::Found => {
                height = problem.height(search.offsets());
                found(search.offsets());
            }
            Outcome::Impossible => bound = attempt.target + 1,
            Outcome::GaveUp => {}
        }
    }
}

/// The parameters of a search.
struct Attempt {
    kind: usize,
    preference: Preference,
    target: u64,
    nodes: u64,
}

/// Chooses the searches.
struct Schedule<'a> {
    problem: &'a Problem,
    /// Number of searches and of visited nodes of each kind.
    begun: [u64; 2],
    visited: [u64; 2],
    random: Random,
}

const AT_THE_BOUND: usize = 0;
const BLURRED: usize = 1;

impl<'a> Schedule<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            problem,
            begun: [0; 2],
            visited: [0; 2],
            random: Random::new(1),
        }
    }

    fn next(&mut self, bound: u64, height: u64) -> Attempt {
        let shortest = 2 * self.problem.len() as u64;
        if self.visited[AT_THE_BOUND] <= self.visited[BLURRED] {
            let number = self.begun[AT_THE_BOUND];
            self.begun[AT_THE_BOUND] += 1;
            let doublings = (number / Preference::COUNT).min(32);
            return Attempt {
                kind: AT_THE_BOUND,
                preference: Preference::new(self.problem, number),
                target: bound,
                nodes: shortest << doublings,
            };
        }
        self.begun[BLURRED] += 1;
        let number = self.random.below(Preference::COUNT);
        let preference = Preference::new(self.problem, number);
        Attempt {
            kind: BLURRED,
            preference: preference.blurred(&mut self.random),
            target: bound + self.random.below(height - bound),
            nodes: shortest * luby(self.begun[BLURRED]),
        }
    }

    fn account(&mut self, kind: usize, nodes: u64) {
        self.visited[kind] += nodes;
    }
}

/// Returns number `index`, from 1 on, of the sequence 1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8, …
fn luby(mut index: u64) -> u64 {
    loop {
        let power = (index + 1).next_power_of_two();
        if power == index + 1 {
            return power / 2;
        }
        index -= power / 2 - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::luby;

    #[test]
    fn the_sequence_is_lubys() {
        let sequence: Vec<u64> = (1..=15).map(luby).collect();
        assert_eq!(sequence, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
    }
}
