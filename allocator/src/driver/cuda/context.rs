//! A device's primary context and the driver calls, one safe function each.
//!
//! The CUDA runtime, and with it PyTorch, uses the primary context. A call restores the thread's current
//! context, so it does not disturb a thread that uses several devices.
#![expect(
    unsafe_code,
    reason = "the border to CUDA: calls of the driver's entry points"
)]

mod graph;
mod kernels;
mod pool;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys;

use super::error::{CallError, Code, CudaError, code};
use super::symbols::{Context as Handle, Device, Event, Pointer, Stream, Symbols};
use crate::driver::MemoryInfo;

pub(super) use self::pool::{PoolAttribute, Pools};
pub(super) use self::virtual_memory::VirtualMemory;

/// Buffer size for a device's name, including the terminating zero.
const NAME_BYTES: usize = 256;

/// A device's primary context, retained until drop.
///
/// Handles passed to its calls must be live and belong to this context. [`super::CudaDevice`] ensures that:
/// it keeps the streams, events, pools, modules and kernels, and checks that filled or copied memory is
/// allocated from it.
#[derive(Debug)]
pub(super) struct Context {
    symbols: &'static Symbols,
    device: Device,
    handle: Handle,
    /// Whether it was made the current context of a thread permanently.
    was_offered: bool,
    /// Whether threads without a current context keep this one after a call.
    stays: bool,
}

/// Read and write access for a device.
fn access_of(device: Device) -> sys::CUmemAccessDesc {
    sys::CUmemAccessDesc {
        location: memory_of(device),
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

fn memory_of(device: Device) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device,
    }
}

/// The driver's answer to a call.
pub(super) type Answer<T> = Result<T, CallError>;

fn check(symbols: &Symbols, call: &'static str, code: Code) -> Answer<()> {
    if code == code::SUCCESS {
        return Ok(());
    }
    let core = &symbols.core;
    Err(CallError {
        call,
        code,
        name: words(core.error_name, code),
        text: words(core.error_text, code),
    })
}

