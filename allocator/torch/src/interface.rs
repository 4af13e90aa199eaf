//! The exported C functions.
//!
//! None of them panics. [`coalesce_malloc`] and [`coalesce_free`] print failures to standard error;
//! [`coalesce_malloc_or_throw`] and the hooks throw them if PyTorch is loaded.
#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::stats::summary;

use crate::devices::StackSource;
#[cfg(unix)]
use crate::exception::{missing, throw};
use crate::failure::{Failure, guarded};
use crate::process::DEVICES;
use crate::reply::{memory_stats, reply};
use crate::text::text;

/// Returns the stream with PyTorch's handle.
fn stream_id(stream: *mut c_void) -> StreamId {
    StreamId(stream.addr() as u64)
}

fn device_addr(address: *mut c_void) -> DeviceAddr {
    DeviceAddr(address.addr() as u64)
}

fn pointer(addr: DeviceAddr) -> *mut c_void {
    // A device address, never dereferenced on the host.
    ptr::without_provenance_mut(addr.0 as usize)
}

fn malloc(size: isize, device: c_int, stream: *mut c_void) -> Result<*mut c_void, Failure> {
    // PyTorch passes an unsigned size; a negative value is too large in any case.
    let bytes = size.cast_unsigned() as u64;
    guarded(|| DEVICES.malloc(device, bytes, stream_id(stream))).map(pointer)
}

/// Allocates at least `size` bytes on `device` for work on `stream`. Returns null for zero bytes. On failure
/// it prints a message to standard error and returns null.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    malloc(size, device, stream).unwrap_or_else(|failure| {
        failure.print();
        ptr::null_mut()
    })
}

/// Like [`coalesce_malloc`], but throws an exception into PyTorch on failure. Tensors need this one;
/// `torch.cuda.MemPool` handles null and uses the other.
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

/// Frees an allocation. PyTorch also passes the requested size and the stream, which are not needed.
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

/// For `set_record_stream_fn`: records that `stream` uses an allocation.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_record_stream(address: *mut c_void, stream: *mut c_void) {
    let (addr, stream) = (device_addr(address), stream_id(stream));
    finish(guarded(|| DEVICES.record_stream(addr, stream)));
}

/// For `set_reset_fn`: returns cached memory to the devices (`torch.cuda.empty_cache`).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_empty_cache() {
    finish(guarded(|| DEVICES.empty_cache()));
}

/// For `set_memory_fraction_fn`: limits the reserved memory of a device
/// (`torch.cuda.set_per_process_memory_fraction`).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_set_memory_fraction(fraction: f64, device: c_int) {
    finish(guarded(|| DEVICES.set_memory_fraction(device, fraction)));
}

/// For `set_base_alloc_fn`: returns the address and size of the segment of an allocation.
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
                // SAFETY: the caller guarantees it.
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

/// For `set_begin_allocate_to_pool`, whose C++ arguments are ignored: CUDA graph capture and memory pools
/// fail before anything is captured.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn coalesce_refuse_pool() {
    thrown(&Failure::new(
        "Coalesce does not support CUDA graph capture and torch.cuda.MemPool: PyTorch offers them to C++ \
         allocators only",
    ));
}

/// Returns the error in the environment, or null. Free it with [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_configuration_error() -> *mut c_char {
    match guarded(|| DEVICES.conf().map(|_| ())) {
        Ok(()) => ptr::null_mut(),
        Err(failure) => text(failure.message),
    }
}

/// Returns the number of history entries that the environment asks for; −1 for none.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_history_entries() -> i64 {
    let entries = guarded(|| Ok(DEVICES.conf()?.history)).ok().flatten();
    entries.map_or(-1, |entries| i64::try_from(entries).unwrap_or(i64::MAX))
}

/// Whether the mode `harden` is on, which needs stacks.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_hardens() -> bool {
    guarded(|| Ok(DEVICES.conf()?.harden.is_some())).unwrap_or(false)
}

/// Asks a function for the stacks of the mode `harden` from now on, or nobody.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_follow_stacks(source: Option<StackSource>) {
    DEVICES.follow_stacks(source);
}

/// Checks that freed memory was not written, and prints where it was. Waits for all devices.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_check_freed() {
    if let Err(failure) = guarded(|| DEVICES.check_freed()) {
        failure.print();
    }
}

/// Changes the settings of the reference on all devices. Returns the error in them, or null. Free it with
/// [`coalesce_release_text`](crate::text::coalesce_release_text).
///
/// # Safety
/// `conf` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_apply_settings(conf: *const c_char) -> *mut c_char {
    // SAFETY: the caller guarantees it.
    let conf = unsafe { CStr::from_ptr(conf) }.to_string_lossy();
    match guarded(|| DEVICES.apply_settings(&conf)) {
        Ok(()) => ptr::null_mut(),
        Err(failure) => text(failure.message),
    }
}

