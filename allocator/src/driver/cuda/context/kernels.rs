//! The calls that access memory: kernels, fills and copies.

use std::ffi::{CStr, c_uint, c_void};

use super::{Answer, Context};
use crate::driver::cuda::kernels::Launch;
use crate::driver::cuda::symbols::{Kernel, Module, Pointer, Stream};

impl Context {
    /// Loads PTX code.
    pub(crate) fn load_module(&self, ptx: &CStr) -> Answer<Module> {
        let _entered = self.enter()?;
        let mut module = Module::NULL;
        // SAFETY: `module` receives the one handle it writes; PTX ends with a zero.
        let answer =
            unsafe { (self.symbols.core.load_module)(&raw mut module, ptx.as_ptr().cast()) };
        self.check("cuModuleLoadData", answer)?;
        Ok(module)
    }

    pub(crate) fn unload_module(&self, module: Module) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the module was loaded here; neither it nor its kernels are used after this call.
        let answer = unsafe { (self.symbols.core.unload_module)(module) };
        self.check("cuModuleUnload", answer)
    }

    pub(crate) fn kernel(&self, module: Module, name: &CStr) -> Answer<Kernel> {
        let _entered = self.enter()?;
        let mut kernel = Kernel::NULL;
        // SAFETY: `kernel` receives the one handle it writes; the module is loaded.
        let answer = unsafe { (self.symbols.core.kernel)(&raw mut kernel, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", answer)?;
        Ok(kernel)
    }

    /// # Safety
    /// `kernel` takes exactly these arguments of 64 bits and writes only to memory it may write.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Kernel,
        stream: Stream,
        shape: Launch,
        arguments: &[u64],
    ) -> Answer<()> {
        let _entered = self.enter()?;
        let mut places: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| std::ptr::from_ref(argument).cast_mut().cast())
            .collect();
        let Launch { blocks, threads } = shape;
        // SAFETY: the driver copies each argument before it returns and writes none; the caller promises that
        // their number is right. Kernel and stream are live.
        let answer = unsafe {
            (self.symbols.core.launch)(
                kernel,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                places.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", answer)
    }

    pub(crate) fn fill_bytes(
        &self,
        addr: Pointer,
        byte: u8,
        count: usize,
        stream: Stream,
    ) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the range is memory of this device, and the stream is live: see [`Context`].
        let answer = unsafe { (self.symbols.core.fill_bytes)(addr, byte, count, stream) };
        self.check("cuMemsetD8Async", answer)
    }

    pub(crate) fn fill_words(
        &self,
        addr: Pointer,
        word: u32,
        count: usize,
        stream: Stream,
    ) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the range is memory of this device, and the stream is live: see [`Context`].
        let answer =
            unsafe { (self.symbols.core.fill_words)(addr, c_uint::from(word), count, stream) };
        self.check("cuMemsetD32Async", answer)
    }

    pub(crate) fn copy_to_host(&self, to: &mut [u8], from: Pointer) -> Answer<()> {
        let _entered = self.enter()?;
        let place = to.as_mut_ptr().cast();
        // SAFETY: it writes as many bytes as there are, before it returns, and reads memory of this device:
        // see [`Context`].
        let answer = unsafe { (self.symbols.core.copy_to_host)(place, from, to.len()) };
        self.check("cuMemcpyDtoH_v2", answer)
    }

    pub(crate) fn copy_to_device(&self, to: Pointer, from: &[u8]) -> Answer<()> {
        let _entered = self.enter()?;
        let place = from.as_ptr().cast();
        // SAFETY: it reads as many bytes as there are, before it returns, and writes memory of this device:
        // see [`Context`].
        let answer = unsafe { (self.symbols.core.copy_to_device)(to, place, from.len()) };
        self.check("cuMemcpyHtoD_v2", answer)
    }
}
