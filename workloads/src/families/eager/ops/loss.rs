//! Losses.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

impl Eager<'_> {
    /// Cross entropy, averaged over the labels.
    pub(crate) fn cross_entropy(&self, logits: impl Borrow<Tensor>, labels: &Tensor) -> Tensor {
        let probabilities = self.log_softmax(logits.borrow());
        self.nll_loss(&self.raised(&probabilities), labels)
    }

    fn log_softmax(&self, x: &Tensor) -> Tensor {
        let mut record = self.record(&[x]);
        let output = self.alloc_like(x, "_log_softmax");
        record.save(&output);
        record.finish_like(output, "_log_softmax_backward_data")
    }

    fn nll_loss(&self, x: &Tensor, labels: &Tensor) -> Tensor {
        let mut record = self.record(&[x]);
        record.save(x);
        record.save(labels);
        let one = || self.alloc(1, 1, x.dtype(), "nll_loss_forward");
        let (output, total) = (one(), one());
        record.save(&total);
        record.finish_as_input(output, "nll_loss_backward")
    }

    /// The loss of a causal language model: each token is the label of the one before.
    pub(crate) fn language_model_loss(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let logits = self.to(logits, DType::Single);
        let elements = labels.elements();
        let padded = elements + labels.rows();
        let padded = self.alloc(padded, 1, DType::Long, "constant_pad_nd");
        let labels = self.alloc(elements, 1, DType::Long, "clone");
        let loss = self.cross_entropy(&logits, &labels);
        drop(logits);
        drop(padded);
        loss
    }
}
