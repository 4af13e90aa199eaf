//! Driver calls that return resources to the device, which may fail.

use crate::driver::{DeviceAddr, MemoryHandle, Status, VirtualMemory};

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Unmap { addr: DeviceAddr, bytes: u64 },
    FreeAddress { addr: DeviceAddr, bytes: u64 },
    Release { handle: MemoryHandle, bytes: u64 },
}

/// Steps, of which the last is run first. A step that fails is kept and tried again later.
#[derive(Debug, Default)]
pub(super) struct Undo(Vec<Step>);

impl Undo {
    pub(super) fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// Adds steps that are run before those already there.
    pub(super) fn append(&mut self, mut steps: Self) {
        self.0.append(&mut steps.0);
    }

    /// Undoes the steps in `made` after a call failed with `error`, and returns the error.
    pub(super) fn take_back<E>(
        &mut self,
        memory: &mut dyn VirtualMemory,
        mut made: Self,
        error: E,
    ) -> E {
        self.0.append(&mut made.0);
        let _kept_for_later = self.run(memory);
        error
    }

    /// Runs all steps.
    pub(super) fn run(&mut self, memory: &mut dyn VirtualMemory) -> Status {
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
