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
