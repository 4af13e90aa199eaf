//! Programs that do different things one after another, and hold memory of one while they do the next.
//!
//! Each leaves holes at the border of two phases which no constant setting may close at a bearable cost. The shapes are those
//! of reports: weights that are converted before they serve (vllm-project/vllm#41268), a model that trains in turns with an
//! engine for samples (NovaSky-AI/SkyRL#1768), and embedding tables that are moved away during the forward pass
//! (meta-pytorch/torchrec#4584).

use serde::{Deserialize, Serialize};

use crate::families::parameters::below;
use crate::families::program::{Program, Tensor};
use crate::families::rng::Rng;
use crate::op::{Sink, WorkloadError};

family! {
    /// Programs that do different things one after another: load and serve, generate and train, or move tables away.
    pub struct InTurns as "in_turns" {
        /// Which program: `served`, `reinforced` or `stashed`.
        pub program: Turns = Turns::Served,
        /// Bytes of the largest tensor of a layer.
        #[serde(with = "crate::families::byte_count")]
        pub layer_bytes: u64 [1 << 10..=1 << 48] = 530 << 20,
        /// Layers; below 2^10.
        pub layers: u64 [1..=below(10)] = 24,
        /// Bytes of what is needed in one phase alone: the cache of a server, the state of an optimizer, the tables.
        #[serde(with = "crate::families::byte_count")]
        pub large_bytes: u64 [1 << 10..=1 << 48] = 12 << 30,
        /// Rounds of the program.
        pub rounds: u64 = 10,
        /// Seed of the lengths.
        pub seed: u64 = 1,
    }
}

/// The programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// Loads weights, converts them, and serves; it sleeps and wakes up between the rounds.
    Served,
    /// Brings back the state of the optimizer, trains, sends the weights and moves the state away.
    Reinforced,
    /// Moves tables away in the forward pass, and back in the backward pass.
    Stashed,
}

impl InTurns {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        let mut rng = Rng::new(self.seed);
        match self.program {
            Turns::Served => self.served(&mut program, &mut rng),
            Turns::Reinforced => self.reinforced(&mut program, &mut rng),
            Turns::Stashed => self.stashed(&mut program),
        }
        program.finish()
    }

    /// So many thousandths of some bytes, at least one byte.
    fn part(bytes: u64, thousandths: u64) -> u64 {
        (bytes / 1000 * thousandths).max(1)
    }

    fn served(&self, program: &mut Program<'_>, rng: &mut Rng) {
        program.mark("load");
        let halves = [self.layer_bytes, self.layer_bytes / 2];
        let stored = halves.map(|bytes| Self::part(bytes, 962));
        let layers: Vec<[Tensor; 2]> = (0..self.layers)
            .map(|_| stored.map(|bytes| program.alloc(bytes, "load")))
            .collect();
        program.mark("convert");
        for tensor in layers.into_iter().flatten().zip(halves.into_iter().cycle()) {
            let (tensor, bytes) = tensor;
            let transposed = program.alloc(bytes, "transpose");
            let padded = program.replace(tensor, bytes, "pad");
            program.free(transposed);
            program.hold(padded);
        }
        for round in 0..self.rounds {
            if program.is_over() {
                break;
            }
            program.mark("wake up");
            program.empty_cache();
            let cache = program.alloc(self.large_bytes, "cache");
            program.mark(&format!("serve {round}"));
            for _ in 0..self.layers {
                let length = rng.between(8, 1000);
                let hidden = program.alloc(Self::part(self.layer_bytes, length), "linear");
                program.scratch(Self::part(self.layer_bytes / 2, length), "attention");
                program.free(hidden);
            }
            program.mark("sleep");
            program.free(cache);
        }
    }

    fn reinforced(&self, program: &mut Program<'_>, rng: &mut Rng) {
        for round in 0..self.rounds {
            if program.is_over() {
                break;
            }
            program.mark("reload");
            let state = [1, 2, 2].map(|part| program.alloc(self.large_bytes / 4 * part, "reload"));
            program.mark(&format!("train {round}"));
            for _ in 0..4 {
                let length = rng.between(125, 1000);
                let (mut activations, mut kept) = (Vec::new(), Vec::new());
                for _ in 0..self.layers {
                    activations.push(program.alloc(Self::part(self.layer_bytes, length), "linear"));
                    kept.push(
                        program.alloc(Self::part(self.layer_bytes / 100, length), "probability"),
                    );
                }
                kept.into_iter().for_each(|kept| program.hold(kept));
                while let Some(activation) = activations.pop() {
                    program.scratch(activation.bytes(), "backward");
                    program.free(activation);
                }
            }
            program.mark("send weights");
            for _ in 0..self.layers {
                program.scratch(self.layer_bytes, "bucket");
            }
            program.free_all(state);
            program.empty_cache();
        }
    }

    fn stashed(&self, program: &mut Program<'_>) {
        program.mark("init");
        let sizes = [9, 6, 4].map(|part| Self::part(self.large_bytes, part * 1000 / 19));
        let mut tables = Vec::from(sizes.map(|bytes| program.alloc(bytes, "table")));
        for round in 0..self.rounds {
            if !program.step(round) {
                break;
            }
            program.mark("forward");
            program.free_all(tables.drain(..));
            let mut activations: Vec<Tensor> = (0..self.layers)
                .map(|layer| {
                    program.alloc(
                        Self::part(self.layer_bytes, 1000 - layer * 500 / self.layers),
                        "linear",
                    )
                })
                .collect();
            program.mark("backward");
            while let Some(activation) = activations.pop() {
                program.scratch(activation.bytes() / 4, "backward");
                program.free(activation);
                if activations.len() as u64 == self.layers / 6 {
                    tables.extend(sizes.map(|bytes| program.alloc(bytes, "table")));
                }
            }
            if tables.is_empty() {
                tables.extend(sizes.map(|bytes| program.alloc(bytes, "table")));
            }
        }
        program.free_all(tables);
    }
}
