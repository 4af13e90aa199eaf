//! Training steps of a GPT: parameters and optimizer state that stay, activations that are kept for
//! the backward pass and freed in reverse, gradients that live until the optimizer has used them,
//! and many short-lived temporaries.
//!
//! It shows what allocators are tuned for: a stack of lifetimes with a bump at the loss. With
//! variable lengths it shows fragmentation, since each step asks for other sizes. It does not show
//! several streams, communication, or compiled code.
//!
//! It is modelled on Hugging Face's GPT-2 under PyTorch 2.11 with flash attention, as recorded in
//! `traces/gpt2_small_amp_foreach.csv.gz`: with the parameters of that run the peak of what is
//! requested is within 1 % of the recorded one, and so is the efficiency. It is not that run: some
//! temporaries of the way back are left out, scratch of reductions has one size a number, and a few
//! frees come earlier.

mod layer;
mod pass;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use self::pass::Pass;
use crate::op::{Sink, Workload, WorkloadError};
use crate::program::{Program, Tensor};
use crate::rng::Rng;

/// A training run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Transformer {
    /// What it is called in results.
    pub name: String,
    /// Blocks of attention and feed-forward network.
    pub layers: u64,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Tokens in the vocabulary.
    pub vocabulary: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// Tokens in a sequence: always as many, or between `min` and `max`.
    pub sequence: Lengths,
    /// What numbers are stored as: `mixed`, `half` or `single`.
    pub precision: Precision,
    /// What updates the parameters: `adamw`, `momentum` or `sgd`.
    pub optimizer: Optimizer,
    /// Whether only the input of each layer is kept, and the rest computed again when it is needed.
    pub recompute: bool,
    /// Training steps.
    pub steps: u64,
    /// Determines the lengths.
    pub seed: u64,
}

/// How long the sequences of each step are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a length, as in 1024, or { min = 128, max = 1024 }"
)]
pub enum Lengths {
    /// Always the same.
    Fixed(u64),
    /// Anything between two lengths, both possible.
    Uniform {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
}

impl Lengths {
    fn longest(self) -> u64 {
        match self {
            Self::Fixed(length) => length,
            Self::Uniform { max, .. } => max,
        }
    }

    fn next(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(length) => length,
            Self::Uniform { min, max } => rng.between(min, max),
        }
    }
}

/// What numbers are stored as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Parameters and residual stream in 4 bytes, matrix products in 2 (automatic mixed precision).
    Mixed,
    /// Everything in 2 bytes.
    Half,
    /// Everything in 4 bytes.
    Single,
}

impl Precision {
    /// Bytes of a parameter, of its gradient, and of a number in the residual stream.
    fn stored(self) -> u64 {
        match self {
            Self::Mixed | Self::Single => 4,
            Self::Half => 2,
        }
    }

    /// Bytes of a number in a matrix product.
    fn computed(self) -> u64 {
        match self {
            Self::Mixed | Self::Half => 2,
            Self::Single => 4,
        }
    }
}

/// What updates the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Two numbers of state for each parameter, and as much scratch as there are parameters.
    AdamW,
    /// One number of state for each parameter.
    Momentum,
    /// No state.
    Sgd,
}

impl Optimizer {
    /// Numbers of state for each parameter.
    fn states(self) -> u64 {
        match self {
            Self::AdamW => 2,
            Self::Momentum => 1,
            Self::Sgd => 0,
        }
    }
}

impl Default for Transformer {
    /// GPT-2 small: 124 million parameters, batches of 8 × 1024 tokens, mixed precision, AdamW.
    fn default() -> Self {
        Self {
            name: "transformer".to_owned(),
            layers: 12,
            hidden: 768,
            heads: 12,
            vocabulary: 50_257,
            batch: 8,
            sequence: Lengths::Fixed(1024),
            precision: Precision::Mixed,
            optimizer: Optimizer::AdamW,
            recompute: false,
            steps: 5,
            seed: 1,
        }
    }
}

