//! One pass over a batch, forward and back: embeddings, layers, loss.

use super::{Precision, Transformer};
use crate::program::{Program, Tensor};

/// A pass under way.
pub(super) struct Pass<'a, 's> {
    pub(super) program: &'a mut Program<'s>,
    /// Width of the residual stream.
    pub(super) hidden: u64,
    pub(super) heads: u64,
    /// Tokens in each sequence of the batch.
    length: u64,
    /// Tokens in the batch.
    tokens: u64,
    model: &'a Transformer,
    /// Gradients of the parameters, last parameter first.
    pub(super) gradients: Vec<Tensor>,
    /// Copies of biases that live as long as the forward pass.
    bias_casts: Vec<Tensor>,
}

/// What a matrix product keeps for the way back.
pub(super) struct ProductInputs {
    /// Copies of its weight and its activation in the precision of products; or the activation
    /// itself, if it is in that precision.
    pub(super) kept: Vec<Tensor>,
    /// Numbers a token of its input and of its output.
    pub(super) widths: (u64, u64),
}

impl<'a, 's> Pass<'a, 's> {
    pub(super) fn new(model: &'a Transformer, length: u64, program: &'a mut Program<'s>) -> Self {
        Self {
            program,
            hidden: model.hidden,
            heads: model.heads,
            length,
            tokens: model.batch * length,
            model,
            gradients: Vec::new(),
            bias_casts: Vec::new(),
        }
    }

    /// The gradients of all parameters, in the parameters' order.
    pub(super) fn run(mut self) -> Vec<Tensor> {
        let h = self.hidden;
        let ids = self.alloc(self.tokens * 8, "_to_copy");
        self.program.mark("forward");
        let token_embeddings = self.stored(h, "index_select");
        let positions = self.length * h * self.model.precision.stored();
        let position_embeddings = self.alloc(positions, "index_select");
        let embedded = self.stored(h, "add");
        let mask = self.alloc(self.tokens * h, "native_dropout");
        let mut residual = self.stored(h, "native_dropout");
        self.program.free(embedded);
        let mut layers = Vec::new();
        for _ in 0..self.model.layers {
            let (saved, output) = self.layer_forward(residual);
            layers.push(saved);
            residual = output;
        }
        let norm = self.norm();
        self.program.free(token_embeddings);
        self.program.free(position_embeddings);
        let mut flowing = self.loss(norm.output, norm.statistics, residual);
        while let Some(saved) = layers.pop() {
            flowing = self.layer_backward(saved, flowing);
        }
        self.embeddings_backward(flowing, mask);
        self.program.free(ids);
        self.gradients.reverse();
        self.gradients
    }

    /// The loss and the way back to the last layer's output; its gradient.
    fn loss(&mut self, normed: Tensor, statistics: Vec<Tensor>, residual: Tensor) -> Tensor {
        let (h, v) = (self.hidden, self.model.vocabulary);
        let wide = self.tokens * v * 4;
        let inputs = self.product_inputs(normed, (h, v), false);
        let logits = self.computed(v, "mm");
        let logits_wide = self.alloc(wide, "_to_copy");
        let probabilities = self.program.replace(logits_wide, wide, "_log_softmax");
        let total = self.alloc(4, "nll_loss_forward");
        self.free_bias_casts();
        self.program.free(logits);

        self.program.mark("backward");
        let gradient = self.alloc(wide, "nll_loss_backward");
        let gradient = self
            .program
            .replace(gradient, wide, "_log_softmax_backward_data");
        self.program.free(probabilities);
        let narrow = self.computed(v, "_to_copy");
        self.program.free(gradient);
        let of_normed = self.product_backward(narrow, inputs, false);
        let of_normed = self.widen(of_normed, self.tokens * h);
        let flowing = self.stored(h, "native_layer_norm_backward");
        self.norm_gradients();
        self.program.free(of_normed);
        self.program.free(residual);
        self.program.free_all(statistics);
        self.program.free(total);
        flowing
    }

    /// A forward pass is over.
    pub(super) fn free_bias_casts(&mut self) {
        let casts = std::mem::take(&mut self.bias_casts);
        self.program.free_all(casts);
    }

    fn embeddings_backward(&mut self, flowing: Tensor, mask: Tensor) {
        let dropped = self.stored(self.hidden, "native_dropout_backward");
        self.program.free(flowing);
        self.program.free(mask);
        let model = self.model;
        let of_positions = model.sequence.longest() * model.hidden * model.precision.stored();
        let of_positions = self.alloc(of_positions, "zeros");
        self.gradients.push(of_positions);
        // The gradient of the token embeddings is there already, from the product at the loss, with
        // which they share their weight; this one is added to it.
        let vocabulary = self.model.vocabulary * self.hidden * self.model.precision.stored();
        self.program.scratch(vocabulary, "zeros");
        self.program.free(dropped);
        let of_tokens = self.gradients.remove(0);
        self.gradients.push(of_tokens);
    }

