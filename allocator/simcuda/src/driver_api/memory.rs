//! Memory in one piece, on devices and on the host.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::context;

entry_points! { driver:
    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |sim| {
        let (free_bytes, total_bytes) = sim.memory_info(context::required()?)?;
        free.set_if_wanted(free_bytes);
        total.set_if_wanted(total_bytes);
        Ok(())
    }

    fn cuMemAlloc_v2(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| sim.malloc(context::required()?, bytes))
    }

    fn cuMemFree_v2(addr: u64) |sim| {
        context::required()?;
        match addr {
            0 => Ok(()),
            _ => sim.free(addr),
        }
    }

    fn cuMemHostAlloc(addr: Out<u64>, bytes: u64, _flags: u32) |sim| {
        addr.fill(|| sim.host.allocate(bytes))
    }

    fn cuMemAllocHost_v2(addr: Out<u64>, bytes: u64) |sim| {
        addr.fill(|| sim.host.allocate(bytes))
    }

    fn cuMemFreeHost(addr: u64) |sim| {
        sim.host.free(addr)
    }

    fn cuMemHostRegister_v2(_addr: u64, _bytes: u64, _flags: u32) |_| {
        Ok(())
    }

    fn cuMemHostUnregister(_addr: u64) |_| {
        Ok(())
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, host: u64, _flags: u32) |_| {
        device.set(host)
    }
}
