//! Gradient clipping and the optimizer step.

use super::Eager;
use super::reducer::share;
use super::tensor::{DType, Parameter, Tensor};

/// An optimizer with its state.
pub(crate) struct Optimizer {
    rule: Rule,
    /// Whether it keeps copies of the parameters in four bytes.
    has_copies: bool,
    /// Devices that each update a shard of the parameters.
    shards: u64,
    kept: Vec<Tensor>,
}

/// The update rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// AdamW, with the denominators of all parameters live at once.
    AdamW,
    /// AdamW in one kernel.
    AdamWFused,
    /// SGD with momentum and weight decay.
    Momentum,
    /// SGD.
    Sgd,
}

/// Elements that a multi-tensor kernel processes at a time.
const CHUNK: u64 = 65_536;

impl Optimizer {
    pub(crate) fn new(rule: Rule, has_copies: bool, shards: u64) -> Self {
        Self {
            rule,
            has_copies,
            shards,
            kept: Vec::new(),
        }
    }

    /// Updates all parameters that have a gradient.
    pub(crate) fn step(&mut self, eager: &Eager<'_>, parameters: &[Parameter]) {
        let trained = parameters.iter().filter(|p| p.has_gradient());
        let data: Vec<&Tensor> = trained.map(Parameter::tensor).collect();
        let has_copies = self.has_copies;
        let new = |data: &Tensor, tag: &str| {
            let elements = share(data.elements(), self.shards);
            let dtype = if has_copies {
                DType::Single
            } else {
                data.dtype()
            };
            eager.alloc(elements, elements, dtype, tag)
        };
        let each = |tag: &str| -> Vec<Tensor> { data.iter().map(|data| new(data, tag)).collect() };
        let is_first = self.kept.is_empty();
        let mut kept = Vec::new();
        if is_first && has_copies {
            kept = each("_to_copy");
        }
        let gradients = has_copies.then(|| each("_to_copy"));
        match self.rule {
            Rule::AdamW | Rule::AdamWFused => {
                if is_first {
                    for data in &data {
                        kept.extend([new(data, "zeros_like"), new(data, "zeros_like")]);
                    }
                }
                if self.rule == Rule::AdamW {
                    each("_foreach_sqrt").into_iter().rev().for_each(drop);
                }
            }
            Rule::Momentum => {
                let decayed = each("_foreach_add");
                if is_first {
                    kept.extend(each("clone"));
                }
                drop(decayed);
            }
            Rule::Sgd => {}
        }
        drop(gradients);
        self.kept.append(&mut kept);
        eager.gather(&data);
    }
}

impl Eager<'_> {
    /// Clips the norm of the gradients.
    pub(crate) fn clip_gradients(&self, parameters: &[Parameter]) {
        let gradients: Vec<Tensor> = parameters.iter().filter_map(Parameter::gradient).collect();
        let Some(dtype) = gradients.first().map(Tensor::dtype) else {
            return;
        };
        let number = |tag: &str| self.alloc(1, 1, dtype, tag);
        let longest = gradients.iter().map(Tensor::elements).max().unwrap_or(0);
        let count = gradients.len() as u64;
        let partial = self.alloc_bytes(4 * count * longest.div_ceil(CHUNK), "zeros");
        let norms: Vec<Tensor> = gradients.iter().map(|_| number("_foreach_norm")).collect();
        drop(partial);
        let all = self.alloc(count, count, dtype, "cat");
        let norm = number("linalg_vector_norm");
        drop(all);
        norms.into_iter().rev().for_each(drop);
        let sum = number("add");
        let inverse = number("reciprocal");
        let mut factor = number("mul");
        drop((inverse, sum));
        factor = {
            let clamped = number("clamp");
            drop(factor);
            clamped
        };
        drop((factor, norm));
    }

    /// Drops all gradients.
    pub(crate) fn clear_gradients(&self, parameters: &[Parameter]) {
        for parameter in parameters {
            parameter.clear_gradient();
        }
    }
}
