//! What an address is, and descriptors of tensors that kernels copy by.

use coalesce_alloc::driver::DeviceAddr;

use crate::border::{Out, entry_points};
use crate::errors::{Code, Outcome};
use crate::state::{Device, Sim};

/// `CUpointer_attribute`.
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const DEVICE_ORDINAL: i32 = 9;
const RANGE_START: i32 = 11;
const RANGE_BYTES: i32 = 12;

/// `CU_MEMORYTYPE_HOST`, `CU_MEMORYTYPE_DEVICE`.
const HOST: i32 = 1;
const DEVICE: i32 = 2;

/// Host memory has the same address on the device if the driver allocated it, and none otherwise.
fn attribute(sim: &Sim, value: Out<u8>, attribute: i32, addr: u64) -> Outcome {
    let on_device = sim.is_device_address(addr);
    if !on_device && !sim.is_pinned(addr) {
        return Err(Code::INVALID_VALUE);
    }
    let range = || {
        let around = |device: &Device| device.sim.allocation_around(DeviceAddr(addr));
        sim.devices().find_map(around).ok_or(Code::INVALID_VALUE)
    };
    match attribute {
        MEMORY_TYPE => value.cast().set(if on_device { DEVICE } else { HOST }),
        DEVICE_POINTER => value.cast().set(addr),
        HOST_POINTER if !on_device => value.cast().set(addr),
        DEVICE_ORDINAL => value
            .cast()
            .set(sim.settings.ordinal_of(addr).cast_signed()),
        RANGE_START => value.cast().set(range()?.0.0),
        RANGE_BYTES => value.cast().set(range()?.1),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// `CUtensorMap`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

entry_points! { driver:
    fn cuPointerGetAttribute(value: Out<u8>, what: i32, addr: u64) |sim| {
        attribute(sim, value, what, addr)
    }

    /// No kernel reads the descriptor.
    fn cuTensorMapEncodeTiled(
        map: Out<TensorMap>,
        _data_type: i32,
        _rank: u32,
        _addr: u64,
        _sizes: u64,
        _strides: u64,
        _box_sizes: u64,
        _element_strides: u64,
        _interleave: i32,
        _swizzle: i32,
        _promotion: i32,
        _fill: i32,
    ) |_| {
        map.set(TensorMap([0; 16]))
    }
}
