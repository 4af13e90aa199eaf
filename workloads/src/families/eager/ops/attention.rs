//! Attention, in three ways: without scores in memory, the same with a mask, and with scores.

use crate::families::eager::Eager;
use crate::families::eager::tape::Gradients;
use crate::families::eager::tensor::{DType, Tensor};

/// Shapes of the queries and of what they attend to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) batch: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    /// Numbers of a head.
    pub(crate) size: u64,
    /// Tokens that ask, and that are asked.
    pub(crate) queries: u64,
    pub(crate) keys: u64,
    pub(crate) dropout: bool,
}

/// How attention is computed.
pub(crate) enum Way<'a> {
    /// Flash attention.
    Flash,
    /// The kernel that takes a mask: which token may attend to which.
    Masked(&'a Tensor),
    /// One operator after the other.
    Materialised,
}

impl Eager<'_> {
    /// What each query makes of the values.
    pub(crate) fn attention(&self, inputs: [&Tensor; 3], heads: Heads, way: &Way<'_>) -> Tensor {
        match way {
            Way::Flash => self.flash_attention(inputs, heads),
            Way::Masked(mask) => {
                let bias = self.bias_of(mask, heads);
                self.masked_attention(inputs, &bias, heads)
            }
            Way::Materialised => self.materialised_attention(inputs, heads),
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

    /// The mask as numbers that are added to the scores, in rows that kernels can read.
    fn bias_of(&self, mask: &Tensor, heads: Heads) -> Tensor {
        let dtype = DType::Half;
        let constants = [(); 2].map(|()| self.alloc(1, 1, dtype, "scalar_tensor"));
        let bias = self.alloc(mask.numbers(), heads.keys, dtype, "where");
        drop(constants);
        let aligned = heads.keys.next_multiple_of(8);
        if aligned == heads.keys {
            return bias;
        }
        let rows = mask.numbers() / heads.keys.max(1);
        self.alloc(rows * aligned, aligned, dtype, "constant_pad_nd")
    }

    fn masked_attention(&self, [q, k, v]: [&Tensor; 3], bias: &Tensor, heads: Heads) -> Tensor {
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
            heads.masked_backward(eager, gradient)
        })
    }

    fn materialised_attention(&self, [q, k, v]: [&Tensor; 3], heads: Heads) -> Tensor {
        let scores = (heads.rows() * heads.keys, heads.keys);
        let mut weights = self.batched_product([q, k], scores);
        weights = self.scale(&weights, "mul");
        weights = self.softmax(&weights);
        weights = self.to(&weights, q.dtype());
        if heads.dropout {
            weights = self.dropout(&weights);
        }
        self.batched_product([&weights, v], (q.numbers(), q.width()))
    }
}

impl Heads {
    fn rows(self) -> u64 {
        self.batch * self.heads * self.queries
    }

    /// Gradients of queries, keys and values.
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
            // Each head has its own; those of a group are summed up.
            let each = self.batch * self.keys * self.heads * self.size;
            let of_each = [(); 2].map(|()| eager.alloc(each, self.size, of_output.dtype(), TAG));
            of_each.into_iter().rev().for_each(drop);
        }
        drop(of_q_wide);
        drop(sums);
        gradients
    }

    fn masked_backward(self, eager: &Eager<'_>, of_output: &Tensor) -> Gradients {
        const TAG: &str = "_efficient_attention_backward";
        let gradients = self.gradients(eager, of_output, TAG);
        let sums = eager.alloc(self.rows(), 1, DType::Single, TAG);
        // Blocks of queries are added up in four bytes, each with a counter.
        let block = if self.size > 64 { 128 } else { 64 };
        let blocks = self.queries.div_ceil(block);
        let bytes = blocks * (4 * block * self.size + 16);
        let partial = eager.alloc_bytes(self.batch * self.heads * bytes, TAG);
        drop(sums);
        drop(partial);
        gradients
    }
}
