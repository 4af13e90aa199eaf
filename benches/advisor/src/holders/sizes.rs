//! Recognises parameters by their sizes: each has a gradient of the same size.
//!
//! The blocks that were live before a recording began have no stack. If a size occurs among them as often as
//! among the gradients of one step, they are parameters; if two to four times as often, the others are optimizer
//! state.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::category::Category;

/// An allocation that may be a parameter: its index in the log and its bytes.
pub(super) type Candidate = (usize, u64);

/// The categories of the candidates that the sizes of gradients show. `gradients` has the sizes of each step;
/// `state` has the sizes of optimizer state that is known otherwise.
pub(super) fn categories(
    candidates: &[Candidate],
    gradients: &[Vec<u64>],
    state: &BTreeSet<u64>,
) -> HashMap<usize, Category> {
    let most = gradients
        .iter()
        .max_by_key(|sizes| sizes.iter().sum::<u64>());
    let mut expected: BTreeMap<u64, usize> = BTreeMap::new();
    for &size in most.into_iter().flatten() {
        *expected.entry(size).or_default() += 1;
    }
    let mut by_size: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for &(index, size) in candidates {
        by_size.entry(size).or_default().push(index);
    }
    let mut found = HashMap::new();
    for (size, indices) in by_size {
        let Some(&number) = expected.get(&size) else {
            continue;
        };
        let copies = indices.len() / number;
        // A few blocks of the same size may be something else.
        let others = indices.len() - copies * number;
        let is_regular = others * 4 <= number && copies <= 4;
        let parameters = indices.iter().take(number);
        found.extend(parameters.map(|&index| (index, Category::Parameters)));
        if is_regular && !state.contains(&size) {
            let others = indices.iter().take(copies * number).skip(number);
            found.extend(others.map(|&index| (index, Category::OptimizerState)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::Category::{OptimizerState, Parameters};
    use super::*;

    /// The categories of so many candidates of 10 bytes, and of two with sizes of their own, if a step has so many
    /// gradients of 10 bytes and one of 20.
    fn found(candidates: usize, gradients: usize, state: &[u64]) -> Vec<(usize, Category)> {
        let mut all: Vec<Candidate> = (0..candidates).map(|index| (index, 10)).collect();
        all.extend([(100, 20), (101, 30)]);
        // The step with most gradients counts.
        let most = [vec![10; gradients], vec![20]].concat();
        let steps = match gradients {
            0 => Vec::new(),
            _ => vec![vec![10], most, vec![10, 10]],
        };
        let state: BTreeSet<u64> = state.iter().copied().collect();
        let mut found: Vec<_> = categories(&all, &steps, &state).into_iter().collect();
        found.sort_unstable();
        found
    }

    /// Parameters come first, then state, and then the parameter of 20 bytes.
    fn expected(parameters: usize, state: usize) -> Vec<(usize, Category)> {
        let parameters_first = (0..parameters).map(|index| (index, Parameters));
        let state = (parameters..parameters + state).map(|index| (index, OptimizerState));
        parameters_first
            .chain(state)
            .chain([(100, Parameters)])
            .collect()
    }

    #[test]
    fn as_many_as_gradients_or_two_to_four_times_as_many() {
        assert_eq!(found(2, 2, &[]), expected(2, 0));
        assert_eq!(found(4, 2, &[]), expected(2, 2));
        assert_eq!(found(8, 2, &[]), expected(2, 6));
        assert_eq!(found(10, 2, &[]), expected(2, 0), "five times as many");
        assert_eq!(found(3, 4, &[]), expected(3, 0));
        assert_eq!(found(4, 0, &[]), [], "no gradients");
    }

    #[test]
    fn a_few_may_be_something_else() {
        assert_eq!(found(9, 4, &[]), expected(4, 4));
        assert_eq!(found(10, 4, &[]), expected(4, 0));
    }

    #[test]
    fn state_that_is_known_otherwise() {
        assert_eq!(found(4, 2, &[10]), expected(2, 0));
        assert_eq!(found(4, 2, &[20]), expected(2, 2));
    }
}
