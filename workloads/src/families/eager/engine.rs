//! The way back: nodes run latest first, once all gradients of their outputs are there.

use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::Eager;
use super::tape::{Call, Edge, Gradients, Input, Node, Saved, Work};
use super::tensor::{DType, Tensor};

/// Nodes by their number.
type Map<T> = HashMap<u64, T, FixedState>;

/// Nodes whose turn it may be, with their gradients.
#[derive(Default)]
struct Queue {
    /// Priorities and numbers.
    ready: BinaryHeap<(u64, u64)>,
    waiting: Map<(Rc<Node>, Gradients)>,
    /// How many gradients are still to come.
    missing: Map<u64>,
}

impl Eager<'_> {
    /// Computes the gradients of all parameters that a loss depends on.
    pub(crate) fn backward(&self, loss: &Tensor) {
        let Some(root) = loss.edge() else { return };
        let ones = self.alloc_like(loss, "ones_like");
        let mut queue = Queue::default();
        queue.count(&root.node);
        self.on_the_way_back.set(true);
        self.with_recording(false, || {
            queue.arrive(self, root, Some(ones.clone()));
            while let Some((node, gradients)) = queue.next() {
                if self.is_over() {
                    break;
                }
                self.run(&mut queue, &node, gradients);
            }
            self.reduce_waiting();
        });
        self.on_the_way_back.set(false);
    }

    fn run(&self, queue: &mut Queue, node: &Node, mut gradients: Gradients) {
        let work = match &node.work {
            Work::Keep(kept) => {
                if let Some(gradient) = gradients.pop().flatten() {
                    self.keep_gradient(kept, gradient);
                }
                return;
            }
            Work::Compute(work) => work.take(),
        };
        let Some((backward, saved)) = work else {
            return;
        };
        let (kept, recalled, frame) = match saved {
            Saved::Kept(kept) => (kept, Vec::new(), None),
            Saved::Forgotten {
                frame,
                first,
                count,
            } => {
                let recalled = self.recall(&frame, first, count);
                (Vec::new(), recalled, Some(frame))
            }
        };
        let wants: Vec<bool> = node.inputs.iter().map(|i| i.edge.is_some()).collect();
        let call = Call {
            gradients: &gradients,
            saved: if recalled.is_empty() {
                &kept
            } else {
                &recalled
            },
            wants: &wants,
        };
        let mut results = backward(self, &call);
        results.resize(node.inputs.len(), None);
        // What was recalled belongs to the operator alone, what was kept to the record.
        recalled.into_iter().rev().for_each(drop);
        for (result, input) in results.iter_mut().zip(&node.inputs) {
            *result = result.take().map(|gradient| self.fitted(gradient, input));
        }
        drop(gradients);
        drop((kept, frame));
        for (result, input) in results.into_iter().zip(&node.inputs) {
            if let Some(edge) = &input.edge {
                queue.arrive(self, edge, result);
            }
        }
    }

    /// A gradient that only its parameter refers to.
    pub(super) fn own(&self, gradient: Tensor) -> Tensor {
        if gradient.is_only_handle() {
            return gradient;
        }
        self.alloc_like(&gradient, "clone")
    }

    /// A gradient in the shape of what it is the gradient of.
    fn fitted(&self, gradient: Tensor, input: &Input) -> Tensor {
        let mut gradient = gradient;
        if gradient.numbers() > input.numbers {
            gradient = self.sum_to(&gradient, input.numbers, input.width);
        }
        if gradient.dtype() != input.dtype {
            gradient = self.converted(&gradient, input.dtype);
        }
        gradient
    }

    pub(super) fn converted(&self, tensor: &Tensor, dtype: DType) -> Tensor {
        self.alloc(tensor.numbers(), tensor.width(), dtype, "_to_copy")
    }

    /// Adds two gradients, in place if nobody can see it.
    fn added(&self, there: Tensor) -> Tensor {
        if there.is_sole() && !there.is_view() {
            return there;
        }
        self.alloc_like(&there, "add")
    }
}

impl Queue {
    /// Counts the gradients that each node will be given.
    fn count(&mut self, root: &Rc<Node>) {
        let mut unseen = vec![Rc::clone(root)];
        self.missing.insert(root.number, 1);
        while let Some(node) = unseen.pop() {
            for edge in node.inputs.iter().filter_map(|input| input.edge.as_ref()) {
                let missing = self.missing.entry(edge.node.number).or_insert_with(|| {
                    unseen.push(Rc::clone(&edge.node));
                    0
                });
                *missing += 1;
            }
        }
    }

    fn next(&mut self) -> Option<(Rc<Node>, Gradients)> {
        let (_, number) = self.ready.pop()?;
        self.waiting.remove(&number)
    }

    /// A gradient of an output has come, or will not come.
    fn arrive(&mut self, eager: &Eager<'_>, edge: &Edge, gradient: Option<Tensor>) {
        let node = &edge.node;
        let (_, gradients) = self
            .waiting
            .entry(node.number)
            .or_insert_with(|| (Rc::clone(node), vec![None; node.outputs]));
        if let Some(gradient) = gradient
            && let Some(place) = gradients.get_mut(edge.output)
        {
            *place = Some(match place.take() {
                Some(there) => eager.added(there),
                None => gradient,
            });
        }
        if let Some(missing) = self.missing.get_mut(&node.number) {
            *missing = missing.saturating_sub(1);
            if *missing == 0 {
                self.ready.push((node.priority(), node.number));
            }
        }
    }
}
