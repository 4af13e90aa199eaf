//! Scaled dot-product attention with three backends.

use crate::families::eager::Eager;
use crate::families::eager::tape::Gradients;
use crate::families::eager::tensor::{DType, Tensor};

/// Shapes of the queries and of what they attend to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) batch: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    /// Elements of a head.
    pub(crate) size: u64,
    /// Query tokens and key tokens per sequence.
    pub(crate) queries: u64,
    pub(crate) keys: u64,
    pub(crate) dropout: bool,
}

/// The implementation of attention, as in PyTorch's `SDPBackend`.
pub(crate) enum Backend<'a> {
    /// Flash attention: no scores in memory, no mask.
    Flash,
    /// Memory-efficient attention with a mask: no scores in memory.
    Efficient(&'a Tensor),
    /// Separate operators, with scores in memory.
    Math,
}

impl Eager<'_> {
    /// Runs attention on queries, keys and values.
    pub(crate) fn attention(
        &self,
        inputs: [&Tensor; 3],
        heads: Heads,
        backend: &Backend<'_>,
    ) -> Tensor {
        match backend {
            Backend::Flash => self.flash_attention(inputs, heads),
            Backend::Efficient(mask) => {
                let bias = self.bias_of(mask, heads);
                self.efficient_attention(inputs, &bias, heads)
            }
            Backend::Math => self.math_attention(inputs, heads),
        }
    }

    fn flash_attention(&self, [q, k, v]: [&Tensor; 3], heads: Heads) -> Tensor {
        const TAG: &str = "_flash_attention_forward";
        let mut record = self.record(&[q, k, v]);
        for input in [k, q, v] {
            record.save(input);
        }
        let output = self.alloc_like(q, TAG);
        let sums = self.alloc(heads.rows(), 1, DType::Single, TAG);
        let mut seed = self.alloc_bytes(16, TAG);
        let offset = self.alloc_bytes(8, TAG);
        if heads.dropout {
            seed = self.alloc_bytes(16, TAG);
        }
        for kept in [&sums, &output, &seed, &offset] {
            record.save(kept);
        }
        let output = record.finish(output, move |eager, gradient, _| {
            heads.flash_backward(eager, gradient)
        });
        drop((sums, seed, offset));
        output
    }

    /// Converts the mask to an additive bias with aligned rows.
    fn bias_of(&self, mask: &Tensor, heads: Heads) -> Tensor {
        let dtype = DType::Half;
        let constants = [(); 2].map(|()| self.alloc(1, 1, dtype, "scalar_tensor"));
        let bias = self.alloc(mask.elements(), heads.keys, dtype, "where");
        drop(constants);
        let aligned = heads.keys.next_multiple_of(8);
        if aligned == heads.keys {
            return bias;
        }
        let rows = mask.elements() / heads.keys.max(1);
        self.alloc(rows * aligned, aligned, dtype, "constant_pad_nd")
    }

    fn efficient_attention(&self, [q, k, v]: [&Tensor; 3], bias: &Tensor, heads: Heads) -> Tensor {
        const TAG: &str = "_efficient_attention_forward";
        let mut record = self.record(&[q, k, v]);
        for input in [bias, k, q, v] {
            record.save(input);
        }
        let output = self.alloc_like(q, TAG);
        let rows = heads.batch * heads.heads * heads.queries.next_multiple_of(32);
        let sums = self.alloc(rows, 1, DType::Single, TAG);
        record.save(&sums);
        record.save(&output);
        record.finish(output, move |eager, gradient, _| {
            heads.efficient_backward(eager, gradient)
        })
    }

    fn math_attention(&self, [q, k, v]: [&Tensor; 3], heads: Heads) -> Tensor {
        let scores = (heads.rows() * heads.keys, heads.keys);
        let mut weights = self.batched_product([q, k], scores);
        weights = self.scale(&weights, "mul");
        weights = self.softmax(&weights);
        weights = self.to(&weights, q.dtype());
        if heads.dropout {
            weights = self.dropout(&weights);
        }
        self.batched_product([&weights, v], (q.elements(), q.width()))
    }
}

impl Heads {
    fn rows(self) -> u64 {
        self.batch * self.heads * self.queries
    }

    /// Allocates the gradients of queries, keys and values.
    fn gradients(self, eager: &Eager<'_>, of_output: &Tensor, tag: &str) -> Gradients {
        let width = self.kv_heads * self.size;
        let keys = self.batch * self.keys * width;
        let of_q = eager.alloc_like(of_output, tag);
        let of_keys = || eager.alloc(keys, width, of_output.dtype(), tag);
        let of_k = of_keys();
        vec![Some(of_q), Some(of_k), Some(of_keys())]
    }

    fn flash_backward(self, eager: &Eager<'_>, of_output: &Tensor) -> Gradients {
        const TAG: &str = "_flash_attention_backward";
        let gradients = self.gradients(eager, of_output, TAG);
        let rows = self.batch * self.heads * self.queries.next_multiple_of(128);
        let sums = eager.alloc(rows, 1, DType::Single, TAG);
        let wide = self.size.next_multiple_of(32);
        let of_q_wide = eager.alloc(rows * wide, wide, DType::Single, TAG);
        if self.kv_heads < self.heads {
            // Gradients are computed per attention head, then summed over each group.
            let each = self.batch * self.keys * self.heads * self.size;
            let of_each = [(); 2].map(|()| eager.alloc(each, self.size, of_output.dtype(), TAG));
            of_each.into_iter().rev().for_each(drop);
        }
        drop(of_q_wide);
        drop(sums);
        gradients
    }

    fn efficient_backward(self, eager: &Eager<'_>, of_output: &Tensor) -> Gradients {
        const TAG: &str = "_efficient_attention_backward";
        let gradients = self.gradients(eager, of_output, TAG);
        let sums = eager.alloc(self.rows(), 1, DType::Single, TAG);
        // Blocks of queries accumulate in four bytes, each with a counter.
        let block = if self.size > 64 { 128 } else { 64 };
        let blocks = self.queries.div_ceil(block);
        let bytes = blocks * (4 * block * self.size + 16);
        let partial = eager.alloc_bytes(self.batch * self.heads * bytes, TAG);
        drop(sums);
        drop(partial);
        gradients
    }
}
