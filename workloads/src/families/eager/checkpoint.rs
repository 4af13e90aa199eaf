//! Forgetting what a part of a model keeps for the way back, and computing it again when the first
//! of it is needed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::Eager;
use super::tensor::Tensor;

/// What happens to tensors that are saved.
pub(super) enum Hook {
    /// They are not.
    Forget(Rc<Frame>),
    /// They take the places of those that were not.
    Refill(Rc<Frame>),
}

/// A part of a model that will be run again.
pub(crate) struct Frame {
    again: Box<dyn Fn(&Eager<'_>)>,
    autocast: bool,
    /// How many tensors were forgotten.
    expected: Cell<usize>,
    was_run_again: Cell<bool>,
    places: RefCell<Vec<Option<Tensor>>>,
}

impl Frame {
    pub(super) fn expected(&self) -> usize {
        self.expected.get()
    }

    pub(super) fn forget(&self) {
        self.expected.set(self.expected.get() + 1);
    }
}

impl Eager<'_> {
    /// Runs a part of a model without keeping what is inside it. Its input must be all that it
    /// depends on.
    pub(crate) fn checkpoint(
        &self,
        input: &Tensor,
        part: impl Fn(&Eager<'_>, &Tensor) -> Tensor + 'static,
    ) -> Tensor {
        if !self.recording.get() {
            return part(self, input);
        }
        let part = Rc::new(part);
        // The graph of the second run ends here; it is never walked.
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
            was_run_again: Cell::new(false),
            places: RefCell::default(),
        });
        let outer = self.hook.replace(Some(Hook::Forget(frame)));
        let output = part(self, input);
        self.hook.replace(outer);
        output
    }

    /// A tensor is saved: in a second run it takes its place. After the last one the rest of the run
    /// is for nothing.
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

    /// Takes tensors out of their places, which are filled first if they have not been.
    pub(super) fn recall(&self, frame: &Rc<Frame>, first: usize, count: usize) -> Vec<Tensor> {
        if !frame.was_run_again.replace(true) {
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
