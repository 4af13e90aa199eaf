//! Devices.

use crate::border::{Out, shared_entry_points};
use crate::errors::Code;

shared_entry_points! {
    fn cuDeviceGetAttribute, cudaDeviceGetAttribute(
        value: Out<i32>,
        attribute: i32,
        device: i32,
    ) |sim, _| {
        value.fill(|| Ok(sim.settings.attribute(attribute, sim.ordinal(device)?)))
    }

    fn cuDeviceGetPCIBusId, cudaDeviceGetPCIBusId(id: Out<u8>, room: i32, device: i32) |sim, _| {
        let bus = sim.settings.pci_bus(sim.ordinal(device)?);
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        id.set_text(&format!("0000:{bus:02x}:00.0"), room)
    }

    fn cuCtxSynchronize, cudaDeviceSynchronize() |sim, api| {
        let here = api.device(sim)?;
        sim.synchronize_device(here)
    }

    fn cuCtxGetStreamPriorityRange, cudaDeviceGetStreamPriorityRange(
        least: Out<i32>,
        greatest: Out<i32>,
    ) |_, _| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }
}
