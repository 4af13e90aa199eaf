//! The backward pass: nodes run latest first, once all gradients of their outputs have arrived.

use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::Eager;
use super::tape::{Call, Edge, Gradients, Input, Node, Saved, Work};
use super::tensor::{DType, Tensor};

/// Nodes by their number.
type Map<T> = HashMap<u64, T, FixedState>;

/// Nodes to run, with their gradients.
#[derive(Default)]
struct Queue {
    /// Priorities and numbers of nodes whose gradients have all arrived.
    ready: BinaryHeap<(u64, u64)>,
    waiting: Map<(Rc<Node>, Gradients)>,
    /// Number of gradients that have not arrived yet, by node.
    missing: Map<u64>,
}

impl Eager<'_> {
    /// Computes the gradients of all parameters that a loss depends on.
    pub(crate) fn backward(&self, loss: &Tensor) {
        let Some(root) = loss.edge() else { return };
        let ones = self.alloc_like(loss, "ones_like");
        let mut queue = Queue::default();
        queue.count(&root.node);
        self.in_backward.set(true);
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
        self.in_backward.set(false);
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
        let (kept, recomputed, frame) = match saved {
            Saved::Kept(kept) => (kept, Vec::new(), None),
            Saved::Discarded {
                frame,
                first,
                count,
            } => {
                let recomputed = self.recompute(&frame, first, count);
                (Vec::new(), recomputed, Some(frame))
            }
        };
        let wants: Vec<bool> = node.inputs.iter().map(|i| i.edge.is_some()).collect();
        let call = Call {
            gradients: &gradients,
            saved: if recomputed.is_empty() {
                &kept
            } else {
                &recomputed
            },
            wants: &wants,
            inputs: &node.inputs,
        };
        let mut results = backward(self, &call);
        results.resize(node.inputs.len(), None);
        // Recomputed tensors belong to the operator alone, saved ones to the graph.
        recomputed.into_iter().rev().for_each(drop);
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

    /// The gradient itself if nothing else refers to it, or a copy.
    pub(super) fn own(&self, gradient: Tensor) -> Tensor {
        if gradient.is_only_handle() {
            return gradient;
        }
        self.alloc_like(&gradient, "clone")
    }

    /// The gradient in the shape and type of its input.
    fn fitted(&self, gradient: Tensor, input: &Input) -> Tensor {
        let mut gradient = gradient;
        if gradient.elements() > input.elements {
            gradient = self.sum_to(&gradient, input.elements, input.width);
        }
        if gradient.dtype() != input.dtype {
            gradient = self.converted(&gradient, input.dtype);
        }
        gradient
    }

    pub(super) fn converted(&self, tensor: &Tensor, dtype: DType) -> Tensor {
        self.alloc(tensor.elements(), tensor.width(), dtype, "_to_copy")
    }

    /// Adds two gradients, in place if nothing else refers to the first.
    fn added(&self, first: Tensor) -> Tensor {
        if first.is_sole() && !first.is_view() {
            return first;
        }
        self.alloc_like(&first, "add")
    }
}

impl Queue {
    /// Counts the gradients that each node will receive.
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

    /// Receives a gradient of an output, or that there is none.
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
                Some(first) => eager.added(first),
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