/// Returns the driver's text for a code, if it knows the code.
fn words(
    ask: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    about: Code,
) -> Option<String> {
    let mut text = std::ptr::null();
    // SAFETY: `text` receives the one pointer it writes. A code is a number to it.
    let answer = unsafe { ask(about, &raw mut text) };
    if answer != code::SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: it is a C string of the library, which is never unloaded.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// Counts the devices, at least one.
pub(super) fn count_devices() -> Result<(&'static Symbols, u32), CudaError> {
    let symbols = Symbols::of_driver()?;
    // SAFETY: the flags must be 0.
    let started = check(symbols, "cuInit", unsafe { (symbols.core.init)(0) });
    started.map_err(|error| match error.code {
        code::NO_DEVICE => CudaError::NoDevice,
        code::STUB_LIBRARY => CudaError::StubDriver,
        _ => CudaError::Call(error),
    })?;
    let mut count: c_int = 0;
    // SAFETY: `count` receives the one number it writes.
    let answer = unsafe { (symbols.core.device_count)(&raw mut count) };
    check(symbols, "cuDeviceGetCount", answer)?;
    match u32::try_from(count) {
        Ok(0) | Err(_) => Err(CudaError::NoDevice),
        Ok(count) => Ok((symbols, count)),
    }
}

impl Context {
    /// Retains the primary context of the `ordinal`-th device.
    pub(super) fn retain(ordinal: u32) -> Result<Self, CudaError> {
        let (symbols, count) = count_devices()?;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let mut device: Device = 0;
        // SAFETY: `device` receives the one number it writes.
        let answer = unsafe { (symbols.core.device)(&raw mut device, number) };
        check(symbols, "cuDeviceGet", answer)?;
        let mut handle = Handle::NULL;
        // SAFETY: `handle` receives the one handle it writes.
        let answer = unsafe { (symbols.core.retain_context)(&raw mut handle, device) };
        check(symbols, "cuDevicePrimaryCtxRetain", answer)?;
        Ok(Self {
            symbols,
            device,
            handle,
            was_offered: false,
            stays: false,
        })
    }

    pub(super) fn symbols(&self) -> &'static Symbols {
        self.symbols
    }

    fn check(&self, call: &'static str, code: Code) -> Answer<()> {
        check(self.symbols, call, code)
    }

    /// Returns the CUDA version of the driver: major and minor.
    pub(super) fn driver_version(&self) -> Answer<(u32, u32)> {
        let mut version: c_int = 0;
        // SAFETY: `version` receives the one number it writes.
        let answer = unsafe { (self.symbols.core.driver_version)(&raw mut version) };
        self.check("cuDriverGetVersion", answer)?;
        let version = version.unsigned_abs();
        Ok((version / 1000, version % 1000 / 10))
    }

    pub(super) fn device_name(&self) -> Answer<String> {
        let mut name = [0u8; NAME_BYTES];
        let start = name.as_mut_ptr().cast();
        // SAFETY: it writes at most as many bytes as it is told there are.
        let answer =
            unsafe { (self.symbols.core.device_name)(start, NAME_BYTES as c_int, self.device) };
        self.check("cuDeviceGetName", answer)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    pub(super) fn attribute(&self, attribute: sys::CUdevice_attribute) -> Answer<c_int> {
        let mut value: c_int = 0;
        let attribute = attribute as c_uint;
        // SAFETY: `value` receives the one number it writes.
        let answer =
            unsafe { (self.symbols.core.device_attribute)(&raw mut value, attribute, self.device) };
        self.check("cuDeviceGetAttribute", answer)?;
        Ok(value)
    }

    /// Returns the device with this number if it can access this device's memory.
    pub(super) fn peer(&self, ordinal: u32) -> Answer<Option<Device>> {
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut peer, mut can): (Device, c_int) = (0, 0);
        // SAFETY: `peer` receives the one number it writes.
        let answer = unsafe { (self.symbols.core.device)(&raw mut peer, number) };
        self.check("cuDeviceGet", answer)?;
        // SAFETY: `can` receives the one number it writes.
        let answer =
            unsafe { (self.symbols.core.can_access_peer)(&raw mut can, peer, self.device) };
        self.check("cuDeviceCanAccessPeer", answer)?;
        Ok((can != 0).then_some(peer))
    }

    /// Returns the bytes of memory of the device.
    pub(super) fn total_memory(&self) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: `bytes` receives the one number it writes.
        let answer = unsafe { (self.symbols.core.total_memory)(&raw mut bytes, self.device) };
        self.check("cuDeviceTotalMem_v2", answer)?;
        Ok(bytes as u64)
    }

    fn current(&self) -> Answer<Handle> {
        let mut current = Handle::NULL;
        // SAFETY: `current` receives the one handle it writes.
        let answer = unsafe { (self.symbols.core.current_context)(&raw mut current) };
        self.check("cuCtxGetCurrent", answer)?;
        Ok(current)
    }

    fn set_current(&self, context: Handle) -> Answer<()> {
        // SAFETY: it is this context, which is retained, or the thread's previous one.
        let answer = unsafe { (self.symbols.core.set_current_context)(context) };
        self.check("cuCtxSetCurrent", answer)
    }

    /// Makes this the thread's current context if it has none, which saves switching in each call.
    pub(super) fn offer_to_thread(&mut self) -> Answer<()> {
        if self.current()? == Handle::NULL {
            self.set_current(self.handle)?;
            self.was_offered = true;
        }
        Ok(())
    }

    /// Lets threads without a current context keep this one after a call, as the CUDA runtime does. PyTorch
    /// warns about threads without a context.
    pub(super) fn stay_with_threads(&mut self) {
        self.stays = true;
    }

    /// Makes this the thread's current context until the guard is dropped.
    ///
    /// Until then calls are also allowed while a stream captures a graph: an allocator reserves memory for the
    /// graph, and for other threads, in the middle of a capture, which any such call would otherwise invalidate.
    fn enter(&self) -> Answer<Entered<'_>> {
        let current = self.current()?;
        if current != self.handle {
            self.set_current(self.handle)?;
        }
        let is_kept = current == self.handle || (self.stays && current == Handle::NULL);
        Ok(Entered {
            context: self,
            outer: (!is_kept).then_some(current),
            capture_mode: self.exchange_capture_mode(RELAXED),
        })
    }

    /// Sets the thread's capture mode and returns the one before; `None` if the driver knows no captures.
    fn exchange_capture_mode(&self, mode: c_uint) -> Option<c_uint> {
        let calls = self.symbols.capture.as_ref().ok()?;
        let mut mode = mode;
        // SAFETY: `mode` is the one number that it reads and writes.
        let answer = unsafe { (calls.exchange_mode)(&raw mut mode) };
        (answer == code::SUCCESS).then_some(mode)
    }

    pub(super) fn synchronize(&self) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the context is current.
        let answer = unsafe { (self.symbols.core.synchronize_context)() };
        self.check("cuCtxSynchronize", answer)
    }

    pub(super) fn memory_info(&self) -> Answer<MemoryInfo> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: `free` and `total` receive the two numbers it writes.
        let answer = unsafe { (self.symbols.core.memory_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo_v2", answer)?;
        Ok(MemoryInfo {
            free: free as u64,
            total: total as u64,
        })
    }

    pub(super) fn malloc(&self, bytes: usize) -> Answer<Pointer> {
        let _entered = self.enter()?;
        let mut addr = 0;
        // SAFETY: `addr` receives the one address it writes.
        let answer = unsafe { (self.symbols.core.malloc)(&raw mut addr, bytes) };
        self.check("cuMemAlloc_v2", answer)?;
        Ok(addr)
    }

    pub(super) fn free(&self, addr: Pointer) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the driver knows its allocations and refuses any other address.
        let answer = unsafe { (self.symbols.core.free)(addr) };
        self.check("cuMemFree_v2", answer)
    }

    /// Creates a stream that does not wait for the default stream, like those of PyTorch.
    pub(super) fn create_stream(&self) -> Answer<Stream> {
        let _entered = self.enter()?;
        let mut stream = Stream::NULL;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` receives the one handle it writes.
        let answer = unsafe { (self.symbols.core.create_stream)(&raw mut stream, flags) };
        self.check("cuStreamCreate", answer)?;
        Ok(stream)
    }

    pub(super) fn destroy_stream(&self, stream: Stream) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream was created here and is not used after this call.
        let answer = unsafe { (self.symbols.core.destroy_stream)(stream) };
        self.check("cuStreamDestroy_v2", answer)
    }

    pub(super) fn synchronize_stream(&self, stream: Stream) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream is live: see [`Context`].
        let answer = unsafe { (self.symbols.core.synchronize_stream)(stream) };
        self.check("cuStreamSynchronize", answer)
    }

    /// Whether a stream is captured into a graph.
    pub(super) fn is_capturing(&self, stream: Stream) -> Answer<bool> {
        let _entered = self.enter()?;
        let mut status = 0;
        // SAFETY: `status` receives the one number it writes, a `CUstreamCaptureStatus`. The stream is live: see
        // [`Context`].
        let answer = unsafe { (self.symbols.core.capture_status)(stream, &raw mut status) };
        self.check("cuStreamIsCapturing", answer)?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as c_uint)
    }

    /// Creates an event. It records the time only if `timed`, which costs more.
    pub(super) fn create_event(&self, timed: bool) -> Answer<Event> {
        let _entered = self.enter()?;
        let mut event = Event::NULL;
        let flags = if timed {
            sys::CUevent_flags::CU_EVENT_DEFAULT
        } else {
            sys::CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        // SAFETY: `event` receives the one handle it writes.
        let answer = unsafe { (self.symbols.core.create_event)(&raw mut event, flags as c_uint) };
        self.check("cuEventCreate", answer)?;
        Ok(event)
    }

    pub(super) fn destroy_event(&self, event: Event) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the event was created here and is not used after this call.
        let answer = unsafe { (self.symbols.core.destroy_event)(event) };
        self.check("cuEventDestroy_v2", answer)
    }

    pub(super) fn record_event(&self, event: Event, stream: Stream) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: both are live: see [`Context`].
        let answer = unsafe { (self.symbols.core.record_event)(event, stream) };
        self.check("cuEventRecord", answer)
    }

    pub(super) fn event_is_complete(&self, event: Event) -> Answer<bool> {
        let _entered = self.enter()?;
        // SAFETY: the event is live: see [`Context`].
        let answer = unsafe { (self.symbols.core.query_event)(event) };
        if answer == code::NOT_READY {
            return Ok(false);
        }
        self.check("cuEventQuery", answer)?;
        Ok(true)
    }

    pub(super) fn synchronize_event(&self, event: Event) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the event is live: see [`Context`].
        let answer = unsafe { (self.symbols.core.synchronize_event)(event) };
        self.check("cuEventSynchronize", answer)
    }

    pub(super) fn wait_event(&self, stream: Stream, event: Event) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: both are live: see [`Context`]. The flags must be 0.
        let answer = unsafe { (self.symbols.core.wait_event)(stream, event, 0) };
        self.check("cuStreamWaitEvent", answer)
    }

    /// Returns the milliseconds between two timed events, to about half a microsecond.
    pub(super) fn elapsed_ms(&self, start: Event, end: Event) -> Answer<f32> {
        let _entered = self.enter()?;
        let mut ms = 0.0;
        // SAFETY: `ms` receives the one number it writes; both events are live.
        let answer = unsafe { (self.symbols.core.elapsed_ms)(&raw mut ms, start, end) };
        self.check("cuEventElapsedTime", answer)?;
        Ok(ms)
    }
}

impl Drop for Context {
    /// Errors cannot be reported here; the process then keeps the context until it ends.
    fn drop(&mut self) {
        if self.was_offered && self.current() == Ok(self.handle) {
            let _ = self.set_current(Handle::NULL);
        }
        // SAFETY: it was retained once, and everything created in it was destroyed.
        let _ = unsafe { (self.symbols.core.release_context)(self.device) };
    }
}

/// The capture mode that allows all calls.
const RELAXED: c_uint = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;

/// A guard that restores the thread's previous context and capture mode.
struct Entered<'a> {
    context: &'a Context,
    /// The previous context, if it is another one.
    outer: Option<Handle>,
    /// The previous mode, if the driver has modes.
    capture_mode: Option<c_uint>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(mode) = self.capture_mode {
            self.context.exchange_capture_mode(mode);
        }
        if let Some(outer) = self.outer {
            // It was current before. An error cannot be reported here.
            let _ = self.context.set_current(outer);
        }
    }
}
