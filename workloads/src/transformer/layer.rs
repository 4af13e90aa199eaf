//! One layer: attention, feed-forward network, and their gradients.

use super::pass::{Norm, Pass, ProductInputs};
use crate::program::Tensor;

/// What a layer keeps until its gradient is computed.
pub(super) struct Saved {
    /// What went in.
    input: Tensor,
    /// Everything else; nothing if it is to be computed again.
    inside: Option<Inside>,
}

struct Inside {
    attention: Attention,
    /// What went from attention to the feed-forward network.
    between: Tensor,
    feed_forward: FeedForward,
}

struct Attention {
    norm: Vec<Tensor>,
    qkv_inputs: ProductInputs,
    qkv: Tensor,
    /// Output and logarithms of sums.
    flash: [Tensor; 2],
    projection_inputs: Vec<Tensor>,
    mask: Tensor,
}

struct FeedForward {
    norm: Vec<Tensor>,
    up_inputs: ProductInputs,
    activation: Activation,
    down_inputs: ProductInputs,
    mask: Tensor,
}

/// Of 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), one operator after the other, what its derivative
/// is computed from.
struct Activation {
    half: Tensor,
    wide: Tensor,
    tanh: Tensor,
    one_more: Tensor,
}

impl Pass<'_, '_> {
    /// What the layer keeps, and its output.
    pub(super) fn layer_forward(&mut self, input: Tensor) -> (Saved, Tensor) {
        let (inside, output) = self.inside_forward();
        let inside = if self.recomputes() {
            self.forget(inside);
            None
        } else {
            Some(inside)
        };
        (Saved { input, inside }, output)
    }

    /// From the gradient of the output to that of the input, which is added up in the same place.
    pub(super) fn layer_backward(&mut self, saved: Saved, flowing: Tensor) -> Tensor {
        let inside = match saved.inside {
            Some(inside) => inside,
            None => {
                let (inside, output) = self.inside_forward();
                self.program.free(output);
                self.free_bias_casts();
                inside
            }
        };
        self.feed_forward_backward(inside.feed_forward, inside.between);
        self.attention_backward(inside.attention, saved.input);
        flowing
    }

    fn inside_forward(&mut self) -> (Inside, Tensor) {
        let (attention, attended) = self.attention_forward();
        let between = self.stored(self.hidden, "add");
        let (feed_forward, fed) = self.feed_forward_forward();
        let output = self.stored(self.hidden, "add");
        self.program.free(attended);
        self.program.free(fed);
        let inside = Inside {
            attention,
            between,
            feed_forward,
        };
        (inside, output)
    }

    fn attention_forward(&mut self) -> (Attention, Tensor) {
        let h = self.hidden;
        let Norm { output, statistics } = self.norm();
        let qkv_inputs = self.product_inputs(output, (h, 3 * h), true);
        let qkv = self.computed(3 * h, "addmm");
        let flash = [
            self.computed(h, "_flash_attention_forward"),
            self.per_head("_flash_attention_forward"),
        ];
        let projection_inputs = self.weight_cast(h, h);
        let projected = self.computed(h, "addmm");
        let mask = self.mask(h);
        let attended = self.computed(h, "native_dropout");
        self.program.free(projected);
        let attention = Attention {
            norm: statistics,
            qkv_inputs,
            qkv,
            flash,
            projection_inputs,
            mask,
        };
        (attention, attended)
    }

    fn feed_forward_forward(&mut self) -> (FeedForward, Tensor) {
        let h = self.hidden;
        let Norm { output, statistics } = self.norm();
        let up_inputs = self.product_inputs(output, (h, 4 * h), true);
        let up = self.computed(4 * h, "addmm");
        let (activation, activated) = self.activation_forward();
        self.program.free(up);
        let down_inputs = self.product_inputs(activated, (4 * h, h), true);
        let down = self.computed(h, "addmm");
        let mask = self.mask(h);
        let fed = self.computed(h, "native_dropout");
        self.program.free(down);
        let feed_forward = FeedForward {
            norm: statistics,
            up_inputs,
            activation,
            down_inputs,
            mask,
        };
        (feed_forward, fed)
    }

    fn activation_forward(&mut self) -> (Activation, Tensor) {
        let wide = 4 * self.hidden;
        let half = self.computed(wide, "mul");
        let input = self.stored(wide, "_to_copy");
        let mut inner = self.stored(wide, "pow");
        for operator in ["mul", "add", "mul", "tanh"] {
            inner = self.program.replace(inner, input.bytes(), operator);
        }
        let one_more = self.stored(wide, "add");
        let activated = self.stored(wide, "mul");
        let activation = Activation {
            half,
            wide: input,
            tanh: inner,
            one_more,
        };
        (activation, activated)
    }

