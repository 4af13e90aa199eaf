//! The reference in the place of another policy that failed, or beside one, for the pools that it does not serve.

use std::mem;

use coalesce_alloc::driver::Driver;

use super::{Devices, State};
use crate::conf::Choice;
use crate::device::DeviceAllocator;
use crate::failure::Failure;

impl<D: Driver + 'static> Devices<D> {
    /// Runs `work` on a device in use. If its policy fails, the reference takes its place, if that is wanted.
    pub(super) fn run<T>(
        &self,
        ordinal: i32,
        state: &mut State<D>,
        work: impl FnOnce(&mut DeviceAllocator<D>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let answer = state.run(work);
        if let Err(failure) = &answer
            && failure.is_bug
            && self.falls_back()
        {
            self.replace(ordinal, state, failure)?;
        }
        answer
    }

    /// Puts the reference in the place of another policy that failed.
    fn replace(&self, ordinal: i32, state: &mut State<D>, why: &Failure) -> Result<(), Failure> {
        let (State::Ready(failed) | State::Broken(failed, _)) = &*state else {
            return Ok(());
        };
        let name = failed.policy();
        if failed.settings().is_some() {
            return Ok(());
        }
        let reference = Choice::Reference(self.conf()?.settings().into());
        let reference = self.make(ordinal, &reference)?;
        let failed = mem::replace(state, State::Ready(reference));
        Failure::new(format!(
            "the policy {name} failed on device {ordinal}: {}. PyTorch's own rules are used from now on. Please \
             report this.",
            why.message
        ))
        .print();
        if let (State::Ready(device), State::Ready(failed) | State::Broken(failed, _)) =
            (state, failed)
        {
            device.instead_of(failed)?;
        }
        Ok(())
    }

    fn falls_back(&self) -> bool {
        self.conf().is_ok_and(|conf| conf.falls_back)
    }

    /// Makes a call. If its policy fails with a bug and the reference takes its place, makes the call again.
    pub(super) fn repeated<T>(&self, call: impl Fn() -> Result<T, Failure>) -> Result<T, Failure> {
        match call() {
            Err(failure) if failure.is_bug && self.falls_back() => call(),
            answer => answer,
        }
    }

    /// Lets the reference serve the special pools of a device whose policy does not.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn serve_special_pools(&self, ordinal: i32) -> Result<(), Failure> {
        self.with(ordinal, |device| {
            if device.needs_reference() {
                let reference = Choice::Reference(self.conf()?.settings().into());
                device.add_reference(self.make(ordinal, &reference)?)?;
            }
            Ok(())
        })
    }
}
