//! First fit: buffers in a given order, each at the lowest offset that is free during all its life.
//!
//! Largest first it is TensorFlow Lite's and the usual planner's *greedy by size*; by start it is
//! what an allocator would do that has only the free list to go by.

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
