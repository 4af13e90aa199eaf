//! ResNet: convolutions with batch normalisation, in blocks with a residual connection.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::families::eager::Eager;
use crate::families::eager::ops::image::{Images, Workspaces};
use crate::families::eager::tensor::{DType, Parameter, Tensor};
use crate::families::rng::Rng;
use crate::families::transformer::{Builder, Linear};

/// Channels of the last convolution of a block, relative to the others.
const EXPANSION: u64 = 4;

pub(super) struct ResNet {
    stem: Convolution,
    blocks: Vec<Block>,
    classifier: Linear,
}

/// A convolution and its batch normalisation.
struct Convolution {
    weight: Parameter,
    norm: [Parameter; 2],
    channels: u64,
    window: u64,
    stride: u64,
    workspaces: Workspaces,
}

struct Block {
    narrow: Convolution,
    middle: Convolution,
    wide: Convolution,
    /// Adapts the residual to the shape of the block's output, where it changes.
    shortcut: Option<Convolution>,
}

/// Draws the workspaces of convolutions, equal for equal weights.
pub(super) struct Scratch {
    rng: Rng,
    most: u64,
    drawn: HashMap<(u64, u64, u64), Workspaces, FixedState>,
}

impl Scratch {
    pub(super) fn new(seed: u64, most: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            most,
            drawn: HashMap::default(),
        }
    }

    fn of(&mut self, weight: (u64, u64, u64)) -> Workspaces {
        const LEAST: u64 = 64 << 10;
        let (rng, most) = (&mut self.rng, self.most);
        let mut draw = |()| {
            if most < LEAST || rng.happens(2, 5) {
                0
            } else {
                rng.log_uniform(LEAST, most)
            }
        };
        *self
            .drawn
            .entry(weight)
            .or_insert_with(|| [(); 3].map(&mut draw))
    }
}

impl ResNet {
    pub(super) fn new(
        width: u64,
        depths: &[u64],
        classes: u64,
        scratch: &mut Scratch,
        build: &mut Builder<'_, '_>,
    ) -> Self {
        const COLOURS: u64 = 3;
        let stem = Convolution::new([COLOURS, width, 7, 2], scratch, build);
        let mut channels = width;
        let mut blocks = Vec::new();
        for (stage, depth) in depths.iter().enumerate() {
            let narrow = width << stage;
            for n in 0..*depth {
                let stride = if n == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Block::new(
                    [channels, narrow, stride],
                    n == 0,
                    scratch,
                    build,
                ));
                channels = narrow * EXPANSION;
            }
        }
        Self {
            stem,
            blocks,
            classifier: build.linear(channels, classes, true),
        }
    }

    /// The scores of all classes.
    pub(super) fn run(&self, eager: &Eager<'_>, x: &Tensor, images: Images) -> Tensor {
        let mut images = images;
        let mut hidden = self.stem.run(eager, x, &mut images);
        hidden = eager.relu_in_place(hidden);
        images = images.after(images.channels, 3, 2);
        hidden = eager.max_pool(&hidden, images);
        for block in &self.blocks {
            hidden = block.run(eager, &hidden, &mut images);
        }
        hidden = eager.mean(&hidden).reshaped(images.channels);
        self.classifier.run(eager, &hidden)
    }
}

impl Convolution {
    fn new(
        [before, channels, window, stride]: [u64; 4],
        scratch: &mut Scratch,
        build: &mut Builder<'_, '_>,
    ) -> Self {
        let weight = build.table(channels, before * window * window);
        let norm = [build.table(1, channels), build.table(1, channels)];
        for elements in [channels, channels] {
            // Running mean and variance.
            let tensor = build.eager.alloc(elements, 1, DType::Single, "_to_copy");
            build.eager.keep(tensor);
        }
        let batches = build.eager.alloc(1, 1, DType::Long, "_to_copy");
        build.eager.keep(batches);
        Self {
            weight,
            norm,
            channels,
            window,
            stride,
            workspaces: scratch.of((before, channels, window)),
        }
    }

    fn run(&self, eager: &Eager<'_>, x: &Tensor, images: &mut Images) -> Tensor {
        *images = images.after(self.channels, self.window, self.stride);
        let hidden = eager.convolution(x, &self.weight, *images, self.workspaces);
        let [weight, bias] = &self.norm;
        eager.batch_norm(&hidden, weight, bias)
    }
}

impl Block {
    fn new(
        [before, narrow, stride]: [u64; 3],
        is_first: bool,
        scratch: &mut Scratch,
        build: &mut Builder<'_, '_>,
    ) -> Self {
        let wide = narrow * EXPANSION;
        Self {
            narrow: Convolution::new([before, narrow, 1, 1], scratch, build),
            middle: Convolution::new([narrow, narrow, 3, stride], scratch, build),
            wide: Convolution::new([narrow, wide, 1, 1], scratch, build),
            shortcut: is_first.then(|| Convolution::new([before, wide, 1, stride], scratch, build)),
        }
    }

    fn run(&self, eager: &Eager<'_>, x: &Tensor, images: &mut Images) -> Tensor {
        let mut around = *images;
        let mut hidden = self.narrow.run(eager, x, images);
        hidden = eager.relu_in_place(hidden);
        hidden = self.middle.run(eager, &hidden, images);
        hidden = eager.relu_in_place(hidden);
        hidden = self.wide.run(eager, &hidden, images);
        let shortcut = match &self.shortcut {
            Some(shortcut) => shortcut.run(eager, x, &mut around),
            None => x.clone(),
        };
        hidden = eager.add_in_place(hidden, &shortcut);
        eager.relu_in_place(hidden)
    }
}
