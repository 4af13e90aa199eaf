//! The graph of recorded operators, from which gradients are computed.

use std::cell::RefCell;
use std::rc::Rc;

use super::Eager;
use super::checkpoint::{Frame, Hook};
use super::tensor::{DType, Gradient, Tensor};

/// Where a gradient goes: an output of the node that computed the tensor.
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

/// A recorded operator, or a parameter.
pub(crate) struct Node {
    pub(super) number: u64,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: usize,
    pub(super) work: Work,
}

/// An input of a node: the shape of its gradient, and where that goes, if anywhere.
pub(super) struct Input {
    pub(super) edge: Option<Edge>,
    pub(super) elements: u64,
    pub(super) width: u64,
    pub(super) dtype: DType,
}

/// The work of a node in the backward pass.
pub(super) enum Work {
    /// Keep the gradient of a parameter.
    Keep(Gradient),
    /// Compute the gradients of the inputs; `None` once done.
    Compute(RefCell<Option<(Backward, Saved)>>),
}

/// Computes gradients of inputs from those of outputs.
pub(super) type Backward = Box<dyn FnOnce(&Eager<'_>, &Call<'_>) -> Gradients>;

/// Gradients, one per input that needs one.
pub(crate) type Gradients = Vec<Option<Tensor>>;

/// The arguments of a node in the backward pass.
pub(crate) struct Call<'a> {
    /// Gradients of the outputs; `None` for unused outputs.
    pub(crate) gradients: &'a [Option<Tensor>],
    /// Saved tensors, in order of saving.
    pub(crate) saved: &'a [Tensor],
    /// Which inputs need a gradient.
    pub(crate) wants: &'a [bool],
    pub(super) inputs: &'a [Input],
}

impl Call<'_> {
    /// Allocates a gradient with the shape of an input, in the type of that of the output.
    pub(crate) fn alloc(
        &self,
        eager: &Eager<'_>,
        input: usize,
        output: &Tensor,
        tag: &str,
    ) -> Tensor {
        let Input {
            elements, width, ..
        } = self.inputs[input];
        eager.alloc(elements, width, output.dtype(), tag)
    }

    /// Gives each input that needs a gradient the gradient of the output.
    pub(crate) fn passes_on(&self, gradient: &Tensor) -> Gradients {
        let wants = self.wants.iter();
        wants.map(|w| w.then(|| gradient.clone())).collect()
    }
}

/// The saved tensors of a node.
pub(super) enum Saved {
    Kept(Vec<Tensor>),
    /// None: they will be recomputed.
    Discarded {
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

    /// Nodes run latest first, but parameters keep their gradients at once.
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

/// Drops a graph iteratively: dropping a long one recursively would overflow the stack.
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

/// An operator being run.
pub(crate) struct Recording<'e, 's> {
    eager: &'e Eager<'s>,
    /// `None` if no gradient is needed.
    inputs: Option<Vec<Input>>,
    saved: Saved,
}

impl<'s> Eager<'s> {
    /// Starts an operator on inputs.
    pub(crate) fn record(&self, inputs: &[&Tensor]) -> Recording<'_, 's> {
        let needed = self.recording.get() && inputs.iter().any(|input| input.needs_gradient());
        let inputs = needed.then(|| inputs.iter().map(|input| Input::of(input)).collect());
        let saved = match &*self.hook.borrow() {
            Some(Hook::Discard(frame)) => Saved::Discarded {
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
            elements: tensor.elements(),
            width: tensor.width(),
            dtype: tensor.dtype(),
        }
    }
}

impl Recording<'_, '_> {
    /// Whether an input needs a gradient.
    pub(crate) fn wants(&self, input: usize) -> bool {
        let inputs = self.inputs.as_deref().unwrap_or_default();
        inputs.get(input).is_some_and(|input| input.edge.is_some())
    }

    /// Saves a tensor for the backward pass.
    pub(crate) fn save(&mut self, tensor: &Tensor) {
        if self.inputs.is_none() {
            return;
        }
        match &mut self.saved {
            Saved::Discarded { frame, count, .. } => {
                frame.discard();
                *count += 1;
            }
            Saved::Kept(kept) => {
                kept.push(tensor.detached());
                self.eager.refill(tensor);
            }
        }
    }

    /// Saves a tensor if an input needs a gradient.
    pub(crate) fn save_for(&mut self, input: usize, tensor: &Tensor) {
        if self.wants(input) {
            self.save(tensor);
        }
    }

    /// Returns the output, recorded with the function that computes the gradients of the inputs.
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

    /// [`Self::finish`] with one input, whose gradient a kernel computes in the shape of that of the output.
    pub(crate) fn finish_like(self, output: Tensor, kernel: &'static str) -> Tensor {
        self.finish(output, move |eager, gradient, _| {
            vec![Some(eager.alloc_like(gradient, kernel))]
        })
    }

    /// [`Self::finish_like`], with a gradient in the shape of the input.
    pub(crate) fn finish_as_input(self, output: Tensor, kernel: &'static str) -> Tensor {
        self.finish(output, move |eager, gradient, call| {
            vec![Some(call.alloc(eager, 0, gradient, kernel))]
        })
    }

    /// Like [`Self::finish`], with several outputs.
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
        // A node without saved tensors needs no recomputation.
        let saved = match saved {
            Saved::Discarded { count: 0, .. } => Saved::Kept(Vec::new()),
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
