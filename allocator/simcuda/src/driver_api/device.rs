//! Initialization, devices, their primary contexts, and the names of status codes.

use std::ffi::{CStr, c_char};

use crate::border::{Out, entry_points};
use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

entry_points! { early:
    fn cuInit(flags: u32) |sim| {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        sim.initialize()
    }

    fn cuDriverGetVersion(version: Out<i32>) |sim| { version.set(sim.settings.driver_version) }
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

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |sim| {
        can.fill(|| sim.can_access_peer(device, peer))
    }

    /// Graphs use no memory.
    fn cuDeviceGetGraphMemAttribute(device: i32, _attribute: i32, bytes: Out<u64>) |sim| {
        sim.ordinal(device)?;
        bytes.set(0)
    }

    fn cuDeviceSetGraphMemAttribute(device: i32, _attribute: i32, _bytes: u64) |sim| {
        sim.ordinal(device).map(drop)
    }

    fn cuDeviceGraphMemTrim(device: i32) |sim| { sim.ordinal(device).map(drop) }
}

/// The handle of the first device's primary context, and the distance between handles. Devices have no
/// other contexts.
const FIRST: u64 = 0x9000;
const STEP: u64 = 0x10;

/// The handle of a device's primary context.
pub(crate) fn handle_of(ordinal: u32) -> u64 {
    FIRST + STEP * u64::from(ordinal)
}

/// The device of an active context.
fn ordinal_of(sim: &mut Sim, context: u64) -> Outcome<u32> {
    let above = context
        .checked_sub(FIRST)
        .filter(|above| above.is_multiple_of(STEP));
    let ordinal = above
        .and_then(|above| u32::try_from(above / STEP).ok())
        .ok_or(Code::INVALID_CONTEXT)?;
    let device = sim.device(ordinal).map_err(|_| Code::INVALID_CONTEXT)?;
    if device.is_active() {
        Ok(ordinal)
    } else {
        Err(Code::INVALID_CONTEXT)
    }
}

/// `CUlimit`.
mod limit {
    const STACK: i32 = 0;
    const PRINTF: i32 = 1;
    const HEAP: i32 = 2;
    const PENDING_LAUNCHES: i32 = 4;

    pub(super) const DEFAULTS: [(i32, u64); 4] = [
        (STACK, 1 << 10),
        (PRINTF, 1 << 20),
        (HEAP, 8 << 20),
        (PENDING_LAUNCHES, 2048),
    ];
}

fn release(sim: &mut Sim, device: i32) -> Outcome {
    let ordinal = sim.ordinal(device)?;
    let device = sim.device(ordinal)?;
    let retained = device.retained.checked_sub(1);
    device.retained = retained.ok_or(Code::INVALID_CONTEXT)?;
    Ok(())
}

fn push(sim: &mut Sim, context: u64) -> Outcome {
    context::push(ordinal_of(sim, context)?);
    Ok(())
}

fn pop(context: Out<u64>) -> Outcome {
    context.set_if_wanted(handle_of(context::pop()?));
    Ok(())
}

// Some libraries look up the first versions, which do the same.
entry_points! { driver:
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) |sim| {
        context.fill(|| {
            let ordinal = sim.ordinal(device)?;
            let device = sim.device(ordinal)?;
            device.retained = device.retained.saturating_add(1);
            sim.take_context(ordinal)?;
            Ok(handle_of(ordinal))
        })
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) |sim| { release(sim, device) }
    fn cuDevicePrimaryCtxRelease(device: i32) |sim| { release(sim, device) }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, is_active: Out<i32>) |sim| {
        let ordinal = sim.ordinal(device)?;
        let device = sim.device(ordinal)?;
        flags.set_if_wanted(0);
        is_active.set(i32::from(device.is_active()))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, _flags: u32) |sim| {
        sim.ordinal(device).map(drop)
    }

    fn cuCtxGetCurrent(context: Out<u64>) |_| {
        context.set(context::current().map_or(0, handle_of))
    }

    fn cuCtxSetCurrent(context: u64) |sim| {
        let ordinal = match context {
            0 => None,
            _ => Some(ordinal_of(sim, context)?),
        };
        context::set_current(ordinal);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: u64) |sim| { push(sim, context) }
    fn cuCtxPushCurrent(context: u64) |sim| { push(sim, context) }
    fn cuCtxPopCurrent_v2(context: Out<u64>) |_| { pop(context) }
    fn cuCtxPopCurrent(context: Out<u64>) |_| { pop(context) }

    fn cuCtxGetDevice(device: Out<i32>) |_| {
        device.fill(|| Ok(context::required()?.cast_signed()))
    }

    /// The defaults of an H100. Nothing depends on them.
    fn cuCtxGetLimit(bytes: Out<u64>, limit: i32) |_| {
        let default = limit::DEFAULTS.iter().find(|(number, _)| *number == limit);
        bytes.set(default.map_or(0, |&(_, bytes)| bytes))
    }

    fn cuCtxSetLimit(_limit: i32, _bytes: u64) |_| { Ok(()) }

    fn cuCtxEnablePeerAccess(_context: u64, _flags: u32) |_| { Ok(()) }
}

/// Returns a static text, or null for an unknown code.
fn describe(text: Option<&'static CStr>, to: Out<*const c_char>) -> Outcome {
    to.set(text.map_or(std::ptr::null(), CStr::as_ptr))?;
    text.map(|_| ()).ok_or(Code::INVALID_VALUE)
}

entry_points! { early:
    fn cuGetErrorName(code: i32, name: Out<*const c_char>) |_| {
        describe(Code(code).driver_name(), name)
    }

    fn cuGetErrorString(code: i32, text: Out<*const c_char>) |_| { describe(Code(code).text(), text) }
}
