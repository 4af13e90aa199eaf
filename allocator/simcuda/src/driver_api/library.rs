//! Libraries: modules that belong to no context.

use crate::border::{In, Out, entry_points};
use crate::driver_api::module::{text_of, variable};

entry_points! { driver:
    fn cuLibraryLoadData(
        library: Out<u64>,
        image: In<u8>,
        _options: u64,
        _values: u64,
        _count: u32,
        _library_options: u64,
        _library_values: u64,
        _library_count: u32,
    ) |sim| {
        library.fill(|| Ok(sim.modules.load(text_of(image)?)))
    }

    fn cuLibraryUnload(library: u64) |sim| { sim.modules.unload(library) }

    fn cuLibraryGetKernel(kernel: Out<u64>, library: u64, name: In<u8>) |sim| {
        kernel.fill(|| sim.modules.kernel(library, name.text()?))
    }

    fn cuLibraryGetModule(module: Out<u64>, library: u64) |sim| {
        module.fill(|| sim.modules.ensure_loaded(library).map(|()| library))
    }

    fn cuLibraryGetGlobal(
        addr: Out<u64>,
        bytes: Out<u64>,
        library: u64,
        name: In<u8>,
    ) |sim| {
        variable(sim, addr, bytes, library, name)
    }

    fn cuKernelGetFunction(function: Out<u64>, kernel: u64) |sim| {
        function.fill(|| sim.modules.get(kernel).map(|_| kernel))
    }

    fn cuKernelGetAttribute(value: Out<i32>, attribute: i32, kernel: u64, _device: i32) |sim| {
        value.fill(|| sim.modules.get(kernel)?.attribute(&sim.settings, attribute))
    }

    fn cuKernelSetAttribute(attribute: i32, value: i32, kernel: u64, _device: i32) |sim| {
        sim.modules.get_mut(kernel)?.set_attribute(attribute, value)
    }

    fn cuKernelSetCacheConfig(kernel: u64, _preference: i32, _device: i32) |sim| {
        sim.modules.get(kernel).map(drop)
    }
}
