//! The record of what was computed, from which gradients are.

use std::cell::RefCell;
use std::rc::Rc;

use super::Eager;
use super::checkpoint::{Frame, Hook};
use super::tensor::{DType, Gradient, Tensor};

/// Where a gradient goes: an output of the node that made the tensor.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(super) node: Rc<Node>,
    pub(super) output: usize,
}

impl Edge {
    pub(super) fn new(node: Rc<Node>, output: usize) -> Self {
        Self { node, output }
    }
}

/// An operator that was run, or a parameter.
pub(crate) struct Node {
    pub(super) number: u64,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: usize,
    pub(super) work: Work,
}

/// An input of a node: what its gradient must look like, and where that goes, if anywhere.
pub(super) struct Input {
    pub(super) edge: Option<Edge>,
    pub(super) numbers: u64,
    pub(super) width: u64,
    pub(super) dtype: DType,
}

pub(super) enum Work {
    /// Keep the gradient.
    Keep(Gradient),
    /// Compute those of the inputs. Nothing is left once that was done.
    Compute(RefCell<Option<(Backward, Saved)>>),
}

/// Gradients of the inputs, from those of the outputs.
pub(super) type Backward = Box<dyn FnOnce(&Eager<'_>, &Call<'_>) -> Gradients>;

/// One for each input that wants one.
pub(crate) type Gradients = Vec<Option<Tensor>>;

/// What a node is given on the way back.
pub(crate) struct Call<'a> {
    /// Gradients of the outputs; none where an output was not used.
    pub(crate) gradients: &'a [Option<Tensor>],
    /// What was saved, in that order.
    pub(crate) saved: &'a [Tensor],
    /// Which inputs want a gradient.
    pub(crate) wants: &'a [bool],
}

/// What a node keeps.
pub(super) enum Saved {
    Kept(Vec<Tensor>),
    /// Nothing: it is part of what will be computed again.
    Forgotten {
        frame: Rc<Frame>,
        first: usize,
        count: usize,
    },
}

impl Node {
    pub(super) fn leaf(number: u64, gradient: Gradient) -> Self {
        Self {
            number,
            inputs: Vec::new(),
            outputs: 1,
            work: Work::Keep(gradient),
        }
    }

    /// Nodes run latest first, but gradients of parameters are kept at once.
    pub(super) fn priority(&self) -> u64 {
        match self.work {
            Work::Keep(_) => u64::MAX,
            Work::Compute(_) => self.number,
        }
    }

    pub(super) fn is_leaf(&self) -> bool {
        matches!(self.work, Work::Keep(_))
    }
}

/// A record can be long: it is taken apart link by link, for each would otherwise drop the next.
impl Drop for Node {
    fn drop(&mut self) {
        if let Work::Compute(work) = &mut self.work {
            drop(work.take());
        }
        let mut rest = std::mem::take(&mut self.inputs);
        while let Some(input) = rest.pop() {
            if let Some(Ok(mut node)) = input.edge.map(|edge| Rc::try_unwrap(edge.node)) {
                if let Work::Compute(work) = &mut node.work {
                    drop(work.take());
                }
                rest.append(&mut node.inputs);
            }
        }
    }
}

/// An operator that is being run.
pub(crate) struct Recording<'e, 's> {
    eager: &'e Eager<'s>,
    /// None if no gradient will be wanted.
    inputs: Option<Vec<Input>>,
    saved: Saved,
}

impl<'s> Eager<'s> {
    /// Starts an operator on inputs.
    pub(crate) fn record(&self, inputs: &[&Tensor]) -> Recording<'_, 's> {
        let needed = self.recording.get() && inputs.iter().any(|input| input.needs_gradient());
        let inputs = needed.then(|| inputs.iter().map(|input| Input::of(input)).collect());
        let saved = match &*self.hook.borrow() {
            Some(Hook::Forget(frame)) if needed => Saved::Forgotten {
                frame: Rc::clone(frame),
                first: frame.expected(),
                count: 0,
            },
            _ => Saved::Kept(Vec::new()),
        };
        Recording {
            eager: self,
            inputs,
            saved,
        }
    }
}

impl Input {
    fn of(tensor: &Tensor) -> Self {
        Self {
            edge: tensor.edge().cloned(),
            numbers: tensor.numbers(),
            width: tensor.width(),
            dtype: tensor.dtype(),
        }
    }
}

impl Recording<'_, '_> {
    /// Whether the gradient of an input will be wanted.
    pub(crate) fn wants(&self, input: usize) -> bool {
        let inputs = self.inputs.as_deref().unwrap_or_default();
        inputs.get(input).is_some_and(|input| input.edge.is_some())
    }

    /// Keeps a tensor for the way back.
    pub(crate) fn save(&mut self, tensor: &Tensor) {
        if self.inputs.is_none() {
            return;
        }
        match &mut self.saved {
            Saved::Forgotten { frame, count, .. } => {
                frame.forget();
                *count += 1;
            }
            Saved::Kept(kept) => {
                kept.push(tensor.detached());
                self.eager.refill(tensor);
            }
        }
    }

    /// Keeps a tensor if the gradient of an input will be wanted.
    pub(crate) fn save_for(&mut self, input: usize, tensor: &Tensor) {
        if self.wants(input) {
            self.save(tensor);
        }
    }

    /// The output, and how to get from its gradient to those of the inputs.
    pub(crate) fn finish(
        self,
        output: Tensor,
        backward: impl FnOnce(&Eager<'_>, &Tensor, &Call<'_>) -> Gradients + 'static,
    ) -> Tensor {
        let Some(inputs) = self.inputs else {
            return output;
        };
        let work: Backward = Box::new(|eager, call| match call.gradients {
            [Some(gradient)] => backward(eager, gradient, call),
            _ => Vec::new(),
        });
        let node = self.eager.node(inputs, 1, work, self.saved);
        output.with_edge(Edge::new(node, 0))
    }

    /// As [`Self::finish`], with several outputs.
    pub(crate) fn finish_all(
        self,
        outputs: Vec<Tensor>,
        backward: impl FnOnce(&Eager<'_>, &Call<'_>) -> Gradients + 'static,
    ) -> Vec<Tensor> {
        let Some(inputs) = self.inputs else {
            return outputs;
        };
        let work: Backward = Box::new(backward);
        let node = self.eager.node(inputs, outputs.len(), work, self.saved);
        let outputs = outputs.iter().enumerate();
        outputs
            .map(|(n, output)| output.with_edge(Edge::new(Rc::clone(&node), n)))
            .collect()
    }
}

impl Eager<'_> {
    fn node(&self, inputs: Vec<Input>, outputs: usize, work: Backward, saved: Saved) -> Rc<Node> {
        // What saves nothing has nothing to do with what is computed again.
        let saved = match saved {
            Saved::Forgotten { count: 0, .. } => Saved::Kept(Vec::new()),
            saved => saved,
        };
        Rc::new(Node {
            number: self.next_number(),
            inputs,
            outputs,
            work: Work::Compute(RefCell::new(Some((work, saved)))),
        })
    }
}