    fn feed_forward_backward(&mut self, saved: FeedForward, between: Tensor) {
        let dropped = self.dropout_backward(saved.mask);
        let of_activated = self.product_backward(dropped, saved.down_inputs, true);
        let of_activated = self.widen_activation(of_activated);
        let of_up = self.activation_backward(saved.activation, of_activated);
        let of_normed = self.product_backward(of_up, saved.up_inputs, true);
        self.norm_backward(of_normed, between, saved.norm);
    }

    fn activation_backward(&mut self, saved: Activation, of_activated: Tensor) -> Tensor {
        let wide = 4 * self.hidden;
        let of_one_more = self.stored(wide, "mul");
        let of_half_wide = self.stored(wide, "mul");
        let of_half = self.computed(wide, "_to_copy");
        self.program
            .free_all([of_half_wide, of_activated, saved.one_more, saved.half]);
        let bytes = of_one_more.bytes();
        let of_tanh = self.program.replace(of_one_more, bytes, "tanh_backward");
        self.program.free(saved.tanh);
        let of_inner = self.program.replace(of_tanh, bytes, "mul");
        let of_up = self.computed(wide, "_to_copy");
        let scaled = self.program.replace(of_inner, bytes, "mul");
        let square = self.stored(wide, "pow");
        let cubed = self.stored(wide, "mul");
        let of_cube = self.stored(wide, "mul");
        self.program.free_all([cubed, square, scaled, saved.wide]);
        let narrow = self.computed(wide, "_to_copy");
        self.program.free(of_cube);
        self.program.free(narrow);
        self.program.free(of_half);
        of_up
    }

    fn attention_backward(&mut self, saved: Attention, input: Tensor) {
        let h = self.hidden;
        let dropped = self.dropout_backward(saved.mask);
        let projection = ProductInputs {
            kept: saved.projection_inputs,
            widths: (h, h),
        };
        let of_output = self.product_backward(dropped, projection, true);
        let of_heads = [(); 3].map(|()| self.computed(h, "_flash_attention_backward"));
        let sums = self.per_head("_flash_attention_backward");
        let accumulated = self.stored(h, "_flash_attention_backward");
        self.program
            .free_all([accumulated, sums, of_output, saved.qkv]);
        self.program.free_all(saved.flash);
        let of_qkv = self.computed(3 * h, "cat");
        self.program.free_all(of_heads);
        let of_normed = self.product_backward(of_qkv, saved.qkv_inputs, true);
        self.norm_backward(of_normed, input, saved.norm);
    }

    /// The gradient before a dropout, from that which flows through the layers.
    fn dropout_backward(&mut self, mask: Tensor) -> Tensor {
        let narrow = self.computed(self.hidden, "_to_copy");
        let dropped = self.computed(self.hidden, "native_dropout_backward");
        self.program.free(narrow);
        self.program.free(mask);
        dropped
    }

    /// The gradient before a norm is added to that which flows past it.
    fn norm_backward(&mut self, of_normed: Tensor, input: Tensor, statistics: Vec<Tensor>) {
        let bytes = input.bytes();
        let of_normed = if self.casts() {
            self.program.replace(of_normed, bytes, "_to_copy")
        } else {
            of_normed
        };
        let of_input = self.alloc(bytes, "native_layer_norm_backward");
        self.norm_gradients();
        self.program.free(of_normed);
        self.program.free(input);
        self.program.free_all(statistics);
        self.program.free(of_input);
    }

    fn widen_activation(&mut self, of_activated: Tensor) -> Tensor {
        if !self.casts() {
            return of_activated;
        }
        let wide = self.stored(4 * self.hidden, "_to_copy");
        self.program.free(of_activated);
        wide
    }

    /// Gives back what a layer has kept.
    fn forget(&mut self, inside: Inside) {
        let Inside {
            attention,
            between,
            feed_forward,
        } = inside;
        let program = &mut self.program;
        program.free_all(attention.norm);
        program.free_all(attention.qkv_inputs.kept);
        program.free(attention.qkv);
        program.free_all(attention.flash);
        program.free_all(attention.projection_inputs);
        program.free_all([attention.mask, between]);
        program.free_all(feed_forward.norm);
        program.free_all(feed_forward.up_inputs.kept);
        let activation = feed_forward.activation;
        program.free_all([
            activation.half,
            activation.wide,
            activation.tanh,
            activation.one_more,
        ]);
        program.free_all(feed_forward.down_inputs.kept);
        program.free(feed_forward.mask);
    }
}
