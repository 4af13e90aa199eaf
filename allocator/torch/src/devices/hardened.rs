//! The mode `harden` on all devices.

use coalesce_alloc::driver::{DeviceAddr, Driver};
use coalesce_alloc::error::Error;

use super::Devices;
use crate::failure::Failure;
use crate::hardened::{Stack, told};

/// Writes the Python frames of the calling thread, innermost first, one a line, into a buffer of so many bytes, and returns
/// how many it wrote. It may wait for the interpreter, so it is called without a lock.
pub type StackSource = extern "C" fn(*mut u8, usize) -> usize;

/// The most bytes of a stack that are kept.
const STACK_BYTES: usize = 4096;

impl<D: Driver + 'static> Devices<D> {
    /// Asks `source` for stacks from now on, or nobody.
    pub fn follow_stacks(&self, source: Option<StackSource>) {
        *self.stacks.lock() = source;
    }

    /// Returns the stack of the call, if the mode needs it.
    pub fn stack(&self) -> Option<Stack> {
        self.conf().ok()?.harden?;
        let source = *self.stacks.lock();
        let mut frames = vec![0; STACK_BYTES];
        let written = source.map_or(0, |source| source(frames.as_mut_ptr(), STACK_BYTES));
        frames.truncate(written);
        Some(String::from_utf8_lossy(&frames).into())
    }

    /// The failure of a call with an address that is not the start of an allocation. With the stack of the call it says
    /// whose memory it is or was.
    pub fn invalid(&self, addr: DeviceAddr, stack: Option<&Stack>) -> Failure {
        let mut failure = Failure::from(Error::InvalidPointer(addr));
        let Some(stack) = stack else {
            return failure;
        };
        let mut known = None;
        let asked = self.each_ready(|_, device| {
            known = known.take().or_else(|| device.explain(addr, stack));
            Ok(())
        });
        let said = "no allocation of this process was there";
        let unknown = || told(said, [("used", stack)]);
        let why = known.filter(|_| asked.is_ok()).unwrap_or_else(unknown);
        failure.message += &format!(": {why}");
        failure
    }

    /// Checks that freed memory was not written, and prints where it was.
    ///
    /// # Errors
    /// If a device is damaged.
    pub fn check_freed(&self) -> Result<(), Failure> {
        self.each_ready(|_, device| {
            device.check_freed();
            Ok(())
        })
    }
}
