//! Building blocks of models.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

/// Creates parameters and lists them in order of creation.
pub(crate) struct Builder<'e, 's> {
    pub(crate) eager: &'e Eager<'s>,
    pub(crate) dtype: DType,
    /// Whether new parameters are frozen, and so not listed.
    pub(crate) frozen: bool,
    pub(crate) parameters: Vec<Parameter>,
}

impl<'e, 's> Builder<'e, 's> {
    pub(crate) fn new(eager: &'e Eager<'s>, dtype: DType) -> Self {
        Self {
            eager,
            dtype,
            frozen: false,
            parameters: Vec::new(),
        }
    }

    /// A parameter of rows of `width` elements.
    pub(crate) fn table(&mut self, rows: u64, width: u64) -> Parameter {
        if self.frozen {
            return self.eager.frozen(rows * width, width, self.dtype);
        }
        let parameter = self.eager.parameter(rows * width, width, self.dtype);
        self.parameters.push(parameter.clone());
        parameter
    }

    /// A linear layer, with or without bias.
    pub(crate) fn linear(&mut self, narrow: u64, wide: u64, bias: bool) -> Linear {
        Linear {
            weight: self.table(wide, narrow),
            bias: bias.then(|| self.table(1, wide)),
            adapter: None,
        }
    }

    pub(crate) fn layer_norm(&mut self, width: u64) -> LayerNorm {
        LayerNorm {
            weight: self.table(1, width),
            bias: self.table(1, width),
        }
    }
}

/// A linear layer.
#[derive(Clone)]
pub(crate) struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
    adapter: Option<Adapter>,
}

/// A LoRA adapter: two narrow linear layers whose result is added to that of a wide one.
#[derive(Clone)]
struct Adapter {
    down: Parameter,
    up: Parameter,
}

impl Linear {
    pub(crate) fn run(&self, eager: &Eager<'_>, x: impl Borrow<Tensor>) -> Tensor {
        let result = eager.linear(x.borrow(), self.weight.tensor(), self.bias.as_ref());
        match &self.adapter {
            Some(adapter) => adapter.run(eager, x.borrow(), result),
            None => result,
        }
    }

    /// Sizes of the two weights of an adapter of this rank.
    pub(crate) fn adapter_sizes(&self, rank: u64) -> [u64; 2] {
        let weight = self.weight.tensor();
        [weight.width() * rank, weight.rows() * rank]
    }

    /// Adds an adapter of this rank.
    pub(crate) fn adapt(&mut self, build: &mut Builder<'_, '_>, rank: u64) {
        let weight = self.weight.tensor();
        let (narrow, wide) = (weight.width(), weight.rows());
        self.adapter = Some(Adapter {
            down: build.table(rank, narrow),
            up: build.table(wide, rank),
        });
    }

    pub(crate) fn is_adapted(&self) -> bool {
        self.adapter.is_some()
    }

    /// Runs as GPT-2's `Conv1D`, with a transposed weight.
    pub(crate) fn run_transposed(&self, eager: &Eager<'_>, x: impl Borrow<Tensor>) -> Tensor {
        match &self.bias {
            Some(bias) => eager.addmm(bias, x, &self.weight),
            None => self.run(eager, x),
        }
    }
}

impl Adapter {
    fn run(&self, eager: &Eager<'_>, x: &Tensor, result: Tensor) -> Tensor {
        let x = eager.to(x, DType::Single);
        let down = eager.linear(eager.dropout(&x), self.down.tensor(), None);
        let up = eager.linear(down, self.up.tensor(), None);
        let sum = eager.add(&result, eager.scale(up, "mul"));
        drop(result);
        sum
    }
}

/// Layer normalisation.
#[derive(Clone)]
pub(crate) struct LayerNorm {
    weight: Parameter,
    bias: Parameter,
}

impl LayerNorm {
    pub(crate) fn run(&self, eager: &Eager<'_>, x: impl Borrow<Tensor>) -> Tensor {
        eager.layer_norm(x, &self.weight, &self.bias)
    }
}

/// A feed-forward network with a gate.
#[derive(Clone)]
pub(super) struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Gated {
    pub(super) fn new(hidden: u64, wide: u64, build: &mut Builder<'_, '_>) -> Self {
        Self {
            gate: build.linear(hidden, wide, false),
            up: build.linear(hidden, wide, false),
            down: build.linear(wide, hidden, false),
        }
    }

    /// The linear layers that can have an adapter.
    pub(super) fn linears(&mut self) -> [&mut Linear; 3] {
        [&mut self.gate, &mut self.up, &mut self.down]
    }

    pub(super) fn run(&self, eager: &Eager<'_>, x: &Tensor) -> Tensor {
        let gate = eager.silu(self.gate.run(eager, x));
        let up = self.up.run(eager, x);
        self.down.run(eager, eager.mul(gate, up))
    }
}

/// Sequences of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequences {
    pub(crate) batch: u64,
    pub(crate) length: u64,
}

impl Sequences {
    pub(crate) fn tokens(self) -> u64 {
        self.batch * self.length
    }

    /// Token ids, copied from the host.
    pub(crate) fn ids(self, eager: &Eager<'_>) -> Tensor {
        let tokens = self.tokens();
        eager.alloc(tokens, self.length, DType::Long, "_to_copy")
    }
}

/// The inputs of a model. A model that takes fewer shares one tensor among the fields.
pub(crate) struct Batch {
    /// Token ids.
    pub(crate) tokens: Tensor,
    /// The segment of each token.
    pub(crate) segments: Tensor,
    /// The padding mask.
    pub(crate) padding_mask: Tensor,
    /// The expected output.
    pub(crate) labels: Tensor,
}

impl Batch {
    /// A batch of tokens, each the label of the one before.
    pub(crate) fn of(tokens: Tensor) -> Self {
        Self {
            segments: tokens.clone(),
            padding_mask: tokens.clone(),
            labels: tokens.clone(),
            tokens,
        }
    }
}

/// The outputs of a model.
pub(crate) struct Output {
    pub(crate) loss: Tensor,
    pub(crate) logits: Tensor,
}

/// The positions of tokens in their sequence.
pub(crate) fn positions(eager: &Eager<'_>, length: u64) -> Tensor {
    let range = eager.alloc(length, length, DType::Long, "arange");
    eager.shift(range)
}

/// Checks whether several sequences are packed into one, that is, whether positions restart.
pub(crate) fn detect_packing(eager: &Eager<'_>, shape: Sequences) {
    let Sequences { batch, length } = shape;
    let tokens = shape.tokens();
    let longs = |elements: u64, tag: &str| eager.alloc(elements, 1, DType::Long, tag);
    let flags = |elements: u64, tag: &str| eager.alloc(elements, 1, DType::Bool, tag);
    let first = longs(batch, "sub");
    let difference = {
        let longer = longs(tokens + batch, "cat");
        let difference = longs(tokens, "sub");
        drop(longer);
        difference
    };
    let starts = flags(tokens, "ne");
    let sequences = longs(batch * length, "cumsum");
    drop(longs(tokens, "_to_copy"));
    drop(starts);
    let equal = flags(batch, "eq");
    let all = flags(1, "all");
    drop(equal);
    drop(all);
    drop(first);
    drop(difference);
    drop(sequences);
}
