//! Memory of the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};

entry_points! { runtime:
    fn cudaHostAlloc(addr: Out<u64>, bytes: u64, _flags: u32) |sim| {
        addr.fill(|| sim.host.allocate(bytes))
    }

    fn cudaMallocHost(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| sim.host.allocate(bytes))
    }

    fn cudaFreeHost(addr: u64) |sim| {
        sim.host.free(addr)
    }

    fn cudaHostRegister(_addr: u64, _bytes: u64, _flags: u32) |_| {
        Ok(())
    }

    fn cudaHostUnregister(_addr: u64) |_| {
        Ok(())
    }

    fn cudaHostGetDevicePointer(device: Out<u64>, host: u64, _flags: u32) |_| {
        device.set(host)
    }
}
