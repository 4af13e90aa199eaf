//! Interval colouring: the lowest placement of buffers of one size.
//!
//! Memory is a row of places of that size. Buffers, in the order of their starts, take any free place. A
//! new place is opened only if all are taken, so the height is the lower bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::sections::Problem;

/// Places the buffers if all have one size.
pub(super) fn place(problem: &Problem) -> Option<Vec<u64>> {
    let &size = problem.sizes.first()?;
    if problem.sizes.iter().any(|&other| other != size) {
        return None;
    }
    let mut order: Vec<usize> = (0..problem.len()).collect();
    order.sort_by_key(|&buffer| problem.spans[buffer]);
    let mut offsets = vec![0; problem.len()];
    let mut height = 0;
    // Places in use, by the section from which they are free.
    let mut places: BinaryHeap<Reverse<(usize, u64)>> = BinaryHeap::new();
    for buffer in order {
        let span = problem.spans[buffer];
        let offset = match places.peek() {
            Some(&Reverse((free_from, offset))) if free_from <= span.first => {
                places.pop();
                offset
            }
            _ => {
                height += size;
                height - size
            }
        };
        offsets[buffer] = offset;
        places.push(Reverse((span.end, offset)));
    }
    Some(offsets)
}
