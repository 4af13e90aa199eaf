//! Operators that reshape, copy or concatenate.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::Tensor;

impl Eager<'_> {
    /// Splits rows into parts of these widths, whose gradients are concatenated.
    pub(crate) fn split(&self, x: &Tensor, widths: &[u64]) -> Vec<Tensor> {
        let record = self.record(&[x]);
        let rows = x.rows();
        let parts = widths.iter().map(|width| x.part(rows * width, *width));
        record.finish_all(parts.collect(), move |eager, call| {
            let gradient = call.gradients.iter().flatten().next();
            vec![gradient.map(|gradient| call.alloc(eager, 0, gradient, "cat"))]
        })
    }

    /// Swaps the halves of each row and negates one.
    pub(crate) fn rotate_half(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let [first, second] = self.halves(x);
        let (elements, width) = (x.elements(), x.width());
        let negated = self.neg(second);
        let record = self.record(&[&negated, &first]);
        let output = self.alloc(elements, width, x.dtype(), "cat");
        drop(negated);
        let half = width / 2;
        record.finish(output, move |_, gradient, _| {
            let part = || Some(gradient.part(elements / 2, half));
            vec![part(), part()]
        })
    }

    /// Concatenates two tensors.
    pub(crate) fn cat(&self, first: Option<&Tensor>, second: &Tensor) -> Tensor {
        let inputs: Vec<&Tensor> = first.into_iter().chain([second]).collect();
        let record = self.record(&inputs);
        let shapes: Vec<(u64, u64)> = inputs.iter().map(|x| (x.elements(), x.width())).collect();
        let elements = shapes.iter().map(|(elements, _)| elements).sum();
        let output = self.alloc(elements, second.width(), second.dtype(), "cat");
        record.finish(output, move |_, gradient, _| {
            let parts = shapes
                .iter()
                .map(|(elements, width)| Some(gradient.part(*elements, *width)));
            parts.collect()
        })
    }

    /// Repeats rows, as for key-value heads shared by a group.
    pub(crate) fn repeat(&self, x: &Tensor, times: u64) -> Tensor {
        let record = self.record(&[x]);
        let (elements, width) = (x.elements() * times, x.width() * times);
        let output = self.alloc(elements, width, x.dtype(), "clone");
        record.finish_as_input(output, "sum")
    }

    /// A contiguous copy.
    pub(crate) fn contiguous(&self, x: &Tensor) -> Tensor {
        let record = self.record(&[x]);
        let copy = self.alloc_like(x, "clone");
        record.finish(copy, |_, gradient, call| call.passes_on(gradient))
    }

    /// Splits rows into heads and transposes heads and tokens, as a view. The gradient is copied back.
    pub(crate) fn per_head(&self, x: &Tensor, size: u64) -> Tensor {
        let record = self.record(&[x]);
        let width = x.width();
        record.finish(x.reshaped(size).detached(), move |eager, gradient, _| {
            let elements = gradient.elements();
            let copy = eager.alloc(elements, width, gradient.dtype(), "clone");
            vec![Some(copy.as_view())]
        })
    }

    /// A part of the elements, as a view.
    pub(crate) fn slice(&self, x: &Tensor, elements: u64, width: u64) -> Tensor {
        let record = self.record(&[x]);
        record.finish_as_input(x.part(elements, width), "zeros")
    }

    fn halves(&self, x: &Tensor) -> [Tensor; 2] {
        let (elements, width) = (x.elements(), x.width());
        [(); 2].map(|()| self.slice(x, elements / 2, width / 2))
    }
}
