//! The training of a transformer whose batches change over the day.

use std::collections::VecDeque;
use std::error::Error;
use std::ops::RangeInclusive;

use coalesce_alloc::{DeviceAddr, Error as AllocError};

use crate::program::Program;

/// Steps in an hour, at 0.25 s each.
pub const STEPS_PER_HOUR: u64 = 4 * 3600;

const LAYERS: u64 = 24;
/// Features of a token.
const WIDTH: u64 = 1024;
/// Bytes of a feature.
const HALF: u64 = 2;
/// The matrices of a layer, in multiples of `WIDTH` times `WIDTH`.
const MATRICES: [u64; 4] = [3, 1, 4, 4];
/// What a layer keeps for its backward pass, in features of each token.
const ACTIVATIONS: [u64; 5] = [1, 3, 1, 4, 4];

const BATCHES: RangeInclusive<u64> = 4..=28;
const LENGTHS: RangeInclusive<u64> = 256..=1024;
/// The streams that load batches and that exchange gradients.
const LOADER: u32 = 1;
const EXCHANGE: u32 = 2;

/// The model and the state of its training.
pub struct Training {
    /// Weights and the state of the optimizer, which live for the whole run.
    parameters: Vec<DeviceAddr>,
    /// Blocks of the present step, freed in the opposite order.
    live: Vec<DeviceAddr>,
    gradients: Vec<DeviceAddr>,
    /// Batches that were loaded in advance.
    batches: VecDeque<DeviceAddr>,
    /// Sequences in a batch, and tokens of the longest sequence.
    batch: u64,
    longest: u64,
    pub steps: u64,
}

impl Training {
    pub fn new(program: &mut Program) -> Result<Self, Box<dyn Error>> {
        let mut parameters = Vec::new();
        // The weights, and two states of four bytes for each of them.
        for bytes in [HALF, 4, 4] {
            for matrix in (0..LAYERS).flat_map(|_| MATRICES) {
                parameters.push(program.malloc(matrix * WIDTH * WIDTH * bytes, program.stream(0))?);
            }
        }
        Ok(Self {
            parameters,
            live: Vec::new(),
            gradients: Vec::new(),
            batches: VecDeque::new(),
            batch: 12,
            longest: 640,
            steps: 0,
        })
    }

    /// Trains for a step. A step that finds no memory is given up, and the batch gets smaller.
    pub fn step(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        self.steps += 1;
        if self.steps.is_multiple_of(400) {
            self.batch = walk(program, self.batch, 1, BATCHES);
        }
        if self.steps.is_multiple_of(1000) {
            self.longest = walk(program, self.longest, 64, LENGTHS);
        }
        let done = match self.steps % 1000 {
            0 => self.evaluate(program),
            _ => self.train(program),
        };
        self.give_all(program)?;
        match done {
            Err(error) if error.is_out_of_memory() => {
                self.batch = (self.batch * 7 / 8).max(*BATCHES.start());
            }
            done => done?,
        }
        match self.steps % 10 {
            0 => program.finish(),
            _ => program.work(),
        }
        if self.steps.is_multiple_of(STEPS_PER_HOUR) {
            program.empty_cache()?;
        }
        Ok(())
    }

    fn train(&mut self, program: &mut Program) -> Result<(), AllocError> {
        let tokens = self.batch * self.length(program);
        let batch = program.malloc(tokens * 8, program.stream(LOADER))?;
        self.batches.push_back(batch);
        program.record_stream(batch, 0)?;
        for _ in 0..LAYERS {
            self.forward(program, tokens)?;
        }
        for _ in 0..LAYERS {
            self.backward(program, tokens)?;
        }
        // The optimizer computes each update in memory of its own.
        for matrix in (0..LAYERS).flat_map(|_| MATRICES) {
            self.take(program, matrix * WIDTH * WIDTH * 4)?;
            self.give(program, 1)?;
        }
        Ok(())
    }

    /// A layer, whose activations stay.
    fn forward(&mut self, program: &mut Program, tokens: u64) -> Result<(), AllocError> {
        for features in ACTIVATIONS {
            self.take(program, tokens * WIDTH * features * HALF)?;
        }
        self.take(program, tokens * 4)?;
        // The place of the random numbers of dropout.
        self.take(program, 16)?;
        for _ in 0..2 {
            self.take(program, tokens * WIDTH * HALF)?;
            self.give(program, 1)?;
        }
        Ok(())
    }

    /// Frees the activations of the last layer, and leaves gradients.
    fn backward(&mut self, program: &mut Program, tokens: u64) -> Result<(), AllocError> {
        self.take(program, tokens * WIDTH * 4 * HALF)?;
        self.take(program, tokens * WIDTH * HALF)?;
        for matrix in MATRICES {
            let bytes = matrix * WIDTH * WIDTH * HALF;
            let gradient = program.malloc(bytes, program.stream(0))?;
            self.gradients.push(gradient);
            program.record_stream(gradient, EXCHANGE)?;
        }
        self.give(program, 2 + ACTIVATIONS.len() + 2)
    }

    /// Runs some larger batches without a backward pass, then generates text with a cache that grows.
    fn evaluate(&mut self, program: &mut Program) -> Result<(), AllocError> {
        for _ in 0..8 {
            let tokens = 2 * self.batch * self.length(program);
            for _ in 0..LAYERS {
                self.forward(program, tokens)?;
                self.give(program, ACTIVATIONS.len() + 2)?;
            }
        }
        let prompt = self.length(program);
        let cache = |token: u64| 2 * WIDTH * HALF * (prompt + token);
        let mut caches = VecDeque::new();
        let mut generate = || {
            for token in 0..64 {
                for _ in 0..LAYERS {
                    caches.push_back(program.malloc(cache(token), program.stream(0))?);
                    if token > 0
                        && let Some(before) = caches.pop_front()
                    {
                        program.free(before)?;
                    }
                }
            }
            Ok(())
        };
        let generated = generate();
        self.live.extend(caches);
        generated
    }

    /// Tokens of the next sequences.
    fn length(&self, program: &mut Program) -> u64 {
        let least = self.longest / 4;
        least + program.below(self.longest - least + 1)
    }

    fn take(&mut self, program: &mut Program, bytes: u64) -> Result<(), AllocError> {
        self.live.push(program.malloc(bytes, program.stream(0))?);
        Ok(())
    }

    /// Frees the last blocks.
    fn give(&mut self, program: &mut Program, blocks: usize) -> Result<(), AllocError> {
        let kept = self.live.len().saturating_sub(blocks);
        let mut last = self.live.drain(kept..).rev();
        last.try_for_each(|block| program.free(block))
    }

    /// Frees what a step leaves, and the batches before the latest.
    fn give_all(&mut self, program: &mut Program) -> Result<(), AllocError> {
        self.give(program, usize::MAX)?;
        for gradient in self.gradients.drain(..) {
            program.free(gradient)?;
        }
        while self.batches.len() > 1 {
            if let Some(batch) = self.batches.pop_front() {
                program.free(batch)?;
            }
        }
        Ok(())
    }

    /// Frees all blocks.
    pub fn end(&mut self, program: &mut Program) -> Result<(), Box<dyn Error>> {
        self.give_all(program)?;
        for block in self.parameters.drain(..).chain(self.batches.drain(..)) {
            program.free(block)?;
        }
        Ok(())
    }
}

/// A step of a random walk within a range.
fn walk(program: &mut Program, from: u64, by: u64, range: RangeInclusive<u64>) -> u64 {
    let to = match program.below(2) {
        0 => from - by,
        _ => from + by,
    };
    to.clamp(*range.start(), *range.end())
}
