//! The training loop: forward passes, backward passes and optimizer steps.

use super::bert::Bert;
use super::experts::Routing;
use super::gpt2::Gpt2;
use super::llama::Llama;
use super::model::Model;
use super::parts::{Batch, Builder, Output, Sequences};
use super::{Evaluation, Mistake, Shape, Transformer};
use crate::families::eager::Eager;
use crate::families::eager::optimizer::Optimizer;
use crate::families::eager::reducer::Reducer;
use crate::families::eager::tensor::{DType, Parameter, Tensor};
use crate::families::lengths::Draw;
use crate::families::rng::Rng;

/// A training run in progress.
pub(super) struct Training<'a, 'e, 's> {
    config: &'a Transformer,
    eager: &'e Eager<'s>,
    model: Box<dyn Model>,
    parameters: Vec<Parameter>,
    optimizer: Optimizer,
    /// The loss of the last batch: a loop variable that keeps what is left of its graph alive.
    loss: Option<Tensor>,
    /// The outputs of the last evaluated batch: a loop variable, not cleared before the next step.
    evaluated: Option<(Output, Tensor)>,
    /// Outputs kept by mistake.
    outputs: Vec<Tensor>,
}

impl<'a, 'e, 's> Training<'a, 'e, 's> {
    pub(super) fn new(
        config: &'a Transformer,
        routing: Option<Routing>,
        eager: &'e Eager<'s>,
    ) -> Self {
        eager.mark("init");
        let mut build = Builder::new(eager, config.precision.stored());
        let model: Box<dyn Model> = match config.shape {
            Shape::Gpt2 => Box::new(Gpt2::new(config, &mut build)),
            Shape::Bert => Box::new(Bert::new(config, &mut build)),
            Shape::Llama => Box::new(Llama::new(config, routing, &mut build)),
        };
        let bucket = config.bucket_mib << 20;
        if config.shards > 1 {
            eager.shard_gradients(Reducer::new(config.shards, bucket));
        } else if bucket > 0 {
            eager.keep_buckets(&build.parameters, bucket);
        }
        Self {
            config,
            eager,
            model,
            parameters: build.parameters,
            optimizer: Optimizer::new(
                config.optimizer.rule(),
                config.master_weights,
                config.shards,
            ),
            loss: None,
            evaluated: None,
            outputs: Vec::new(),
        }
    }

    pub(super) fn run(&mut self) {
        let mut lengths = self.config.sequence.draw(Rng::new(self.config.seed));
        let mut evaluated = self.config.evaluation.as_ref().map(|evaluation| {
            let rng = Rng::new(self.config.seed.wrapping_add(1));
            (evaluation, evaluation.sequence.draw(rng))
        });
        for step in 0..self.config.steps {
            if !self.eager.step(step) {
                break;
            }
            self.step(&mut lengths);
            if let Some((evaluation, lengths)) = &mut evaluated
                && (step + 1).is_multiple_of(evaluation.every)
            {
                self.evaluate(evaluation, lengths);
            }
        }
    }

    /// Returns everything that lives until the program ends.
    pub(super) fn into_alive(self) -> impl Sized + use<> {
        (
            self.model,
            self.parameters,
            self.optimizer,
            self.loss,
            self.evaluated,
            self.outputs,
        )
    }

    fn step(&mut self, lengths: &mut Draw) {
        let mut total: Option<Tensor> = None;
        for _ in 0..self.config.micro_batches {
            let Some(length) = lengths.next() else { return };
            if self.eager.is_over() {
                return;
            }
            let shape = Sequences {
                batch: self.config.batch,
                length,
            };
            let batch = self.model.batch(self.eager, shape);
            self.eager.mark("forward");
            let loss = self.forward(&batch, shape);
            self.loss = Some(loss.clone());
            if self.config.mistake == Mistake::LossesKept {
                total = Some(match total {
                    Some(total) => self.eager.add(total, loss),
                    None => loss,
                });
            } else {
                self.eager.mark("backward");
                self.eager.backward(&loss);
            }
        }
        if let Some(total) = total {
            self.eager.mark("backward");
            self.eager.backward(&total);
        }
        self.eager.mark("optimizer");
        self.eager.clip_gradients(&self.parameters);
        self.optimizer.step(self.eager, &self.parameters);
        if !matches!(
            self.config.mistake,
            Mistake::NeverCleared | Mistake::ZeroedInPlace
        ) {
            self.eager.clear_gradients(&self.parameters);
        }
    }

    fn forward(&mut self, batch: &Batch, shape: Sequences) -> Tensor {
        let run = || self.model.run(self.eager, batch, shape, true);
        let output = if self.config.casts() {
            self.eager.autocast(run)
        } else {
            run()
        };
        if self.config.mistake == Mistake::OutputsKept {
            let loss = self.eager.scale(&output.loss, "div");
            // After the backward pass, their graph holds no device memory.
            let Output { loss: kept, logits } = output;
            self.outputs.extend([kept.detached(), logits.detached()]);
            return loss;
        }
        drop(output.logits);
        self.eager.scale(output.loss, "div")
    }

    /// Evaluates batches without gradients, all in one autocast region.
    fn evaluate(&mut self, evaluation: &Evaluation, lengths: &mut Draw) {
        self.eager.mark("eval");
        let last = &mut self.evaluated;
        let (eager, model) = (self.eager, &self.model);
        let mut run = || {
            for length in lengths.by_ref().take(evaluation.batches as usize) {
                if eager.is_over() {
                    break;
                }
                let shape = Sequences {
                    batch: evaluation.batch,
                    length,
                };
                let batch = model.batch(eager, shape);
                let output = model.run(eager, &batch, shape, false);
                let predicted = eager.alloc(shape.tokens(), length, DType::Long, "argmax");
                *last = Some((output, predicted));
            }
        };
        eager.with_recording(false, || {
            if self.config.casts() {
                eager.autocast(run);
            } else {
                run();
            }
        });
    }
}
