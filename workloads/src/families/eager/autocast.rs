//! Automatic mixed precision: products run in half the bytes of the parameters.

use super::Eager;
use super::tensor::{DType, Tensor};

/// Casts of parameters, cached until the end of the region.
#[derive(Default)]
pub(super) struct Autocast {
    casts: Vec<(u64, Tensor)>,
}

impl Eager<'_> {
    /// Runs `body` under mixed precision.
    pub(crate) fn autocast<T>(&self, body: impl FnOnce() -> T) -> T {
        let outer = self.autocast.replace(Some(Autocast::default()));
        let result = body();
        drop(self.autocast.replace(outer));
        result
    }

    /// The tensor in the type of products.
    pub(crate) fn lowered(&self, tensor: &Tensor) -> Tensor {
        if self.autocast.borrow().is_none() || tensor.dtype() != DType::Single {
            return tensor.clone();
        }
        let leaf = tensor.edge().filter(|edge| edge.node.is_leaf());
        let Some(number) = leaf.map(|edge| edge.node.number) else {
            return self.to(tensor, DType::Half);
        };
        if let Some(autocast) = &*self.autocast.borrow()
            && let Some((_, cast)) = autocast.casts.iter().find(|(key, _)| *key == number)
        {
            return cast.clone();
        }
        let cast = self.to(tensor, DType::Half);
        if let Some(autocast) = &mut *self.autocast.borrow_mut() {
            autocast.casts.push((number, cast.clone()));
        }
        cast
    }

    /// The tensor in the type of exponentials and norms.
    pub(crate) fn raised(&self, tensor: &Tensor) -> Tensor {
        if self.autocast.borrow().is_none() {
            return tensor.clone();
        }
        self.to(tensor, DType::Single)
    }
}