    /// Inputs of a product as they are kept for the way back: under mixed precision copies of weight
    /// and activation, and the activation itself goes; otherwise the activation.
    pub(super) fn product_inputs(
        &mut self,
        activation: Tensor,
        (rows, columns): (u64, u64),
        has_bias: bool,
    ) -> ProductInputs {
        let mut kept = Vec::new();
        if self.casts() {
            let computed = self.model.precision.computed();
            kept.push(self.alloc(rows * columns * computed, "_to_copy"));
            kept.push(self.computed(rows, "_to_copy"));
            if has_bias {
                let bias = self.alloc(columns * computed, "_to_copy");
                self.bias_casts.push(bias);
            }
            self.program.free(activation);
        } else {
            kept.push(activation);
        }
        ProductInputs {
            kept,
            widths: (rows, columns),
        }
    }

    /// From the gradient of a product's output to that of its input; those of bias and weight are
    /// noted.
    pub(super) fn product_backward(
        &mut self,
        of_output: Tensor,
        inputs: ProductInputs,
        has_bias: bool,
    ) -> Tensor {
        let (rows, columns) = inputs.widths;
        let computed = self.model.precision.computed();
        let of_input = self.computed(rows, "mm");
        let of_weight = self.alloc(rows * columns * computed, "mm");
        let of_bias = has_bias.then(|| {
            let of_bias = self.alloc(columns * computed, "sum");
            self.program
                .scratch(self.tokens * columns * REDUCTION, "sum");
            of_bias
        });
        self.program.free(of_output);
        self.program.free_all(inputs.kept);
        if let Some(of_bias) = of_bias {
            let of_bias = self.widen(of_bias, columns);
            self.gradients.push(of_bias);
        }
        let of_weight = self.widen(of_weight, rows * columns);
        self.gradients.push(of_weight);
        of_input
    }

    /// A copy of a weight in the precision of products, if it is stored in another; one of its bias
    /// is made, too, and noted.
    pub(super) fn weight_cast(&mut self, rows: u64, columns: u64) -> Vec<Tensor> {
        if !self.casts() {
            return Vec::new();
        }
        let computed = self.model.precision.computed();
        let bias = self.alloc(columns * computed, "_to_copy");
        self.bias_casts.push(bias);
        vec![self.alloc(rows * columns * computed, "_to_copy")]
    }

    /// A tensor of as many numbers in the precision that is stored; itself if it is in it.
    pub(super) fn widen(&mut self, tensor: Tensor, numbers: u64) -> Tensor {
        if !self.casts() {
            return tensor;
        }
        let bytes = numbers * self.model.precision.stored();
        self.program.replace(tensor, bytes, "_to_copy")
    }

    /// A norm's output, and mean and deviation of each token.
    pub(super) fn norm(&mut self) -> Norm {
        let output = self.stored(self.hidden, "native_layer_norm");
        let statistics = [(); 2].map(|()| self.alloc(self.tokens * 4, "native_layer_norm"));
        Norm {
            output,
            statistics: statistics.into(),
        }
    }

    pub(super) fn norm_gradients(&mut self) {
        let bytes = self.hidden * self.model.precision.stored();
        for _ in 0..2 {
            let gradient = self.alloc(bytes, "native_layer_norm_backward");
            self.gradients.push(gradient);
        }
    }

    /// Whether products are computed in another precision than numbers are stored in.
    pub(super) fn casts(&self) -> bool {
        self.model.precision == Precision::Mixed
    }

    /// Whether only the inputs of layers are kept.
    pub(super) fn recomputes(&self) -> bool {
        self.model.recompute
    }

    pub(super) fn alloc(&mut self, bytes: u64, tag: &str) -> Tensor {
        self.program.alloc(bytes, tag)
    }

    /// A tensor of the residual stream, `width` numbers a token.
    pub(super) fn stored(&mut self, width: u64, tag: &str) -> Tensor {
        self.alloc(self.tokens * width * self.model.precision.stored(), tag)
    }

    /// A tensor in the precision of products, `width` numbers a token.
    pub(super) fn computed(&mut self, width: u64, tag: &str) -> Tensor {
        self.alloc(self.tokens * width * self.model.precision.computed(), tag)
    }

    /// One byte a number, `width` numbers a token.
    pub(super) fn mask(&mut self, width: u64) -> Tensor {
        self.alloc(self.tokens * width, "native_dropout")
    }

    /// Four bytes for each token and head.
    pub(super) fn per_head(&mut self, tag: &str) -> Tensor {
        self.alloc(self.tokens * self.heads * 4, tag)
    }
}

/// Bytes of scratch for each number that is summed up over the tokens.
const REDUCTION: u64 = 6;

/// What a norm makes.
pub(super) struct Norm {
    pub(super) output: Tensor,
    pub(super) statistics: Vec<Tensor>,
}