/// Names the installed version of PyTorch (`torch.__version__`), whose rules then apply. Must be the first
/// call. Returns a warning if another release is followed because that one is not reproduced, or null. Free
/// it with [`coalesce_release_text`](crate::text::coalesce_release_text).
///
/// # Safety
/// `version` must be null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_set_torch_version(version: *const c_char) -> *mut c_char {
    if version.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller guarantees it.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy();
    let warning = guarded(|| Ok(DEVICES.set_installed(&version)))
        .unwrap_or_else(|failure| Some(failure.message));
    warning.map_or(ptr::null_mut(), text)
}

/// Returns the library or symbol of PyTorch that is missing for throwing failures, or null. Free it with
/// [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_missing_symbol() -> *mut c_char {
    #[cfg(unix)]
    let name = missing().map(|name| name.to_string_lossy().into_owned());
    #[cfg(not(unix))]
    let name = Some("C++ exceptions on this platform".to_owned());
    name.map_or(ptr::null_mut(), text)
}

/// Returns the statistics of a device as JSON; see [`reply`]. Free it with [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_memory_stats(device: c_int) -> *mut c_char {
    answer(|| {
        let release = DEVICES.conf().map(|conf| conf.torch);
        let stats = release.and_then(|release| Ok(memory_stats(&DEVICES.stats(device)?, release)));
        Ok(reply(stats))
    })
}

/// Returns the report of `torch.cuda.memory_summary` for a device as JSON; see [`reply`]. Free it with
/// [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_memory_summary(device: c_int, abbreviated: c_int) -> *mut c_char {
    answer(|| {
        let stats = DEVICES.stats(device);
        let summary = |s| summary::memory_summary(&s, device.unsigned_abs(), abbreviated != 0);
        Ok(reply(stats.map(summary)))
    })
}

/// Returns a snapshot of all devices, with a history for each of the first `device_count`, as JSON; see
/// [`reply`]. Free it with [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_snapshot(device_count: c_int) -> *mut c_char {
    let count = usize::try_from(device_count).unwrap_or(0);
    answer(|| Ok(reply(DEVICES.snapshot(count))))
}

/// Resets the peaks of a device to the current values and returns null as JSON; see [`reply`]. Free it with
/// [`coalesce_release_text`](crate::text::coalesce_release_text).
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_reset_peak_stats(device: c_int) -> *mut c_char {
    answer(|| Ok(reply(DEVICES.reset_peak_stats(device))))
}

fn finish(done: Result<(), Failure>) {
    if let Err(failure) = done {
        thrown(&failure);
    }
}

/// Throws a failure into PyTorch, or prints it if that is not possible.
fn thrown(failure: &Failure) {
    #[cfg(unix)]
    // SAFETY: the callers are `C-unwind` functions called by PyTorch's C++ code, outside any
    // `catch_unwind`.
    unsafe {
        throw(failure)
    };
    failure.print();
}

fn answer(work: impl FnOnce() -> Result<String, Failure>) -> *mut c_char {
    let json = guarded(work).unwrap_or_else(|failure| reply(Err::<(), _>(failure)));
    text(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::coalesce_release_text;

    const NO_DEVICE: c_int = -1;

    fn read(text: *mut c_char) -> String {
        // SAFETY: the text comes from this library and is freed once.
        unsafe {
            let content = CStr::from_ptr(text).to_string_lossy().into_owned();
            coalesce_release_text(text);
            content
        }
    }

    /// Without PyTorch in the process nothing can be thrown.
    #[test]
    fn a_failure_returns_null() {
        let default = ptr::null_mut();
        assert!(coalesce_malloc(1, NO_DEVICE, default).is_null());
        assert!(coalesce_malloc_or_throw(1, NO_DEVICE, default).is_null());
        coalesce_free(ptr::without_provenance_mut(512), 1, NO_DEVICE, default);
        coalesce_set_memory_fraction(0.5, NO_DEVICE);
        coalesce_record_stream(ptr::without_provenance_mut(512), default);
        coalesce_empty_cache();
        coalesce_refuse_pool();
        assert_eq!(read(coalesce_missing_symbol()), "libc10_cuda.so");
        let mut bytes = 7;
        // SAFETY: `bytes` is a `size_t`.
        let base = unsafe { coalesce_base_allocation(default, &raw mut bytes) };
        assert!(base.is_null());
        assert_eq!(bytes, 7);
        // SAFETY: null is ignored.
        unsafe { coalesce_release_text(ptr::null_mut()) };
    }

    #[test]
    fn every_query_has_a_reply() {
        let error = r#"{"error":"no device -1"}"#;
        assert_eq!(read(coalesce_memory_stats(NO_DEVICE)), error);
        assert_eq!(read(coalesce_memory_summary(NO_DEVICE, 0)), error);
        assert_eq!(read(coalesce_reset_peak_stats(NO_DEVICE)), error);
        let summary = read(coalesce_memory_summary(0, 1));
        assert!(summary.contains("memory summary, device ID 0"), "{summary}");
        let snapshot = read(coalesce_snapshot(1));
        assert!(snapshot.starts_with(r#"{"value":{"segments":[],"device_traces":[[]],"#));
    }
}
