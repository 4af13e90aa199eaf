//! The functions that C sees.
//!
//! None of them lets a panic out. Those that PyTorch calls without looking at what they return say on
//! standard error what went wrong; [`coalesce_malloc_or_throw`] and the hooks throw it, if PyTorch is
//! there to catch it.
#![expect(unsafe_code, reason = "the border to C")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use coalesce_alloc::driver::cuda::{CudaDevice, NativeStreams, StreamHandles};
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::stats::summary;

use crate::devices::Devices;
#[cfg(unix)]
use crate::exception::throw;
use crate::failure::{Failure, guarded};
use crate::reply::{memory_stats, reply};

/// The devices that PyTorch uses. Never dropped: tensors may be given back until the process is gone.
static DEVICES: Devices<CudaDevice> = Devices::new(open, variable);

fn open(ordinal: u32) -> Result<CudaDevice, String> {
    // SAFETY: the streams are those that PyTorch passes. It works in the primary contexts and never
    // destroys a stream of its own; one that it was lent (`torch.cuda.ExternalStream`) must outlive the
    // tensors made and used on it, as with PyTorch's own allocator.
    let streams = StreamHandles::Native(unsafe { NativeStreams::promised() });
    CudaDevice::open(ordinal, streams).map_err(|error| error.to_string())
}

fn variable(name: &str) -> Option<String> {
    // What is not Unicode is not right either, and is then found wrong as it is printed.
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// A stream by PyTorch's handle.
fn stream_id(stream: *mut c_void) -> StreamId {
    StreamId(stream.addr() as u64)
}

fn device_addr(address: *mut c_void) -> DeviceAddr {
    DeviceAddr(address.addr() as u64)
}

fn pointer(addr: DeviceAddr) -> *mut c_void {
    // An address of the device, which nobody on this side reads.
    ptr::without_provenance_mut(addr.0 as usize)
}

fn malloc(size: isize, device: c_int, stream: *mut c_void) -> Result<*mut c_void, Failure> {
    // PyTorch means an unsigned number; what is negative as a signed one is too much in any case.
    let bytes = size.cast_unsigned() as u64;
    guarded(|| DEVICES.malloc(device, bytes, stream_id(stream))).map(pointer)
}

/// At least `size` bytes on `device` for work on `stream`; null for zero bytes. If there are none:
/// null, and a message on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    malloc(size, device, stream).unwrap_or_else(|failure| {
        failure.print();
        ptr::null_mut()
    })
}

/// As [`coalesce_malloc`]; if there is no memory, PyTorch gets an exception. This one is for tensors,
/// the other for `torch.cuda.MemPool`, which takes null for what it is.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_malloc_or_throw(
    size: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    malloc(size, device, stream).unwrap_or_else(|failure| {
        thrown(&failure);
        ptr::null_mut()
    })
}

/// Takes back what a malloc returned. PyTorch says again what it asked for; the address is enough.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_free(
    address: *mut c_void,
    _size: usize,
    device: c_int,
    _stream: *mut c_void,
) {
    // Destructors call this, so nothing may be thrown.
    if let Err(failure) = guarded(|| DEVICES.free(device, device_addr(address))) {
        failure.print();
    }
}

/// For `set_record_stream_fn`: `stream`, too, works on an allocation.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_record_stream(address: *mut c_void, stream: *mut c_void) {
    let (addr, stream) = (device_addr(address), stream_id(stream));
    finish(guarded(|| DEVICES.record_stream(addr, stream)));
}

/// For `set_reset_fn`: returns to the devices what can be returned (`torch.cuda.empty_cache`).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_empty_cache() {
    finish(guarded(|| DEVICES.empty_cache()));
}

/// For `set_memory_fraction_fn`: limits what is held of a device
/// (`torch.cuda.set_per_process_memory_fraction`).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_set_memory_fraction(fraction: f64, device: c_int) {
    finish(guarded(|| DEVICES.set_memory_fraction(device, fraction)));
}

/// For `set_base_alloc_fn`: the start of the segment that an allocation is part of, and its bytes.
///
/// # Safety
/// `size` must be null or point to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn coalesce_base_allocation(
    address: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    match guarded(|| DEVICES.base_allocation(device_addr(address))) {
        Ok((base, bytes)) => {
            if !size.is_null() {
                // SAFETY: the caller's promise.
                unsafe { size.write(bytes as usize) };
            }
            pointer(base)
        }
        Err(failure) => {
            thrown(&failure);
            ptr::null_mut()
        }
    }
}

/// For `set_begin_allocate_to_pool`, whose arguments are C++'s and are not looked at: captures of CUDA
/// graphs and memory pools get an error before anything has been captured.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_refuse_pool() {
    thrown(&Failure::new(
        "Coalesce does not serve captures of CUDA graphs and torch.cuda.MemPool: PyTorch asks for \
         them in C++ alone",
    ));
}

