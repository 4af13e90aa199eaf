//! Linear layers and matrix products.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tape::Gradients;
use crate::families::eager::tensor::{Parameter, Tensor};

impl Eager<'_> {
    /// A linear layer; the kernel also adds the bias, if there is one.
    pub(crate) fn linear(
        &self,
        x: impl Borrow<Tensor>,
        weight: &Tensor,
        bias: Option<&Parameter>,
    ) -> Tensor {
        let bias = bias.map(|bias| self.lowered(bias.tensor()));
        let weight = self.lowered(weight);
        let x = self.lowered(x.borrow());
        match bias {
            Some(bias) => self.product_with_bias(&x, &weight, &bias),
            None => self.product(&x, &weight),
        }
    }

    /// A linear layer as in GPT-2: the casts are in another order.
    pub(crate) fn addmm(
        &self,
        bias: &Parameter,
        x: impl Borrow<Tensor>,
        weight: &Parameter,
    ) -> Tensor {
        let weight = self.lowered(weight.tensor());
        let x = self.lowered(x.borrow());
        let bias = self.lowered(bias.tensor());
        self.product_with_bias(&x, &weight, &bias)
    }

    fn product(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let mut record = self.record(&[x, weight]);
        record.save_for(0, weight);
        record.save_for(1, x);
        let shapes = Shapes::of(x, weight);
        let output = self.alloc(shapes.rows * shapes.wide, shapes.wide, x.dtype(), "mm");
        self.workspace(false, "mm");
        record.finish(output, move |eager, gradient, call| {
            let of_weight = call.wants[1].then(|| shapes.of_weight(eager, gradient));
            let of_x = call.wants[0].then(|| shapes.of_x(eager, gradient));
            vec![of_x, of_weight]
        })
    }

    fn product_with_bias(&self, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Tensor {
        let mut record = self.record(&[x, weight, bias]);
        record.save_for(1, x);
        record.save_for(0, weight);
        let shapes = Shapes::of(x, weight);
        let output = self.alloc(shapes.rows * shapes.wide, shapes.wide, x.dtype(), "addmm");
        self.workspace(true, "addmm");
        record.finish(output, move |eager, gradient, call| -> Gradients {
            let of_x = call.wants[0].then(|| shapes.of_x(eager, gradient));
            let of_weight = call.wants[1].then(|| shapes.of_weight(eager, gradient));
            let of_bias = call.wants[2].then(|| eager.column_sums(gradient, shapes.wide));
            vec![of_x, of_weight, of_bias]
        })
    }
}

impl Eager<'_> {
    /// A batched matrix product.
    pub(crate) fn batched_product(&self, [x, y]: [&Tensor; 2], shape: (u64, u64)) -> Tensor {
        let mut record = self.record(&[x, y]);
        record.save_for(0, y);
        record.save_for(1, x);
        let output = self.alloc(shape.0, shape.1, x.dtype(), "bmm");
        self.workspace(false, "bmm");
        record.finish(output, |eager, gradient, call| {
            let of = |n: usize| call.wants[n].then(|| call.alloc(eager, n, gradient, "bmm"));
            let of_y = of(1);
            vec![of(0), of_y]
        })
    }
}

/// Rows to multiply, and their widths before and after.
#[derive(Clone, Copy)]
struct Shapes {
    rows: u64,
    narrow: u64,
    wide: u64,
    is_matrix: bool,
}

impl Shapes {
    fn of(x: &Tensor, weight: &Tensor) -> Self {
        Self {
            rows: x.rows(),
            narrow: x.width(),
            wide: weight.elements() / x.width().max(1),
            is_matrix: x.is_matrix(),
        }
    }

    fn of_x(self, eager: &Eager<'_>, gradient: &Tensor) -> Tensor {
        let elements = self.rows * self.narrow;
        let of_x = eager.alloc(elements, self.narrow, gradient.dtype(), "mm");
        eager.workspace(false, "mm");
        if self.is_matrix { of_x } else { of_x.as_view() }
    }

    fn of_weight(self, eager: &Eager<'_>, gradient: &Tensor) -> Tensor {
        let elements = self.narrow * self.wide;
        let of_weight = eager.alloc(elements, self.narrow, gradient.dtype(), "mm");
        eager.workspace(false, "mm");
        of_weight.as_view()
    }
}
