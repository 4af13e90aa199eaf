//! Contexts: each device has its primary one and no other.
#![expect(unsafe_code, reason = "functions that C calls")]

use crate::border::{Out, entry_points};
use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The handle of the first device's context, and how far apart handles are.
const FIRST: u64 = 0x9000;
const STEP: u64 = 0x10;

fn handle_of(ordinal: u32) -> u64 {
    FIRST + STEP * u64::from(ordinal)
}

/// The device of an active context.
fn ordinal_of(sim: &mut Sim, context: u64) -> Outcome<u32> {
    let above = context
        .checked_sub(FIRST)
        .filter(|above| above.is_multiple_of(STEP));
    let ordinal = above.and_then(|above| u32::try_from(above / STEP).ok());
    let ordinal = ordinal.ok_or(Code::INVALID_CONTEXT)?;
    let device = sim.device(ordinal).map_err(|_| Code::INVALID_CONTEXT)?;
    if device.is_active() {
        Ok(ordinal)
    } else {
        Err(Code::INVALID_CONTEXT)
    }
}

entry_points! { driver:
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) |sim| {
        context.fill(|| {
            let ordinal = sim.ordinal(device)?;
            let device = sim.device(ordinal)?;
            device.retained = device.retained.saturating_add(1);
            Ok(handle_of(ordinal))
        })
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) |sim| {
        let ordinal = sim.ordinal(device)?;
        let device = sim.device(ordinal)?;
        let retained = device.retained.checked_sub(1);
        device.retained = retained.ok_or(Code::INVALID_CONTEXT)?;
        Ok(())
    }

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

    fn cuCtxPushCurrent_v2(context: u64) |sim| {
        context::push(ordinal_of(sim, context)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) |_| {
        context.set_if_wanted(handle_of(context::pop()?));
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) |_| {
        device.fill(|| Ok(context::required()?.cast_signed()))
    }

    fn cuCtxSynchronize() |sim| {
        sim.synchronize_device(context::required()?)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) |_| {
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess(_context: u64, _flags: u32) |_| {
        Ok(())
    }
}
