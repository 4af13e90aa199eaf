//! A device's primary context, and the calls made in it, one safe function each.
//!
//! The primary context is the one that the CUDA runtime, and PyTorch with it, works in. A call finds
//! the thread's current context as it leaves it: what runs on several devices on one thread is not
//! disturbed.
#![expect(
    unsafe_code,
    reason = "the border to CUDA: calls of the driver's entry points"
)]

mod kernels;
mod pool;
mod virtual_memory;

use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys;

use super::error::{CallError, CudaError, code};
use super::symbols::{Code, Context as Handle, Device, Event, Pointer, Stream, Symbols};
use crate::driver::MemoryInfo;

pub(super) use self::pool::{PoolAttribute, Pools};
pub(super) use self::virtual_memory::VirtualMemory;

/// Room for a device's name, its final zero included.
const NAME_BYTES: usize = 256;

/// A device's primary context, held as long as this lives.
///
/// What is passed to its calls is live and of this context. [`super::CudaDevice`] sees to that: it keeps
/// the streams, events, pools, modules and kernels, and checks that what is filled or copied is memory
/// that it gave out.
#[derive(Debug)]
pub(super) struct Context {
    symbols: &'static Symbols,
    device: Device,
    handle: Handle,
    /// Whether it was made a thread's current context for good.
    was_offered: bool,
    /// Whether threads that have no current context keep this one after a call.
    stays: bool,
}

/// Reading and writing by a device.
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

/// What the driver says of a code, if it knows it.
fn words(
    ask: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    about: Code,
) -> Option<String> {
    let mut text = std::ptr::null();
    // SAFETY: `text` is a place for the one pointer it writes. A code is a number to it.
    let answer = unsafe { ask(about, &raw mut text) };
    if answer != code::SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: it is a C string of the library, which is never unloaded.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// How many devices there are, at least one.
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
    // SAFETY: `count` is a place for the one number it writes.
    let answer = unsafe { (symbols.core.device_count)(&raw mut count) };
    check(symbols, "cuDeviceGetCount", answer)?;
    match u32::try_from(count) {
        Ok(0) | Err(_) => Err(CudaError::NoDevice),
        Ok(count) => Ok((symbols, count)),
    }
}

impl Context {
    /// Takes hold of the primary context of the `ordinal`-th device.
    pub(super) fn retain(ordinal: u32) -> Result<Self, CudaError> {
        let (symbols, count) = count_devices()?;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let mut device: Device = 0;
        // SAFETY: `device` is a place for the one number it writes.
        let answer = unsafe { (symbols.core.device)(&raw mut device, number) };
        check(symbols, "cuDeviceGet", answer)?;
        let mut handle = Handle::NULL;
        // SAFETY: `handle` is a place for the one handle it writes.
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

    /// The version of CUDA that the driver was made for: major and minor.
    pub(super) fn driver_version(&self) -> Answer<(u32, u32)> {
        let mut version: c_int = 0;
        // SAFETY: `version` is a place for the one number it writes.
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
        // SAFETY: `value` is a place for the one number it writes.
        let answer =
            unsafe { (self.symbols.core.device_attribute)(&raw mut value, attribute, self.device) };
        self.check("cuDeviceGetAttribute", answer)?;
        Ok(value)
    }

    /// The device of that number, if it can work on this one's memory.
    pub(super) fn peer(&self, ordinal: u32) -> Answer<Option<Device>> {
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let (mut peer, mut can): (Device, c_int) = (0, 0);
        // SAFETY: `peer` is a place for the one number it writes.
        let answer = unsafe { (self.symbols.core.device)(&raw mut peer, number) };
        self.check("cuDeviceGet", answer)?;
        // SAFETY: `can` is a place for the one number it writes.
        let answer =
            unsafe { (self.symbols.core.can_access_peer)(&raw mut can, peer, self.device) };
        self.check("cuDeviceCanAccessPeer", answer)?;
        Ok((can != 0).then_some(peer))
    }

    /// Bytes of memory the device has.
    pub(super) fn total_memory(&self) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: `bytes` is a place for the one number it writes.
        let answer = unsafe { (self.symbols.core.total_memory)(&raw mut bytes, self.device) };
        self.check("cuDeviceTotalMem_v2", answer)?;
        Ok(bytes as u64)
    }

    fn current(&self) -> Answer<Handle> {
        let mut current = Handle::NULL;
        // SAFETY: `current` is a place for the one handle it writes.
        let answer = unsafe { (self.symbols.core.current_context)(&raw mut current) };
        self.check("cuCtxGetCurrent", answer)?;
        Ok(current)
    }

