//! Activation checkpointing: discards the saved tensors of a part of a model and recomputes them when the
//! backward pass needs the first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Eager;
use super::tensor::Tensor;

/// What happens to saved tensors.
pub(super) enum Hook {
    /// They are discarded.
    Discard(Rc<Frame>),
    /// They replace discarded ones.
    Refill(Rc<Frame>),
}

/// A part of a model that will be recomputed.
pub(crate) struct Frame {
    again: Box<dyn Fn(&Eager<'_>)>,
    autocast: bool,
    /// Number of discarded tensors.
    expected: Cell<usize>,
    was_recomputed: Cell<bool>,
    places: RefCell<Vec<Option<Tensor>>>,
}

impl Frame {
    pub(super) fn expected(&self) -> usize {
        self.expected.get()
    }

    pub(super) fn discard(&self) {
        self.expected.set(self.expected.get() + 1);
    }
}

impl Eager<'_> {
    /// Runs a part of a model without saving its tensors. The part must depend only on its input.
    pub(crate) fn checkpoint(
        &self,
        input: &Tensor,
        part: impl Fn(&Eager<'_>, &Tensor) -> Tensor + 'static,
    ) -> Tensor {
        if !self.recording.get() {
            return part(self, input);
        }
        let part = Rc::new(part);
        // The graph of the recomputation ends here and is never walked.
        let start = if input.needs_gradient() {
            input.needing_gradient(self)
        } else {
            input.detached()
        };
        let again = Rc::clone(&part);
        let frame = Rc::new(Frame {
            again: Box::new(move |eager| drop(again(eager, &start))),
            autocast: self.autocast.borrow().is_some(),
            expected: Cell::new(0),
            was_recomputed: Cell::new(false),
            places: RefCell::default(),
        });
        let outer = self.hook.replace(Some(Hook::Discard(frame)));
        let output = part(self, input);
        self.hook.replace(outer);
        output
    }

    /// During recomputation, stores a saved tensor. After the last one the rest of the part runs without
    /// allocating.
    pub(super) fn refill(&self, tensor: &Tensor) {
        if let Some(Hook::Refill(frame)) = &*self.hook.borrow() {
            let mut places = frame.places.borrow_mut();
            if places.len() < frame.expected() {
                places.push(Some(tensor.detached()));
            }
            if places.len() == frame.expected() {
                self.idle.set(true);
            }
        }
    }

    /// Takes discarded tensors, after recomputing the part if that has not happened yet.
    pub(super) fn recompute(&self, frame: &Rc<Frame>, first: usize, count: usize) -> Vec<Tensor> {
        if !frame.was_recomputed.replace(true) {
            let outer = self.hook.replace(Some(Hook::Refill(Rc::clone(frame))));
            self.with_recording(true, || {
                if frame.autocast {
                    self.autocast(|| (frame.again)(self));
                } else {
                    (frame.again)(self);
                }
            });
            self.idle.set(false);
            self.hook.replace(outer);
        }
        let mut places = frame.places.borrow_mut();
        let places = places.iter_mut().skip(first).take(count);
        places.filter_map(Option::take).collect()
    }
}
