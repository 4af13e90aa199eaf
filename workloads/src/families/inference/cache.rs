//! Keys and values of the tokens so far, kept so that they are not computed again.

use std::cell::{Cell, RefCell};

use super::Kept;
use crate::families::eager::Eager;
use crate::families::eager::tensor::Tensor;

/// The cache of one request.
pub(crate) struct Cache {
    kept: Kept,
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
    pub(super) fn new(kept: Kept) -> Self {
        Self {
            kept,
            tokens: Cell::new(0),
            layers: RefCell::default(),
        }
    }

    /// Tokens that are in it.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens.get()
    }

    /// All layers have added so many tokens.
    pub(crate) fn advance(&self, tokens: u64) {
        self.tokens.set(self.tokens.get() + tokens);
    }

    /// Adds keys and values of new tokens, `width` numbers each for all sequences together; those of
    /// all tokens, or the new ones where the kernel finds the others by itself.
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
        match self.kept {
            Kept::Whole => {
                let all = [0, 1].map(|place| {
                    let all = eager.cat(layer.whole[place].as_ref(), &new[place]);
                    layer.whole[place] = Some(all.clone());
                    all
                });
                new.into_iter().for_each(drop);
                all
            }
            Kept::Pages { tokens } => {
                let all = self.tokens() + new[0].numbers() / width.max(1);
                let needed = all.div_ceil(tokens);
                for (pages, new) in layer.pages.iter_mut().zip(&new) {
                    while (pages.len() as u64) < needed {
                        let numbers = tokens * width;
                        pages.push(eager.alloc(numbers, width, new.dtype(), "empty"));
                    }
                }
                new
            }
        }
    }
}
