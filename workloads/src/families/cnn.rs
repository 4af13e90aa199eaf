//! Training of a convolutional network on images.
//!
//! It shows few and large activations of many sizes, scratch that differs by layer, and, with images
//! of several sizes, sizes that differ by step. Batches may be loaded ahead on a stream of their own
//! and handed over. It does not show what cuDNN really takes: the scratch of convolutions is drawn
//! at random, once for each shape of weight, two of five having none.
//!
//! The network is torchvision's ResNet with bottlenecks.

mod resnet;

use documented::{Documented, DocumentedFields};
use serde::{Deserialize, Serialize};

use self::resnet::{ResNet, Scratch};
use crate::families::eager::Eager;
use crate::families::eager::ops::image::Images;
use crate::families::eager::optimizer;
use crate::families::eager::tensor::{DType, Tensor};
use crate::families::lengths::{Draw, Lengths};
use crate::families::rng::Rng;
use crate::families::transformer::{Builder, Optimizer, Precision};
use crate::op::{Sink, Workload, WorkloadError};

/// Training of a residual network on images.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, Documented, DocumentedFields)]
#[serde(default, deny_unknown_fields)]
pub struct Cnn {
    /// What it is called in results.
    pub name: String,
    /// Blocks in each stage. After a stage images have half the side and twice the channels.
    pub depths: Vec<u64>,
    /// Channels of the first stage.
    pub width: u64,
    /// Classes that images may be of.
    pub classes: u64,
    /// Images in a batch.
    pub batch: u64,
    /// Pixels along a side of the images of a batch.
    pub image: Lengths,
    /// What numbers are stored as.
    pub precision: Precision,
    /// What updates the parameters.
    pub optimizer: Optimizer,
    /// Whether the next batch is loaded on another stream while one is worked on.
    pub prefetch: bool,
    /// Most scratch that a convolution takes, in MiB; 0 for none.
    pub workspace_mib: u64,
    /// Training steps.
    pub steps: u64,
    /// Determines sizes and scratch.
    pub seed: u64,
}

impl Default for Cnn {
    /// ResNet-50 on images of 224 × 224.
    fn default() -> Self {
        Self {
            name: "cnn".to_owned(),
            depths: vec![3, 4, 6, 3],
            width: 64,
            classes: 1000,
            batch: 64,
            image: Lengths::Fixed(224),
            precision: Precision::Single,
            optimizer: Optimizer::Momentum,
            prefetch: false,
            workspace_mib: 96,
            steps: 5,
            seed: 1,
        }
    }
}

/// The stream that batches are loaded on, and the one that they are used on.
const LOADER: u32 = 1;
const DEFAULT: u32 = 0;

/// Images and their classes.
struct Batch {
    images: Images,
    tensors: [Tensor; 2],
}

impl Workload for Cnn {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
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
        // Variables of the loop.
        let (mut batch, mut next, mut loss) = (None, None, None);
        for step in 0..self.steps {
            if eager.is_over() {
                break;
            }
            eager.mark(&format!("step {step}"));
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
            eager.forget_gradients(&parameters);
        }
        eager.finish((model, parameters, optimizer, batch, next, loss))
    }
}

/// Batches that were loaded on another stream are used on this one from now on.
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
        let new = |numbers: u64, width: u64, dtype: DType| {
            eager.alloc_on(stream, (numbers, width), dtype, "_to_copy")
        };
        let pixels = new(images.numbers(), images.pixels(), dtype);
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

    /// Under mixed precision the loss is scaled up first, lest gradients vanish.
    fn backward(&self, eager: &Eager<'_>, loss: &Tensor) {
        if self.precision == Precision::Mixed {
            eager.backward(&eager.scale(loss, "mul"));
        } else {
            eager.backward(loss);
        }
    }

    fn validate(&self) -> Result<(), WorkloadError> {
        let wrong = |reason: String| {
            Err(WorkloadError::Parameter {
                family: "cnn",
                reason,
            })
        };
        if self.depths.is_empty() || self.depths.len() > 8 {
            return wrong("depths must say from 1 to 8 stages".to_owned());
        }
        let (least, most) = (self.depths.iter().min(), self.depths.iter().max());
        for (name, value, bits) in [
            ("depths", least.copied().unwrap_or(0), 12),
            ("depths", most.copied().unwrap_or(0), 12),
            ("width", self.width, 14),
            ("classes", self.classes, 24),
            ("batch", self.batch, 20),
            ("image", self.image.longest(), 14),
        ] {
            if !(1..1 << bits).contains(&value) {
                return wrong(format!(
                    "{name} is {value}; it must be at least 1 and below 2^{bits}"
                ));
            }
        }
        if self.workspace_mib >= 1 << 20 {
            return wrong("workspace_mib must be below 2^20".to_owned());
        }
        if let Some(fault) = self.image.fault() {
            return wrong(format!("image {fault}"));
        }
        let pixels = u128::from(self.image.longest()).pow(2);
        let widest = u128::from(self.width) << (self.depths.len() + 1);
        let activations = u128::from(self.batch) * (pixels + 64) * widest;
        if activations * 8 >= 1 << 60 {
            return wrong("a tensor would have 2^60 bytes or more".to_owned());
        }
        Ok(())
    }
}