    fn set_current(&self, context: Handle) -> Answer<()> {
        // SAFETY: it is this context, which is held, or one that the thread had before.
        let answer = unsafe { (self.symbols.core.set_current_context)(context) };
        self.check("cuCtxSetCurrent", answer)
    }

    /// Makes this the thread's current context if it has none. Calls need not switch to it then.
    pub(super) fn offer_to_thread(&mut self) -> Answer<()> {
        if self.current()? == Handle::NULL {
            self.set_current(self.handle)?;
            self.was_offered = true;
        }
        Ok(())
    }

    /// Lets threads that have no current context keep this one after a call, as the CUDA runtime does:
    /// PyTorch, which works with it, warns of threads that have none.
    pub(super) fn stay_with_threads(&mut self) {
        self.stays = true;
    }

    /// Makes this the thread's current context for as long as the answer lives.
    fn enter(&self) -> Answer<Entered<'_>> {
        let current = self.current()?;
        if current != self.handle {
            self.set_current(self.handle)?;
        }
        let is_kept = current == self.handle || (self.stays && current == Handle::NULL);
        Ok(Entered {
            context: self,
            outer: (!is_kept).then_some(current),
        })
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
        // SAFETY: they are places for the two numbers it writes.
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
        // SAFETY: `addr` is a place for the one address it writes.
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

    /// A stream that does not wait for the default stream, as those of PyTorch.
    pub(super) fn create_stream(&self) -> Answer<Stream> {
        let _entered = self.enter()?;
        let mut stream = Stream::NULL;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: `stream` is a place for the one handle it writes.
        let answer = unsafe { (self.symbols.core.create_stream)(&raw mut stream, flags) };
        self.check("cuStreamCreate", answer)?;
        Ok(stream)
    }

    pub(super) fn destroy_stream(&self, stream: Stream) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream was created here and is forgotten with this call.
        let answer = unsafe { (self.symbols.core.destroy_stream)(stream) };
        self.check("cuStreamDestroy_v2", answer)
    }

    pub(super) fn synchronize_stream(&self, stream: Stream) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream is live: see [`Context`].
        let answer = unsafe { (self.symbols.core.synchronize_stream)(stream) };
        self.check("cuStreamSynchronize", answer)
    }

    /// An event that takes the time only if `timed`, as that costs more.
    pub(super) fn create_event(&self, timed: bool) -> Answer<Event> {
        let _entered = self.enter()?;
        let mut event = Event::NULL;
        let flags = match timed {
            true => sys::CUevent_flags::CU_EVENT_DEFAULT,
            false => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        // SAFETY: `event` is a place for the one handle it writes.
        let answer = unsafe { (self.symbols.core.create_event)(&raw mut event, flags as c_uint) };
        self.check("cuEventCreate", answer)?;
        Ok(event)
    }

    pub(super) fn destroy_event(&self, event: Event) -> Answer<()> {
        let _entered = self.enter()?;
        // SAFETY: the event was created here and is forgotten with this call.
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
        // SAFETY: both are live: see [`Context`]. There are no flags but 0 here.
        let answer = unsafe { (self.symbols.core.wait_event)(stream, event, 0) };
        self.check("cuStreamWaitEvent", answer)
    }

    /// Milliseconds between the work that two timed events mark, to about half a microsecond.
    pub(super) fn elapsed_ms(&self, start: Event, end: Event) -> Answer<f32> {
        let _entered = self.enter()?;
        let mut ms = 0.0;
        // SAFETY: `ms` is a place for the one number it writes; both events are live.
        let answer = unsafe { (self.symbols.core.elapsed_ms)(&raw mut ms, start, end) };
        self.check("cuEventElapsedTime", answer)?;
        Ok(ms)
    }
}

impl Drop for Context {
    /// Should the driver refuse, there is nobody to tell: the process holds the context until it ends.
    fn drop(&mut self) {
        if self.was_offered && self.current() == Ok(self.handle) {
            let _ = self.set_current(Handle::NULL);
        }
        // SAFETY: it was retained once, and all that was made in it has been given back.
        let _ = unsafe { (self.symbols.core.release_context)(self.device) };
    }
}

/// A thread in a context; it goes back to the one it was in.
struct Entered<'a> {
    context: &'a Context,
    /// Where it was, if elsewhere.
    outer: Option<Handle>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            // It was current before; there is nobody to tell should the driver refuse it now.
            let _ = self.context.set_current(outer);
        }
    }
}
