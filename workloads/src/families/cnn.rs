//! Training of a convolutional network on images.
//!
//! It has few and large activations of many sizes, a different workspace in each layer and, with images
//! of several sizes, different sizes in each step. Batches may be prefetched on another stream. The
//! workspaces are not those of cuDNN: each shape of weight draws one at random, and two of five have none.
//!
//! The network is torchvision's ResNet with bottlenecks.

mod resnet;

use self::resnet::{ResNet, Scratch};
use crate::families::eager::Eager;
use crate::families::eager::ops::image::Images;
use crate::families::eager::optimizer;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::lengths::{Draw, Lengths};
use crate::families::parameters::{below, refuse, refuse_if, within};
use crate::families::rng::Rng;
use crate::families::transformer::{Builder, Optimizer, Precision};
use crate::op::{Sink, WorkloadError};

family! {
    /// Training of a residual network on images.
    ///
    /// Default: ResNet-50 on images of 224 × 224.
    pub struct Cnn as "cnn" {
        /// Blocks per stage; each stage halves the image side and doubles the channels.
        pub depths: Vec<u64> = vec![3, 4, 6, 3],
        /// Channels of the first stage.
        pub width: u64 [1..=below(14)] = 64,
        /// Classes.
        pub classes: u64 [1..=below(24)] = 1000,
        /// Images in a batch.
        pub batch: u64 [1..=below(20)] = 64,
        /// Pixels per image side.
        pub image: Lengths = Lengths::Fixed(224),
        /// Data types: `mixed` computes products in 2 bytes, `half` stores everything in 2, `single` in 4.
        pub precision: Precision = Precision::Single,
        /// Optimizer: `adamw`, `adamw_fused`, `momentum` or `sgd`.
        pub optimizer: Optimizer = Optimizer::Momentum,
        /// Whether the next batch is prefetched on another stream.
        pub prefetch: bool = false,
        /// Largest workspace of a convolution in MiB; 0 for none.
        pub workspace_mib: u64 [0..=below(20)] = 96,
        /// Training steps.
        pub steps: u64 = 5,
        /// Seed of image sizes and workspaces.
        pub seed: u64 = 1,
    }
}

/// The streams that load and use batches.
const LOADER: u32 = 1;
const DEFAULT: u32 = 0;

/// Images and their classes.
struct Batch {
    images: Images,
    tensors: [Tensor; 2],
}

impl Cnn {
    fn run(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        self.validate()?;
        let eager = Eager::new(sink);
        eager.mark("init");
        let mut build = Builder::new(&eager, self.precision.stored());
        let mut scratch = Scratch::new(self.seed.wrapping_add(1), self.workspace_mib << 20);
        let model = ResNet::new(
            self.width,
            &self.depths,
            self.classes,
            &mut scratch,
            &mut build,
        );
        let parameters = build.parameters;
        let mut optimizer = optimizer::Optimizer::new(self.optimizer.rule(), false, 1);
        let mut sides = self.image.draw(Rng::new(self.seed));
        // These variables live across iterations.
        let (mut batch, mut next, mut loss) = (None, None, None);
        for step in 0..self.steps {
            if !eager.step(step) {
                break;
            }
            if self.prefetch {
                let ready = next.take().or_else(|| self.load(&eager, &mut sides));
                batch = ready;
                hand_over(&eager, batch.as_ref());
                next = self.load(&eager, &mut sides);
            } else {
                batch = self.load(&eager, &mut sides);
            }
            let Some(batch) = &batch else { break };
            eager.mark("forward");
            loss = Some(self.forward(&eager, &model, batch));
            eager.mark("backward");
            if let Some(loss) = &loss {
                self.backward(&eager, loss);
            }
            eager.mark("optimizer");
            optimizer.step(&eager, &parameters);
            eager.clear_gradients(&parameters);
        }
        eager.finish((model, parameters, optimizer, batch, next, loss))
    }
}

/// Records that the default stream uses a batch loaded on another stream.
fn hand_over(eager: &Eager<'_>, batch: Option<&Batch>) {
    for tensor in batch.iter().flat_map(|batch| &batch.tensors) {
        eager.record_stream(tensor, DEFAULT);
    }
}

impl Cnn {
    fn load(&self, eager: &Eager<'_>, sides: &mut Draw) -> Option<Batch> {
        let images = Images {
            batch: self.batch,
            channels: 3,
            side: sides.next()?,
        };
        let stream = if self.prefetch { LOADER } else { DEFAULT };
        let dtype = match self.precision {
            Precision::Half => DType::Half,
            Precision::Mixed | Precision::Single => DType::Single,
        };
        let new = |elements: u64, width: u64, dtype: DType| {
            eager.alloc_on(stream, (elements, width), dtype, "_to_copy")
        };
        let pixels = new(images.elements(), images.pixels(), dtype);
        let classes = new(self.batch, 1, DType::Long);
        let tensors = [pixels, classes];
        Some(Batch { images, tensors })
    }

    fn forward(&self, eager: &Eager<'_>, model: &ResNet, batch: &Batch) -> Tensor {
        let run = || {
            let [pixels, classes] = &batch.tensors;
            let scores = model.run(eager, pixels, batch.images);
            let loss = eager.cross_entropy(&scores, classes);
            drop(scores);
            loss
        };
        if self.precision == Precision::Mixed {
            eager.autocast(run)
        } else {
            run()
        }
    }

    /// Runs the backward pass; mixed precision first scales the loss so that gradients do not vanish.
    fn backward(&self, eager: &Eager<'_>, loss: &Tensor) {
        if self.precision == Precision::Mixed {
            eager.backward(&eager.scale(loss, "mul"));
        } else {
            eager.backward(loss);
        }
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        const FAMILY: &str = "cnn";
        let number = ("the number of depths", self.depths.len() as u64, 1..=8);
        let image = ("image", self.image.longest(), 1..=below(14));
        let depths = self.depths.iter();
        let depths = depths.map(|depth| ("depths", *depth, 1..=below(12)));
        within(FAMILY, [number, image].into_iter().chain(depths))?;
        if let Some(fault) = self.image.fault() {
            return refuse(FAMILY, format!("image {fault}"));
        }
        let pixels = u128::from(self.image.longest()).pow(2);
        let widest = u128::from(self.width) << (self.depths.len() + 1);
        let bytes = u128::from(self.batch) * (pixels + 64) * widest * 8;
        refuse_if(
            FAMILY,
            [(bytes >= 1 << 60, "a tensor would have 2^60 bytes or more")],
        )
    }
}
