//! Kernels, fills and copies on a CUDA device.
#![expect(unsafe_code, reason = "a kernel may write anywhere")]

use std::ffi::CString;

use super::{CudaDevice, size};
use crate::driver::{DeviceAddr, DriverError, Status, StreamId};

/// Code loaded by [`CudaDevice::load_module`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ModuleId(usize);

/// A function of a module, from [`CudaDevice::kernel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelId(usize);

/// The threads of a kernel launch, in one dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Blocks of threads.
    pub blocks: u32,
    /// Threads of each block, at most 1024.
    pub threads: u32,
}

impl CudaDevice {
    /// Compiles and loads PTX code. It is unloaded with the device.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if the code contains a zero byte; the driver's error if it is invalid.
    pub fn load_module(&mut self, ptx: &str) -> Status<ModuleId> {
        let ptx = CString::new(ptx).map_err(|_| DriverError::InvalidValue)?;
        let module = self.note(self.context.load_module(&ptx))?;
        self.modules.push(module);
        Ok(ModuleId(self.modules.len() - 1))
    }

    /// Returns the kernel `name` of a module of this device.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such module; the driver's error if there is no such
    /// kernel.
    pub fn kernel(&mut self, module: ModuleId, name: &str) -> Status<KernelId> {
        let name = CString::new(name).map_err(|_| DriverError::InvalidValue)?;
        let module = self
            .modules
            .get(module.0)
            .copied()
            .ok_or(DriverError::InvalidValue)?;
        let kernel = self.note(self.context.kernel(module, &name))?;
        self.kernels.push(kernel);
        Ok(KernelId(self.kernels.len() - 1))
    }

    /// Launches a kernel on a stream.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if there is no such kernel; the driver's error.
    ///
    /// # Safety
    /// The kernel takes exactly these arguments, each of 64 bits, and accesses only memory of the device that
    /// stays allocated until it is done.
    pub unsafe fn launch(
        &mut self,
        kernel: KernelId,
        stream: StreamId,
        shape: Launch,
        arguments: &[u64],
    ) -> Status {
        let kernel = self
            .kernels
            .get(kernel.0)
            .copied()
            .ok_or(DriverError::InvalidValue)?;
        let stream = self.stream(stream)?;
        // SAFETY: as the caller promises.
        let answer = unsafe { self.context.launch(kernel, stream, shape, arguments) };
        self.note(answer)
    }

    /// Sets `bytes` from `addr` to `byte`, as work of a stream.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if the range is not allocated; the driver's error.
    pub fn fill_bytes(
        &mut self,
        addr: DeviceAddr,
        byte: u8,
        bytes: u64,
        stream: StreamId,
    ) -> Status {
        self.ensure_held(addr, bytes)?;
        let stream = self.stream(stream)?;
        self.note(self.context.fill_bytes(addr.0, byte, size(bytes)?, stream))
    }

    /// Sets `count` words of 4 bytes from `addr`, a multiple of 4, to `word`, as work of a stream.
    ///
    /// # Errors
    /// As [`CudaDevice::fill_bytes`].
    pub fn fill_words(
        &mut self,
        addr: DeviceAddr,
        word: u32,
        count: u64,
        stream: StreamId,
    ) -> Status {
        self.ensure_held(addr, count.saturating_mul(4))?;
        let stream = self.stream(stream)?;
        self.note(self.context.fill_words(addr.0, word, size(count)?, stream))
    }

    /// Reads memory at `addr`. Waits for the default stream only.
    ///
    /// # Errors
    /// As [`CudaDevice::fill_bytes`].
    pub fn read(&mut self, addr: DeviceAddr, to: &mut [u8]) -> Status {
        self.ensure_held(addr, to.len() as u64)?;
        self.note(self.context.copy_to_host(to, addr.0))
    }

    /// Writes memory at `addr`. Waits for the default stream only.
    ///
    /// # Errors
    /// As [`CudaDevice::fill_bytes`].
    pub fn write(&mut self, addr: DeviceAddr, from: &[u8]) -> Status {
        self.ensure_held(addr, from.len() as u64)?;
        self.note(self.context.copy_to_device(addr.0, from))
    }

    /// Checks that a range is allocated from this device.
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if it is not.
    pub(super) fn ensure_held(&self, addr: DeviceAddr, bytes: u64) -> Status {
        if self.held.covers(addr, bytes) {
            Ok(())
        } else {
            Err(DriverError::InvalidValue)
        }
    }
}
