//! First fit: buffers in a given order, each at the lowest offset that is free during its life.
//!
//! With the largest buffers first, it is the *greedy by size* planner of TensorFlow Lite and others. In the
//! order of starts, it is what an online allocator with a free list does.

use super::occupied::Occupied;
use super::sections::Problem;

/// Places the buffers in the given order.
pub(super) fn place(problem: &Problem, order: &[usize]) -> Vec<u64> {
    let mut occupied = Occupied::new(problem.sections());
    let mut offsets = vec![0; problem.len()];
    for &buffer in order {
        let (span, size) = (problem.spans[buffer], problem.sizes[buffer]);
        let offset = occupied.lowest_fit(span, size);
        occupied.occupy(span, offset, offset + size);
        offsets[buffer] = offset;
    }
    offsets
}