impl Workload for Transformer {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        let parameters = self.parameter_bytes();
        program.mark("init");
        for &bytes in &parameters {
            let parameter = program.alloc(bytes, "_to_copy");
            program.hold(parameter);
        }
        for step in 0..self.steps {
            if program.is_over() {
                break;
            }
            program.mark(&format!("step {step}"));
            let length = self.sequence.next(&mut rng);
            let gradients = Pass::new(self, length, &mut program).run();
            self.update(&mut program, &parameters, step == 0);
            program.free_all(gradients);
        }
        program.finish()
    }
}

impl Transformer {
    /// Whether every number means something and no tensor has 2^60 bytes or more.
    fn validate(&self) -> Result<(), WorkloadError> {
        let wrong = |reason: String| {
            Err(WorkloadError::Parameter {
                family: "transformer",
                reason,
            })
        };
        for (name, value, bits) in [
            ("layers", self.layers, 16),
            ("hidden", self.hidden, 24),
            ("heads", self.heads, 24),
            ("vocabulary", self.vocabulary, 24),
            ("batch", self.batch, 24),
            ("sequence", self.sequence.longest(), 24),
        ] {
            if !(1..1 << bits).contains(&value) {
                return wrong(format!(
                    "{name} is {value}; it must be at least 1 and below 2^{bits}"
                ));
            }
        }
        if let Lengths::Uniform { min, max } = self.sequence
            && !(1..=max).contains(&min)
        {
            return wrong(format!("sequence lengths cannot be from {min} to {max}"));
        }
        if !self.hidden.is_multiple_of(self.heads) {
            let (hidden, heads) = (self.hidden, self.heads);
            return wrong(format!("{heads} heads cannot share a width of {hidden}"));
        }
        let tokens = u128::from(self.batch) * u128::from(self.sequence.longest());
        let widest = u128::from(self.vocabulary.max(4 * self.hidden));
        let parameter = u128::from(self.hidden) * widest;
        if (tokens * widest).max(parameter) * 8 >= 1 << 60 {
            return wrong("a tensor would have 2^60 bytes or more".to_owned());
        }
        Ok(())
    }

    /// Bytes of each parameter, in the order in which they are made: embeddings, layers, last norm.
    fn parameter_bytes(&self) -> Vec<u64> {
        let h = self.hidden;
        let norm = [h, h];
        let attention = [3 * h * h, 3 * h, h * h, h];
        let feed_forward = [4 * h * h, 4 * h, 4 * h * h, h];
        let layer = [&norm[..], &attention, &norm, &feed_forward].concat();
        let mut numbers = vec![self.vocabulary * h, self.sequence.longest() * h];
        numbers.extend(layer.repeat(self.layers as usize));
        numbers.extend(norm);
        let bytes = self.precision.stored();
        numbers.iter().map(|numbers| numbers * bytes).collect()
    }

    /// The optimizer's step: norms of all gradients, state at the first step, scratch.
    fn update(&self, program: &mut Program<'_>, parameters: &[u64], is_first: bool) {
        program.mark("optimizer");
        let alloc_each = |program: &mut Program<'_>, tag: &str| -> Vec<Tensor> {
            let bytes = parameters.iter();
            bytes.map(|&bytes| program.alloc(bytes, tag)).collect()
        };
        let norms = parameters.iter().map(|_| program.alloc(4, "_foreach_norm"));
        let norms: Vec<Tensor> = norms.collect();
        program.scratch(4 * parameters.len() as u64, "cat");
        program.free_all(norms);
        if is_first {
            for _ in 0..self.optimizer.states() {
                for state in alloc_each(program, "zeros_like") {
                    program.hold(state);
                }
            }
        }
        if self.optimizer == Optimizer::AdamW {
            let denominators = alloc_each(program, "_foreach_sqrt");
            program.free_all(denominators);
        }
    }
}
