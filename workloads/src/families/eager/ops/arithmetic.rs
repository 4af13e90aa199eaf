//! Elementwise operators.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

/// Allocates the result of broadcasting two tensors: the larger shape in the wider type.
fn shape_of(eager: &Eager<'_>, left: &Tensor, right: &Tensor, tag: &str) -> Tensor {
    let larger = if right.elements() > left.elements() {
        right
    } else {
        left
    };
    let dtype = left.dtype().max(right.dtype());
    eager.alloc(larger.elements(), larger.width(), dtype, tag)
}

impl Eager<'_> {
    /// Converts to another type. Returns the tensor itself if it has that type.
    pub(crate) fn to(&self, x: impl Borrow<Tensor>, dtype: DType) -> Tensor {
        let x = x.borrow();
        if x.dtype() == dtype {
            return x.clone();
        }
        let record = self.record(&[x]);
        let before = x.dtype();
        record.finish(self.converted(x, dtype), move |eager, gradient, _| {
            vec![Some(eager.converted(gradient, before))]
        })
    }

    pub(crate) fn add(&self, left: impl Borrow<Tensor>, right: impl Borrow<Tensor>) -> Tensor {
        let sum = self.sum_of(left.borrow(), right.borrow());
        drop(left);
        drop(right);
        sum
    }

    fn sum_of(&self, left: &Tensor, right: &Tensor) -> Tensor {
        let record = self.record(&[left, right]);
        let sum = shape_of(self, left, right, "add");
        record.finish(sum, |_, gradient, call| call.passes_on(gradient))
    }

    /// Adds in place.
    pub(crate) fn add_in_place(&self, left: Tensor, right: &Tensor) -> Tensor {
        let record = self.record(&[&left, right]);
        record.finish(left.detached(), |_, gradient, call| {
            call.passes_on(gradient)
        })
    }

    pub(crate) fn mul(&self, left: impl Borrow<Tensor>, right: impl Borrow<Tensor>) -> Tensor {
        let product = self.product_of(left.borrow(), right.borrow());
        drop(left);
        drop(right);
        product
    }

    fn product_of(&self, left: &Tensor, right: &Tensor) -> Tensor {
        let mut record = self.record(&[left, right]);
        record.save_for(0, right);
        record.save_for(1, left);
        let product = shape_of(self, left, right, "mul");
        record.finish(product, |eager, gradient, call| {
            // The gradient of each factor needs the other one; that of the second is computed first.
            let (of_left, of_right) = match (call.wants, call.saved) {
                ([true, true], [right, left]) => (Some(right), Some(left)),
                ([true, _], [right]) => (Some(right), None),
                ([_, true], [left]) => (None, Some(left)),
                _ => (None, None),
            };
            let of = |other: &Tensor| shape_of(eager, gradient, other, "mul");
            let of_right = of_right.map(of);
            vec![of_left.map(of), of_right]
        })
    }

    pub(crate) fn div(&self, left: impl Borrow<Tensor>, right: impl Borrow<Tensor>) -> Tensor {
        let (left, right) = (left.borrow(), right.borrow());
        let mut record = self.record(&[left, right]);
        record.save(right);
        record.save_for(1, left);
        let quotient = shape_of(self, left, right, "div");
        record.finish(quotient, |eager, gradient, call| {
            let of_right = call.wants[1].then(|| {
                let quotients = [(); 2].map(|()| eager.alloc_like(gradient, "div"));
                let negated = eager.alloc_like(gradient, "neg");
                let of_right = eager.alloc_like(gradient, "mul");
                drop((negated, quotients));
                of_right
            });
            let of_left = call.wants[0].then(|| eager.alloc_like(gradient, "div"));
            vec![of_left, of_right]
        })
    }

    /// Adds a scalar.
    pub(crate) fn shift(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let record = self.record(&[x]);
        let sum = self.alloc_like(x, "add");
        record.finish(sum, |_, gradient, call| call.passes_on(gradient))
    }

    /// Multiplies by a scalar.
    pub(crate) fn scale(&self, x: impl Borrow<Tensor>, tag: &'static str) -> Tensor {
        let x = x.borrow();
        let record = self.record(&[x]);
        let product = self.alloc_like(x, tag);
        record.finish_like(product, tag)
    }

    pub(crate) fn neg(&self, x: impl Borrow<Tensor>) -> Tensor {
        self.scale(x, "neg")
    }

    /// Raises to a power, in four bytes under mixed precision.
    pub(crate) fn pow(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = self.raised(x.borrow());
        let mut record = self.record(&[&x]);
        record.save(&x);
        let power = self.alloc_like(&x, "pow");
        record.finish(power, |eager, gradient, _| {
            let smaller = eager.alloc_like(gradient, "pow");
            let factor = eager.alloc_like(gradient, "mul");
            let of_x = eager.alloc_like(gradient, "mul");
            drop((factor, smaller));
            vec![Some(of_x)]
        })
    }

    /// The reciprocal of the square root.
    pub(crate) fn rsqrt(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let mut record = self.record(&[x]);
        let root = self.alloc_like(x, "rsqrt");
        record.save(&root);
        record.finish(root, |eager, gradient, _| {
            let cubed = eager.alloc_like(gradient, "pow");
            let scaled = eager.alloc_like(gradient, "mul");
            let of_x = eager.alloc_like(gradient, "mul");
            drop((scaled, cubed));
            vec![Some(of_x)]
        })
    }

    pub(crate) fn tanh(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let mut record = self.record(&[x]);
        let tanh = self.alloc_like(x, "tanh");
        record.save(&tanh);
        record.finish_like(tanh, "tanh_backward")
    }

    pub(crate) fn gelu(&self, x: impl Borrow<Tensor>) -> Tensor {
        self.activation(x.borrow(), "gelu", "gelu_backward")
    }

    pub(crate) fn silu(&self, x: impl Borrow<Tensor>) -> Tensor {
        self.activation(x.borrow(), "silu", "silu_backward")
    }

    fn activation(&self, x: &Tensor, tag: &str, backward: &'static str) -> Tensor {
        let mut record = self.record(&[x]);
        record.save(x);
        let output = self.alloc_like(x, tag);
        record.finish_like(output, backward)
    }

    /// Sets random elements to zero.
    pub(crate) fn dropout(&self, x: impl Borrow<Tensor>) -> Tensor {
        let x = x.borrow();
        let mut record = self.record(&[x]);
        let mask = self.alloc(x.elements(), x.width(), DType::Bool, "native_dropout");
        let output = self.alloc_like(x, "native_dropout");
        record.save(&mask);
        record.finish_like(output, "native_dropout_backward")
    }
}
