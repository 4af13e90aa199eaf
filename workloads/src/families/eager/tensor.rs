//! Tensors: handles to storage, which is freed with the last of them.

use std::cell::RefCell;
use std::rc::Rc;

use super::Eager;
use super::tape::{Edge, Node};
use crate::families::program;

/// The type of elements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DType {
    Bool,
    /// `float16` or `bfloat16`.
    Half,
    Single,
    /// Indices.
    Long,
}

impl DType {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Bool => 1,
            Self::Half => 2,
            Self::Single => 4,
            Self::Long => 8,
        }
    }
}

/// Blocks of dropped storage. Storage cannot reach the program when it is dropped, so it leaves its block
/// here; the program frees them before its next operation.
pub(super) type Bin = Rc<RefCell<Vec<program::Tensor>>>;

struct Storage {
    bin: Bin,
    /// `None` if the operator ran without allocating.
    block: Option<program::Tensor>,
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.bin.borrow_mut().extend(self.block.take());
    }
}

/// Rows of elements in storage, and where the gradient goes if it needs one.
#[derive(Clone)]
pub(crate) struct Tensor(Rc<Variable>);

struct Variable {
    storage: Rc<Storage>,
    elements: u64,
    width: u64,
    dtype: DType,
    is_view: bool,
    is_matrix: bool,
    edge: Option<Edge>,
}

impl Tensor {
    pub(super) fn new(bin: Bin, block: Option<program::Tensor>, bytes: u64) -> Self {
        let storage = Storage { bin, block };
        Self(Rc::new(Variable {
            storage: Rc::new(storage),
            elements: bytes,
            width: bytes,
            dtype: DType::Bool,
            is_view: false,
            is_matrix: false,
            edge: None,
        }))
    }

    /// Another tensor on the same storage.
    fn on_storage(&self, shape: (u64, u64), dtype: DType, edge: Option<Edge>, view: bool) -> Self {
        Self(Rc::new(Variable {
            storage: Rc::clone(&self.0.storage),
            elements: shape.0,
            width: shape.1,
            dtype,
            is_view: view,
            is_matrix: self.0.is_matrix,
            edge,
        }))
    }

    pub(super) fn shaped(&self, elements: u64, width: u64, dtype: DType) -> Self {
        self.on_storage((elements, width), dtype, None, false)
    }

    /// The same elements in rows of another width, with the same gradient.
    pub(crate) fn reshaped(&self, width: u64) -> Self {
        let edge = self.0.edge.clone();
        self.on_storage((self.0.elements, width), self.0.dtype, edge, true)
    }

    /// A part of the elements, without a gradient.
    pub(crate) fn part(&self, elements: u64, width: u64) -> Self {
        self.on_storage((elements, width), self.0.dtype, None, true)
    }

    /// A view of the tensor, which gradients are not added to in place.
    pub(super) fn as_view(&self) -> Self {
        self.reshaped(self.0.width)
    }

    /// The same tensor marked as a plain matrix: products need no view of it.
    pub(super) fn as_matrix(&self) -> Self {
        Self(Rc::new(Variable {
            storage: Rc::clone(&self.0.storage),
            is_matrix: true,
            edge: None,
            ..*self.0
        }))
    }

    pub(super) fn is_matrix(&self) -> bool {
        self.0.is_matrix
    }

    /// The same elements without a gradient.
    pub(crate) fn detached(&self) -> Self {
        let shape = (self.0.elements, self.0.width);
        self.on_storage(shape, self.0.dtype, None, self.0.is_view)
    }

    pub(super) fn with_edge(&self, edge: Edge) -> Self {
        let shape = (self.0.elements, self.0.width);
        self.on_storage(shape, self.0.dtype, Some(edge), self.0.is_view)
    }

    /// The same elements, needing a gradient.
    pub(crate) fn needing_gradient(&self, eager: &Eager<'_>) -> Self {
        let leaf = Node::leaf(eager.next_number(), Gradient::default());
        self.with_edge(Edge::new(Rc::new(leaf), 0))
    }

    pub(crate) fn elements(&self) -> u64 {
        self.0.elements
    }

    pub(crate) fn width(&self) -> u64 {
        self.0.width
    }

    pub(crate) fn rows(&self) -> u64 {
        self.0.elements / self.0.width.max(1)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.elements * self.0.dtype.bytes()
    }

    pub(super) fn block(&self) -> Option<&program::Tensor> {
        self.0.storage.block.as_ref()
    }

    pub(super) fn edge(&self) -> Option<&Edge> {
        self.0.edge.as_ref()
    }

    pub(crate) fn needs_gradient(&self) -> bool {
        self.0.edge.is_some()
    }

    /// Whether this is the only reference to the tensor and its storage, so that it may be overwritten.
    pub(super) fn is_sole(&self) -> bool {
        Rc::strong_count(&self.0) == 1 && Rc::strong_count(&self.0.storage) == 1
    }

    /// Whether this is the only reference to the tensor, though not necessarily to its storage.
    pub(super) fn is_only_handle(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    pub(super) fn is_view(&self) -> bool {
        self.0.is_view
    }
}

/// The gradient of a parameter.
pub(super) type Gradient = Rc<RefCell<Option<Tensor>>>;

/// A trained tensor.
#[derive(Clone)]
pub(crate) struct Parameter {
    tensor: Tensor,
    gradient: Gradient,
}

impl Parameter {
    pub(super) fn new(data: Tensor, number: u64) -> Self {
        let gradient = Gradient::default();
        let leaf = Node::leaf(number, Rc::clone(&gradient));
        Self {
            tensor: data.with_edge(Edge::new(Rc::new(leaf), 0)),
            gradient,
        }
    }

    pub(super) fn frozen(tensor: Tensor) -> Self {
        let gradient = Gradient::default();
        Self { tensor, gradient }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The gradient, if there is one.
    pub(crate) fn gradient(&self) -> Option<Tensor> {
        self.gradient.borrow().clone()
    }

    pub(crate) fn has_gradient(&self) -> bool {
        self.gradient.borrow().is_some()
    }

    /// Drops the gradient.
    pub(crate) fn clear_gradient(&self) {
        drop(self.gradient.take());
    }
}
