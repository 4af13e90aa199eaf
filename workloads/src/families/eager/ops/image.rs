//! Operators on square images.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

/// Images of one size. Each row of their tensor is one channel of one image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Images {
    pub(crate) batch: u64,
    pub(crate) channels: u64,
    /// Pixels per side.
    pub(crate) side: u64,
}

impl Images {
    pub(crate) fn elements(self) -> u64 {
        self.batch * self.channels * self.pixels()
    }

    pub(crate) fn pixels(self) -> u64 {
        self.side * self.side
    }

    /// The output of a convolution or pooling with this window and stride.
    pub(crate) fn after(self, channels: u64, window: u64, stride: u64) -> Self {
        let padded = self.side + 2 * (window / 2);
        let side = padded.saturating_sub(window) / stride + 1;
        Self {
            channels,
            side,
            ..self
        }
    }
}

/// Workspaces of a convolution: forward, gradient of the images, gradient of the weight.
pub(crate) type Workspaces = [u64; 3];

impl Eager<'_> {
    fn workspace_of(&self, bytes: u64, tag: &str) {
        if bytes > 0 {
            drop(self.alloc_bytes(bytes, tag));
        }
    }

    pub(crate) fn convolution(
        &self,
        x: &Tensor,
        weight: &Parameter,
        after: Images,
        workspaces: Workspaces,
    ) -> Tensor {
        const TAG: &str = "cudnn_convolution";
        const BACKWARD: &str = "convolution_backward";
        let weight = self.lowered(weight.tensor());
        let x = self.lowered(x);
        let mut record = self.record(&[&x, &weight]);
        record.save(&x);
        record.save(&weight);
        let output = self.alloc(after.elements(), after.pixels(), x.dtype(), TAG);
        self.workspace_of(workspaces[0], TAG);
        record.finish(output, move |eager, gradient, call| {
            let of = |n: usize| {
                call.wants[n].then(|| {
                    let of = call.alloc(eager, n, gradient, BACKWARD);
                    eager.workspace_of(workspaces[n + 1], BACKWARD);
                    of
                })
            };
            let of_x = of(0);
            vec![of_x, of(1)]
        })
    }

    /// Batch normalisation, saving mean and deviation of each channel.
    pub(crate) fn batch_norm(
        &self,
        x: impl Borrow<Tensor>,
        weight: &Parameter,
        bias: &Parameter,
    ) -> Tensor {
        const TAG: &str = "cudnn_batch_norm";
        const BACKWARD: &str = "cudnn_batch_norm_backward";
        let x = x.borrow();
        let mut record = self.record(&[x, weight.tensor(), bias.tensor()]);
        record.save(x);
        let output = self.alloc_like(x, TAG);
        let channels = weight.tensor().elements();
        let statistic = || self.alloc(channels, channels, DType::Single, TAG);
        let statistics = [statistic(), statistic()];
        for statistic in &statistics {
            record.save(statistic);
        }
        record.finish(output, move |eager, gradient, _| {
            let of_x = eager.alloc_like(gradient, BACKWARD);
            let of = || Some(eager.alloc(channels, channels, DType::Single, BACKWARD));
            let of_weight = of();
            vec![Some(of_x), of_weight, of()]
        })
    }

    /// Sets negative elements to zero, in place.
    pub(crate) fn relu_in_place(&self, x: Tensor) -> Tensor {
        let mut record = self.record(&[&x]);
        record.save(&x);
        record.finish_like(x.detached(), "threshold_backward")
    }

    /// The largest element of each window, saving its position.
    pub(crate) fn max_pool(&self, x: &Tensor, after: Images) -> Tensor {
        const TAG: &str = "max_pool2d_with_indices";
        let mut record = self.record(&[x]);
        record.save(x);
        let output = self.alloc(after.elements(), after.pixels(), x.dtype(), TAG);
        let places = self.alloc(after.elements(), after.pixels(), DType::Long, TAG);
        record.save(&places);
        record.finish_as_input(output, "max_pool2d_with_indices_backward")
    }
}
