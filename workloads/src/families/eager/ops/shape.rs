//! Operators that put numbers elsewhere.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::Tensor;

impl Eager<'_> {
    /// A tensor cut along its rows into parts of these widths. Their gradients are put together.
    pub(crate) fn split(&self, x: &Tensor, widths: &[u64]) -> Vec<Tensor> {
        let record = self.record(&[x]);
        let rows = x.rows();
        let parts = widths.iter().map(|width| x.part(rows * width, *width));
        let (numbers, width) = (x.numbers(), x.width());
        record.finish_all(parts.collect(), move |eager, call| {
            let mut gradients = call.gradients.iter().flatten();
            vec![
                gradients
                    .next()
                    .map(|gradient| eager.alloc(numbers, width, gradient.dtype(), "cat")),
            ]
        })
    }

    /// Half of the numbers negated and put in the place of the other half.
    pub(crate) fn rotate_half(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let [first, second] = self.halves(x);
        let (numbers, width) = (x.numbers(), x.width());
        let negated = self.neg(second);
        let record = self.record(&[&negated, &first]);
        let output = self.alloc(numbers, width, x.dtype(), "cat");
        drop(negated);
        let half = width / 2;
        record.finish(output, move |_, gradient, _| {
            let part = || Some(gradient.part(numbers / 2, half));
            vec![part(), part()]
        })
    }

    /// One tensor after another.
    pub(crate) fn cat(&self, first: Option<&Tensor>, second: &Tensor) -> Tensor {
        let inputs: Vec<&Tensor> = first.into_iter().chain([second]).collect();
        let record = self.record(&inputs);
        let shapes: Vec<(u64, u64)> = inputs.iter().map(|x| (x.numbers(), x.width())).collect();
        let numbers = shapes.iter().map(|(numbers, _)| numbers).sum();
        let output = self.alloc(numbers, second.width(), second.dtype(), "cat");
        record.finish(output, move |_, gradient, _| {
            let parts = shapes.iter();
            let parts = parts.map(|(numbers, width)| Some(gradient.part(*numbers, *width)));
            parts.collect()
        })
    }

    /// Every row several times, as heads that share keys and values are.
    pub(crate) fn repeat(&self, x: &Tensor, times: u64) -> Tensor {
        let record = self.record(&[x]);
        let (numbers, width) = (x.numbers() * times, x.width() * times);
        let output = self.alloc(numbers, width, x.dtype(), "clone");
        let before = (x.numbers(), x.width());
        record.finish(output, move |eager, gradient, _| {
            vec![Some(eager.alloc(
                before.0,
                before.1,
                gradient.dtype(),
                "sum",
            ))]
        })
    }

    /// The same numbers, copied so that they lie in order.
    pub(crate) fn contiguous(&self, x: &Tensor) -> Tensor {
        let record = self.record(&[x]);
        record.finish(self.alloc_like(x, "clone"), |_, gradient, _| {
            vec![Some(gradient.clone())]
        })
    }

    /// Each row cut into heads, and heads put before tokens. The gradient has to be put back.
    pub(crate) fn per_head(&self, x: &Tensor, size: u64) -> Tensor {
        let record = self.record(&[x]);
        let width = x.width();
        record.finish(x.reshaped(size).detached(), move |eager, gradient, _| {
            let numbers = gradient.numbers();
            let copy = eager.alloc(numbers, width, gradient.dtype(), "clone");
            vec![Some(copy.as_view())]
        })
    }

    /// Some of the numbers, as a view.
    pub(crate) fn slice(&self, x: &Tensor, numbers: u64, width: u64) -> Tensor {
        let record = self.record(&[x]);
        let (all, before) = (x.numbers(), x.width());
        record.finish(x.part(numbers, width), move |eager, gradient, _| {
            vec![Some(eager.alloc(all, before, gradient.dtype(), "zeros"))]
        })
    }

    fn halves(&self, x: &Tensor) -> [Tensor; 2] {
        let (numbers, width) = (x.numbers(), x.width());
        [(); 2].map(|()| self.slice(x, numbers / 2, width / 2))
    }
}
