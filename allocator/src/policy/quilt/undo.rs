//! Driver calls that give something back, on a device that may refuse them.

use crate::driver::{DeviceAddr, DriverError, MemoryHandle, VirtualMemory};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Unmap { addr: DeviceAddr, bytes: u64 },
    FreeAddress { addr: DeviceAddr, bytes: u64 },
    Release { handle: MemoryHandle, bytes: u64 },
}

/// Steps to take, the last one first. A step that fails stays, and is tried again the next time.
#[derive(Debug, Default)]
pub(super) struct Undo(Vec<Step>);

impl Undo {
    pub(super) fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// Takes back what was `made` before a call failed with `error`, which it returns.
    pub(super) fn take_back(
        &mut self,
        memory: &mut dyn VirtualMemory,
        mut made: Self,
        error: DriverError,
    ) -> DriverError {
        self.0.append(&mut made.0);
        let _kept_for_later = self.run(memory);
        error
    }

    /// Takes all steps.
    pub(super) fn run(&mut self, memory: &mut dyn VirtualMemory) -> Result<(), DriverError> {
        while let Some(&step) = self.0.last() {
            match step {
                Step::Unmap { addr, bytes } => memory.unmap(addr, bytes)?,
                Step::FreeAddress { addr, bytes } => memory.free_address(addr, bytes)?,
                Step::Release { handle, bytes } => memory.release(handle, bytes)?,
            }
            self.0.pop();
        }
        Ok(())
    }
}
