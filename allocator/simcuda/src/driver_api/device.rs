//! Initialisation, and what devices there are.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::errors::Code;

entry_points! { early:
    fn cuInit(flags: u32) |sim| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        sim.initialize()
    }

    fn cuDriverGetVersion(version: Out<i32>) |sim| {
        version.set(sim.settings.driver_version)
    }
}

entry_points! { driver:
    fn cuDeviceGetCount(count: Out<i32>) |sim| {
        count.set(sim.settings.device_count.cast_signed())
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |sim| {
        device.fill(|| Ok(sim.ordinal(ordinal)?.cast_signed()))
    }

    fn cuDeviceGetName(name: Out<u8>, room: i32, device: i32) |sim| {
        sim.ordinal(device)?;
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        name.set_text(&sim.settings.device_name(), room)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) |sim| {
        uuid.fill(|| Ok(sim.settings.uuid(sim.ordinal(device)?)))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) |sim| {
        bytes.fill(|| {
            sim.ordinal(device)?;
            Ok(sim.settings.device.capacity)
        })
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |sim| {
        value.fill(|| Ok(sim.settings.attribute(attribute, sim.ordinal(device)?)))
    }

    fn cuDeviceGetPCIBusId(id: Out<u8>, room: i32, device: i32) |sim| {
        let bus = sim.settings.pci_bus(sim.ordinal(device)?);
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        id.set_text(&format!("0000:{bus:02x}:00.0"), room)
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |sim| {
        can.fill(|| {
            let apart = sim.ordinal(device)? != sim.ordinal(peer)?;
            Ok(i32::from(apart && sim.settings.peers))
        })
    }

    /// Memory of graphs, of which there are none: all levels are 0 bytes.
    fn cuDeviceGetGraphMemAttribute(device: i32, _attribute: i32, bytes: Out<u64>) |sim| {
        sim.ordinal(device)?;
        bytes.set(0)
    }

    fn cuDeviceSetGraphMemAttribute(device: i32, _attribute: i32, _bytes: u64) |sim| {
        sim.ordinal(device).map(drop)
    }

    fn cuDeviceGraphMemTrim(device: i32) |sim| {
        sim.ordinal(device).map(drop)
    }
}
