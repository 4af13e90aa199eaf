//! Norms, means and softmax.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

impl Eager<'_> {
    /// Layer normalisation, saving mean and deviation of each row.
    pub(crate) fn layer_norm(
        &self,
        x: impl Borrow<Tensor>,
        weight: &Parameter,
        bias: &Parameter,
    ) -> Tensor {
        const TAG: &str = "native_layer_norm";
        const BACKWARD: &str = "native_layer_norm_backward";
        let x = self.raised(x.borrow());
        let mut record = self.record(&[&x, weight.tensor(), bias.tensor()]);
        record.save(&x);
        let output = self.alloc_like(&x, TAG);
        let statistics = [(); 2].map(|()| self.alloc(x.rows(), 1, DType::Single, TAG));
        for statistic in &statistics {
            record.save(statistic);
        }
        let width = x.width();
        record.finish(output, move |eager, gradient, call| {
            let of_x = call.wants[0].then(|| eager.alloc_like(gradient, BACKWARD));
            let of = |n: usize| {
                call.wants[n].then(|| eager.alloc(width, width, gradient.dtype(), BACKWARD))
            };
            let of_weight = of(1);
            vec![of_x, of_weight, of(2)]
        })
    }

    /// The mean of each row.
    pub(crate) fn mean(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let record = self.record(&[x]);
        record.finish_as_input(self.alloc(x.rows(), 1, x.dtype(), "mean"), "div")
    }

    /// Softmax of each row, in four bytes.
    pub(crate) fn softmax(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = self.to(x, DType::Single);
        let mut record = self.record(&[&x]);
        let output = self.alloc_like(&x, "_softmax");
        record.save(&output);
        record.finish(output, |eager, gradient, _| {
            let of_x = eager.alloc_like(gradient, "_softmax_backward_data");
            drop(eager.alloc_like(gradient, "mul"));
            vec![Some(of_x)]
        })
    }

    /// RMS normalisation as separate operators, in four bytes.
    pub(crate) fn rms_norm(&self, x: impl Borrow<Tensor>, weight: &Parameter) -> Tensor {
        let before = x.borrow().dtype();
        let mut hidden = self.to(x, DType::Single);
        let variance = self.mean(self.pow(&hidden));
        hidden = self.mul(&hidden, self.rsqrt(self.shift(&variance)));
        let scaled = self.mul(weight.tensor(), self.to(&hidden, before));
        drop(hidden);
        drop(variance);
        scaled
    }
}
