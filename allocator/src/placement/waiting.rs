//! The buffers that have no offset yet, searchable by their lifetimes: a k-d tree.

use super::sections::{Problem, Span};

/// Buffers by their rank, the position in an order.
///
/// A buffer is a point: its first section and its end. Buffers that live within a span lie in a quarter of
/// the plane. Each node has the greatest first section, the least end and the least rank of the points below
/// it, so that a search skips most of them.
pub(super) struct Waiting {
    /// Node `n` has the children `2n` and `2n + 1`. The second half are the points.
    nodes: Vec<Node>,
    /// Index in `nodes` of each rank.
    place: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Node {
    greatest_first: usize,
    least_end: usize,
    least_rank: usize,
}

const ROOT: usize = 1;
const NONE: Node = Node {
    greatest_first: 0,
    least_end: usize::MAX,
    least_rank: usize::MAX,
};

impl Waiting {
    pub(super) fn new(problem: &Problem, order: &[usize]) -> Self {
        let leaves = order.len().next_power_of_two();
        let mut points: Vec<Node> = order
            .iter()
            .enumerate()
            .map(|(rank, &buffer)| Node {
                greatest_first: problem.spans[buffer].first,
                least_end: problem.spans[buffer].end,
                least_rank: rank,
            })
            .collect();
        halve(&mut points, leaves, Axis::First);
        let mut nodes = vec![NONE; 2 * leaves];
        let mut place = vec![0; order.len()];
        for (index, point) in points.into_iter().enumerate() {
            place[point.least_rank] = leaves + index;
            nodes[leaves + index] = point;
        }
        let mut waiting = Self { nodes, place };
        for node in (ROOT..leaves).rev() {
            waiting.sum_up(node);
        }
        waiting
    }

    /// Returns the least rank whose buffer lives within `span`.
    pub(super) fn first_within(&self, span: Span) -> Option<usize> {
        let mut best = usize::MAX;
        self.search(ROOT, span, &mut best);
        (best < usize::MAX).then_some(best)
    }

    /// Removes a buffer.
    pub(super) fn remove(&mut self, rank: usize) {
        let mut node = self.place[rank];
        self.nodes[node] = NONE;
        while node > ROOT {
            node /= 2;
            let before = self.nodes[node];
            self.sum_up(node);
            if self.nodes[node] == before {
                break;
            }
        }
    }

    fn search(&self, index: usize, span: Span, best: &mut usize) {
        let node = self.nodes[index];
        if node.least_rank >= *best || node.greatest_first < span.first || node.least_end > span.end
        {
            return;
        }
        let left = 2 * index;
        let Some(children) = self.nodes.get(left..left + 2) else {
            *best = node.least_rank;
            return;
        };
        // The more promising half first, so that the other can often be skipped.
        let swapped = usize::from(children[1].least_rank < children[0].least_rank);
        self.search(left + swapped, span, best);
        self.search(left + 1 - swapped, span, best);
    }

    fn sum_up(&mut self, node: usize) {
        let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
        self.nodes[node] = Node {
            greatest_first: left.greatest_first.max(right.greatest_first),
            least_end: left.least_end.min(right.least_end),
            least_rank: left.least_rank.min(right.least_rank),
        };
    }
}

#[derive(Clone, Copy)]
enum Axis {
    First,
    End,
}

/// Sorts points into the order of the `leaves` leaves below a node: the lower half along one axis to the
/// left, and each half recursively along the other axis.
fn halve(points: &mut [Node], leaves: usize, axis: Axis) {
    let half = leaves / 2;
    if points.len() <= 1 {
        return;
    }
    if half < points.len() {
        match axis {
            Axis::First => {
                points.select_nth_unstable_by_key(half, |point| {
                    (point.greatest_first, point.least_rank)
                });
            }
            Axis::End => {
                points
                    .select_nth_unstable_by_key(half, |point| (point.least_end, point.least_rank));
            }
        }
    }
    let other = match axis {
        Axis::First => Axis::End,
        Axis::End => Axis::First,
    };
    let (left, right) = points.split_at_mut(half.min(points.len()));
    halve(left, half, other);
    halve(right, half, other);
}
