//! Data-parallel training as seen by one device: gradients are exchanged in buckets.

use std::cell::RefCell;

use super::Eager;
use super::tensor::{DType, Gradient, Parameter, Tensor};

/// Sums gradients over the devices, each of which keeps its shard.
pub(crate) struct Reducer {
    shards: u64,
    bucket_bytes: u64,
    /// Gradients waiting for a full bucket, and where their sums go.
    waiting: RefCell<Vec<(Gradient, Tensor)>>,
}

impl Reducer {
    /// Creates a reducer for a number of devices, at least one.
    pub(crate) fn new(shards: u64, bucket_bytes: u64) -> Self {
        Self {
            shards,
            bucket_bytes,
            waiting: RefCell::default(),
        }
    }
}

/// Elements of a device's shard.
pub(super) fn share(elements: u64, shards: u64) -> u64 {
    elements.div_ceil(shards.max(1))
}

/// Assigns tensors to buckets in order and returns the bytes of each bucket.
fn buckets(sizes: impl Iterator<Item = u64>, most: u64) -> Vec<u64> {
    let mut buckets: Vec<u64> = Vec::new();
    for bytes in sizes {
        match buckets.last_mut() {
            Some(last) if *last + bytes <= most => *last += bytes,
            _ => buckets.push(bytes),
        }
    }
    buckets
}

impl Eager<'_> {
    /// Shards gradients among devices.
    pub(crate) fn shard_gradients(&self, reducer: Reducer) {
        self.reducer.replace(Some(reducer));
    }

    /// Allocates permanent buckets for the gradients of all parameters. Each gradient is copied there,
    /// summed over the devices, and copied back.
    pub(crate) fn keep_buckets(&self, parameters: &[Parameter], bytes: u64) {
        let sizes = parameters.iter().rev().map(|p| p.tensor().bytes());
        for bytes in buckets(sizes, bytes) {
            self.keep(self.alloc_bytes(bytes, "bucket"));
        }
    }

    /// Allocates scratch to fetch the parameters that other devices have updated.
    pub(super) fn gather(&self, parameters: &[&Tensor]) {
        let Some(bytes) = self.bucket_bytes() else {
            return;
        };
        for bytes in buckets(parameters.iter().map(|p| p.bytes()), bytes) {
            drop(self.alloc_bytes(bytes, "_allgather_base_"));
        }
    }

    fn bucket_bytes(&self) -> Option<u64> {
        let reducer = self.reducer.borrow();
        reducer.as_ref().map(|reducer| reducer.bucket_bytes)
    }

    /// Keeps a gradient, or its shard once the bucket is full.
    pub(super) fn keep_gradient(&self, place: &Gradient, gradient: Tensor) {
        let Some(most) = self.bucket_bytes() else {
            // An existing gradient is accumulated in place.
            if place.borrow().is_none() {
                let own = self.own(gradient);
                place.replace(Some(own));
            }
            return;
        };
        let mut waiting = 0;
        if let Some(reducer) = &*self.reducer.borrow() {
            let mut list = reducer.waiting.borrow_mut();
            list.push((place.clone(), gradient));
            waiting = list.iter().map(|(_, gradient)| gradient.bytes()).sum();
        }
        if waiting >= most {
            self.reduce_waiting();
        }
    }

    /// Reduces the waiting gradients.
    pub(super) fn reduce_waiting(&self) {
        let (list, shards) = match &*self.reducer.borrow() {
            Some(reducer) => (reducer.waiting.take(), reducer.shards),
            None => return,
        };
        let bytes: u64 = list.iter().map(|(_, gradient)| gradient.bytes()).sum();
        if bytes == 0 {
            return;
        }
        let bucket = self.alloc_bytes(bytes, "cat");
        for (place, gradient) in list {
            if place.borrow().is_none() {
                let elements = share(gradient.elements(), shards);
                let dtype: DType = gradient.dtype();
                let own = self.alloc(elements, elements, dtype, "_reduce_scatter_base_");
                place.replace(Some(own));
            }
            drop(gradient);
        }
        drop(bucket);
    }
}

#[cfg(test)]
mod tests {
    use super::buckets;

    #[test]
    fn buckets_are_filled_in_order() {
        assert_eq!(buckets([3, 4, 4, 20, 1].into_iter(), 8), [7, 4, 20, 1]);
    }
}
