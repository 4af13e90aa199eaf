//! The kernel of [`Work`](crate::driver::work) on a CUDA device.
#![expect(unsafe_code, reason = "the kernel accesses no memory")]

use std::time::{Duration, Instant};

use super::{CudaDevice, KernelId, Launch};
use crate::driver::Status;
use crate::driver::work::{self, Kernel, Work};

impl CudaDevice {
    /// Returns the kernel and compiles it on first use.
    fn busy(&mut self) -> Status<KernelId> {
        if let Some(busy) = self.busy {
            return Ok(busy);
        }
        let module = self.load_module(work::PTX)?;
        let busy = self.kernel(module, work::BUSY)?;
        self.busy = Some(busy);
        Ok(busy)
    }
}

impl Work for CudaDevice {
    fn submit(&mut self, kernel: Kernel) -> Status {
        let busy = self.busy()?;
        let shape = Launch {
            blocks: 1,
            threads: 1,
        };
        let begun = Instant::now();
        // SAFETY: the kernel takes this argument and accesses no memory.
        unsafe { self.launch(busy, kernel.stream, shape, &[kernel.ns]) }?;
        while begun.elapsed() < Duration::from_nanos(kernel.host_ns) {
            std::hint::spin_loop();
        }
        Ok(())
    }
}
