//! The key-value cache: keys and values of earlier tokens, kept instead of recomputed.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

use crate::families::eager::Eager;
use crate::families::eager::tensor::Tensor;

/// How a key-value cache is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CacheLayout {
    /// One tensor per layer, copied to a longer one at each token.
    Whole,
    /// Pages of a fixed size.
    Pages {
        /// Tokens per page.
        tokens: u64,
    },
}

/// The cache of one request.
pub(crate) struct Cache {
    layout: CacheLayout,
    tokens: Cell<u64>,
    layers: RefCell<Vec<Layer>>,
}

/// Keys and values of a layer.
#[derive(Default)]
struct Layer {
    whole: [Option<Tensor>; 2],
    pages: [Vec<Tensor>; 2],
}

impl Cache {
    pub(crate) fn new(layout: CacheLayout) -> Self {
        Self {
            layout,
            tokens: Cell::new(0),
            layers: RefCell::default(),
        }
    }

    /// Number of cached tokens.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.get()
    }

    /// Counts new tokens, once all layers have cached them.
    pub(crate) fn advance(&self, tokens: u64) {
        self.tokens.set(self.tokens.get() + tokens);
    }

    /// Adds the keys and values of new tokens, `width` elements per token for all sequences together.
    /// Returns those of all tokens, or of the new ones if the kernel reads the others from pages.
    pub(crate) fn extended(
        &self,
        eager: &Eager<'_>,
        layer: usize,
        new: [Tensor; 2],
        width: u64,
    ) -> [Tensor; 2] {
        let mut layers = self.layers.borrow_mut();
        while layers.len() <= layer {
            layers.push(Layer::default());
        }
        let layer = &mut layers[layer];
        match self.layout {
            CacheLayout::Whole => {
                let all = [0, 1].map(|place| {
                    let all = eager.cat(layer.whole[place].as_ref(), &new[place]);
                    layer.whole[place] = Some(all.clone());
                    all
                });
                new.into_iter().for_each(drop);
                all
            }
            CacheLayout::Pages { tokens } => {
                let all = self.tokens() + new[0].elements() / width.max(1);
                let needed = all.div_ceil(tokens);
                for (pages, new) in layer.pages.iter_mut().zip(&new) {
                    while (pages.len() as u64) < needed {
                        let elements = tokens * width;
                        pages.push(eager.alloc(elements, width, new.dtype(), "empty"));
                    }
                }
                new
            }
        }
    }
}