/// What is wrong with the environment, or null. To be given to [`coalesce_release_text`].
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_configuration_error() -> *mut c_char {
    match guarded(|| DEVICES.conf().map(|_| ())) {
        Ok(()) => ptr::null_mut(),
        Err(failure) => text(failure.message),
    }
}

/// The statistics of a device, as JSON: see [`reply`]. To be given to [`coalesce_release_text`].
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_memory_stats(device: c_int) -> *mut c_char {
    answer(|| Ok(reply(DEVICES.stats(device).map(|s| memory_stats(&s)))))
}

/// The report of `torch.cuda.memory_summary` for a device, as JSON: see [`reply`]. To be given to
/// [`coalesce_release_text`].
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_memory_summary(device: c_int, abbreviated: c_int) -> *mut c_char {
    answer(|| {
        let stats = DEVICES.stats(device);
        let summary = |s| summary::memory_summary(&s, device.unsigned_abs(), abbreviated != 0);
        Ok(reply(stats.map(summary)))
    })
}

/// The state of all devices, with a history for each of the first `device_count`, as JSON: see [`reply`].
/// To be given to [`coalesce_release_text`].
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_snapshot(device_count: c_int) -> *mut c_char {
    let count = usize::try_from(device_count).unwrap_or(0);
    answer(|| Ok(reply(DEVICES.snapshot(count))))
}

/// Sets the peaks of a device to their current values, and answers null, as JSON: see [`reply`]. To be
/// given to [`coalesce_release_text`].
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_reset_peak_stats(device: c_int) -> *mut c_char {
    answer(|| Ok(reply(DEVICES.reset_peak_stats(device))))
}

/// Frees a text that came from here.
///
/// # Safety
/// It must have come from here, and not have been given back yet. Null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_release_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { CString::from_raw(text) });
    }
}

fn finish(done: Result<(), Failure>) {
    if let Err(failure) = done {
        thrown(&failure);
    }
}

/// Throws a failure at PyTorch, or prints it if that cannot be done.
fn thrown(failure: &Failure) {
    #[cfg(unix)]
    // SAFETY: the callers are `C-unwind` functions, which PyTorch's C++ code calls, and have left every
    // `catch_unwind` behind.
    unsafe {
        throw(failure)
    };
    failure.print();
}

fn answer(work: impl FnOnce() -> Result<String, Failure>) -> *mut c_char {
    let json = guarded(work).unwrap_or_else(|failure| reply(Err::<(), _>(failure)));
    text(json)
}

fn text(content: String) -> *mut c_char {
    let content = CString::new(content.replace('\0', " "));
    content.map_or(ptr::null_mut(), CString::into_raw)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    const NO_DEVICE: c_int = -1;

    fn read(text: *mut c_char) -> String {
        // SAFETY: it came from here, and goes back once.
        unsafe {
            let content = CStr::from_ptr(text).to_string_lossy().into_owned();
            coalesce_release_text(text);
            content
        }
    }

    /// Without PyTorch in the process there is nobody to throw at.
    #[test]
    fn a_failure_is_null_and_nothing_else_happens() {
        let default = ptr::null_mut();
        assert!(coalesce_malloc(1, NO_DEVICE, default).is_null());
        assert!(coalesce_malloc_or_throw(1, NO_DEVICE, default).is_null());
        coalesce_free(ptr::without_provenance_mut(512), 1, NO_DEVICE, default);
        coalesce_set_memory_fraction(0.5, NO_DEVICE);
        coalesce_record_stream(ptr::without_provenance_mut(512), default);
        coalesce_empty_cache();
        coalesce_refuse_pool();
        let mut bytes = 7;
        // SAFETY: `bytes` is a place for a size.
        let base = unsafe { coalesce_base_allocation(default, &raw mut bytes) };
        assert!(base.is_null());
        assert_eq!(bytes, 7);
        // SAFETY: null is ignored.
        unsafe { coalesce_release_text(ptr::null_mut()) };
    }

    #[test]
    fn every_question_has_an_answer() {
        let error = r#"{"error":"there is no device -1"}"#;
        assert_eq!(read(coalesce_memory_stats(NO_DEVICE)), error);
        assert_eq!(read(coalesce_memory_summary(NO_DEVICE, 0)), error);
        assert_eq!(read(coalesce_reset_peak_stats(NO_DEVICE)), error);
        let summary = read(coalesce_memory_summary(0, 1));
        assert!(summary.contains("memory summary, device ID 0"), "{summary}");
        let snapshot = read(coalesce_snapshot(1));
        assert!(snapshot.starts_with(r#"{"value":{"segments":[],"device_traces":[[]],"#));
    }
}
