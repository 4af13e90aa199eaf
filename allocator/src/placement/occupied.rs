//! The occupied memory over time, as a tree over the sections.

use super::sections::Span;

/// Stretches of memory, `(start, end)`: ascending, not empty, not adjacent.
#[derive(Clone, Debug, Default)]
struct Stretches(Vec<(u64, u64)>);

impl Stretches {
    /// Adds a stretch, which can touch or cover others.
    fn insert(&mut self, start: u64, end: u64) {
        let first = self.0.partition_point(|stretch| stretch.1 < start);
        let after = self.0.partition_point(|stretch| stretch.0 <= end);
        if first == after {
            self.0.insert(first, (start, end));
            return;
        }
        let joined = (start.min(self.0[first].0), end.max(self.0[after - 1].1));
        self.0[first] = joined;
        self.0.drain(first + 1..after);
    }

    /// Returns the lowest offset from `offset` on with `size` free bytes.
    fn fit(&self, mut offset: u64, size: u64) -> u64 {
        let next = self.0.partition_point(|stretch| stretch.1 <= offset);
        for &(start, end) in &self.0[next..] {
            if offset + size <= start {
                break;
            }
            offset = end;
        }
        offset
    }
}

/// A binary tree over the sections. Each node lists the memory occupied in its sections.
///
/// A buffer is entered in the O(log n) highest nodes within its span, and above them. Adjacent buffers merge
/// into one stretch, so the lists stay short.
#[derive(Debug)]
pub(super) struct Occupied {
    /// Sections of the root: rounded up to a power of two.
    width: usize,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// Occupied in all sections of the node, by buffers that do not live through all sections of its parent.
    throughout: Stretches,
    /// Occupied in at least one section of the node, as known here and below.
    somewhere: Stretches,
}

const ROOT: usize = 1;

impl Occupied {
    pub(super) fn new(sections: usize) -> Self {
        let width = sections.next_power_of_two();
        Self {
            width,
            nodes: vec![Node::default(); 2 * width],
        }
    }

    /// Returns the lowest offset with `size` bytes that are free during `span`.
    pub(super) fn lowest_fit(&self, span: Span, size: u64) -> u64 {
        let mut lists = Vec::new();
        self.lists(ROOT, self.root_span(), span, &mut lists);
        // Each list moves the offset past its occupied stretches, until all agree.
        let (mut offset, mut agreeing) = (0, 0);
        for list in lists.iter().cycle() {
            let fit = list.fit(offset, size);
            agreeing = if fit == offset { agreeing + 1 } else { 1 };
            offset = fit;
            if agreeing == lists.len() {
                break;
            }
        }
        offset
    }

    /// Occupies `start..end` during `span`.
    pub(super) fn occupy(&mut self, span: Span, start: u64, end: u64) {
        self.enter(ROOT, self.root_span(), span, (start, end));
    }

    fn root_span(&self) -> Span {
        Span {
            first: 0,
            end: self.width,
        }
    }

    /// Collects the lists of memory occupied in a section of both `node` and `span`.
    fn lists<'a>(&'a self, node: usize, at: Span, span: Span, lists: &mut Vec<&'a Stretches>) {
        if !at.meets(span) {
            return;
        }
        let within = at.is_within(span);
        let node_here = &self.nodes[node];
        let list = if within {
            &node_here.somewhere
        } else {
            &node_here.throughout
        };
        if !list.0.is_empty() {
            lists.push(list);
        }
        if !within {
            let (left, right) = halves(at);
            self.lists(2 * node, left, span, lists);
            self.lists(2 * node + 1, right, span, lists);
        }
    }

    fn enter(&mut self, node: usize, at: Span, span: Span, (start, end): (u64, u64)) {
        if !at.meets(span) {
            return;
        }
        self.nodes[node].somewhere.insert(start, end);
        if at.is_within(span) {
            self.nodes[node].throughout.insert(start, end);
            return;
        }
        let (left, right) = halves(at);
        self.enter(2 * node, left, span, (start, end));
        self.enter(2 * node + 1, right, span, (start, end));
    }
}

fn halves(span: Span) -> (Span, Span) {
    let middle = usize::midpoint(span.first, span.end);
    let left = Span {
        end: middle,
        ..span
    };
    let right = Span {
        first: middle,
        ..span
    };
    (left, right)
}
