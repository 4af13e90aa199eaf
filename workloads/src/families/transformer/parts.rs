//! What models are built of.

use std::borrow::Borrow;

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

/// Makes parameters, and lists them in the order in which they are made.
pub(crate) struct Builder<'e, 's> {
    pub(crate) eager: &'e Eager<'s>,
    pub(crate) dtype: DType,
    /// Whether parameters are not trained, and not listed.
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

    /// Rows of `width` numbers.
    pub(crate) fn table(&mut self, rows: u64, width: u64) -> Parameter {
        if self.frozen {
            return self.eager.frozen(rows * width, width, self.dtype);
        }
        let parameter = self.eager.parameter(rows * width, width, self.dtype);
        self.parameters.push(parameter.clone());
        parameter
    }

    /// A weight, and perhaps a bias.
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

/// A product with a weight.
#[derive(Clone)]
pub(crate) struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
    adapter: Option<Adapter>,
}

/// Two narrow products beside a wide one, with the same result when they are added.
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

    /// Numbers of the two products of an adapter of a certain rank.
    pub(crate) fn adapter_sizes(&self, rank: u64) -> [u64; 2] {
        let weight = self.weight.tensor();
        [weight.width() * rank, weight.rows() * rank]
    }

    /// Gives it an adapter of a certain rank.
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

    /// As GPT-2 does it.
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

    /// Indices of tokens, from the host.
    pub(crate) fn ids(self, eager: &Eager<'_>) -> Tensor {
        let tokens = self.tokens();
        eager.alloc(tokens, self.length, DType::Long, "_to_copy")
    }
}

/// What a model is given. Where it takes less than this, one tensor is in several places.
pub(crate) struct Batch {
    /// Indices of tokens.
    pub(crate) tokens: Tensor,
    /// Which segment of its sequence a token belongs to.
    pub(crate) segments: Tensor,
    /// Which tokens are not padding.
    pub(crate) counting: Tensor,
    /// What should come out.
    pub(crate) labels: Tensor,
}

impl Batch {
    /// Of tokens, each of which is the label of the one before.
    pub(crate) fn of(tokens: Tensor) -> Self {
        Self {
            segments: tokens.clone(),
            counting: tokens.clone(),
            labels: tokens.clone(),
            tokens,
        }
    }
}

/// What a model makes of a batch.
pub(crate) struct Output {
    pub(crate) loss: Tensor,
    pub(crate) logits: Tensor,
}

/// The numbers of tokens in their sequence.
pub(crate) fn positions(eager: &Eager<'_>, length: u64) -> Tensor {
    let range = eager.alloc(length, length, DType::Long, "arange");
    eager.shift(range)
}

/// Whether several sequences are packed into one: whether positions start again somewhere.
pub(crate) fn look_for_packing(eager: &Eager<'_>, shape: Sequences) {
    let Sequences { batch, length } = shape;
    let tokens = shape.tokens();
    let longs = |numbers: u64, tag: &str| eager.alloc(numbers, 1, DType::Long, tag);
    let flags = |numbers: u64, tag: &str| eager.alloc(numbers, 1, DType::Bool, tag);
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
