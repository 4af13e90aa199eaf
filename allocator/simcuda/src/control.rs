//! Functions beyond CUDA, with which the oracle of `scripts/conformance` controls the devices.
//! `include/fakecuda.h` declares them for C. They act on all devices.
#![expect(unsafe_code, reason = "functions that C calls, and a callback in C")]

use std::ffi::{c_char, c_int, c_void};

use coalesce_alloc::driver::Driver;
use coalesce_alloc::driver::calls::{Call, CallKind};

use crate::border::Out;
use crate::context;
use crate::errors::Outcome;
use crate::library_memory::Part;
use crate::state::{self, Sim};

/// Memory in use and numbers of calls: `fakecuda_counters_t`. Units are bytes and calls.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "the header documents them")]
pub struct Counters {
    pub total: u64,
    pub foreign: u64,
    pub used: u64,
    pub peak_used: u64,
    pub n_malloc: u64,
    pub n_malloc_fail: u64,
    pub n_free: u64,
    pub n_reserve: u64,
    pub n_addrfree: u64,
    pub n_create: u64,
    pub n_create_fail: u64,
    pub n_release: u64,
    pub n_map: u64,
    pub n_unmap: u64,
    pub n_setaccess: u64,
    pub n_event_create: u64,
    pub n_event_record: u64,
    pub n_event_query: u64,
    pub n_event_sync: u64,
    pub n_event_destroy: u64,
    pub n_stream_sync: u64,
    pub n_device_sync: u64,
    pub n_meminfo: u64,
    pub live_mallocs: u64,
    pub live_handles: u64,
    pub live_reservations: u64,
}

impl Counters {
    /// Counts a call made on a device.
    pub(crate) fn count(&mut self, call: &Call) {
        let counter = match call {
            Call::Malloc { .. } => &mut self.n_malloc,
            Call::MallocRefused { .. } => &mut self.n_malloc_fail,
            Call::Free { .. } => &mut self.n_free,
            Call::Reserve { .. } => &mut self.n_reserve,
            Call::FreeAddress { .. } => &mut self.n_addrfree,
            Call::Create { .. } => &mut self.n_create,
            Call::CreateRefused { .. } => &mut self.n_create_fail,
            Call::Release { .. } => &mut self.n_release,
            Call::Map { .. } => &mut self.n_map,
            Call::Unmap { .. } => &mut self.n_unmap,
            Call::SetAccess { .. } => &mut self.n_setaccess,
            Call::RecordEvent { .. } => &mut self.n_event_record,
            Call::SynchronizeStream { .. } => &mut self.n_stream_sync,
            Call::SynchronizeDevice => &mut self.n_device_sync,
            _ => return,
        };
        *counter += 1;
    }
}

impl Sim {
    fn all_counters(&self) -> Counters {
        let first = self.devices().next();
        let counted = self.counters;
        Counters {
            total: self.settings.device.capacity,
            foreign: self.settings.device.foreign,
            used: first.map_or(0, |device| device.sim.used()),
            n_event_create: self.events.made,
            n_event_destroy: self.events.destroyed,
            n_event_query: self.calls(CallKind::QueryEvent),
            n_event_sync: self.calls(CallKind::SynchronizeEvent),
            n_meminfo: self.calls(CallKind::MemoryInfo),
            live_mallocs: counted.n_malloc - counted.n_free,
            live_handles: counted.n_create - counted.n_release,
            live_reservations: counted.n_reserve - counted.n_addrfree,
            ..counted
        }
    }

    /// Whether all streams look as if they were captured into a graph.
    pub(crate) fn looks_captured(&self) -> bool {
        self.devices().any(|device| device.sim.is_capturing())
    }

    /// Holds later events pending, or lets them complete at once.
    pub(crate) fn set_hold(&mut self, hold: bool) {
        for device in self.devices_mut() {
            device.sim.streams_mut().set_hold(hold);
        }
        if let Some(contents) = &mut self.contents {
            contents.set_hold(hold);
        }
    }
}

/// Does the work unless the machine is misconfigured.
fn control(work: impl FnOnce(&mut Sim) -> Outcome) {
    if let Ok(mut sim) = state::lock() {
        // A device that breaks here reports it from the next call on.
        let _ = work(&mut sim);
    }
}

macro_rules! controls {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$sim:pat_param| $work:block
    )*) => {$(
        $(#[$attribute])*
        // SAFETY: no other crate defines this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) {
            control(|$sim| $work)
        }
    )*};
}

controls! {
    /// Sets whether later events stay pending until completed or waited for.
    fn fakecuda_set_hold(hold: c_int) |sim| {
        sim.set_hold(hold != 0);
        Ok(())
    }

    /// Sets whether all streams look as if they were captured into a graph.
    fn fakecuda_set_capturing(capturing: c_int) |sim| {
        for device in sim.devices_mut() {
            device.sim.set_capturing(capturing != 0);
        }
        Ok(())
    }

    /// Completes the oldest `count` pending events of a stream; all if `count` is negative.
    fn fakecuda_complete(stream: u64, count: i64) |sim| {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let (ordinal, stream) = sim.streams.resolve(0, stream)?;
        sim.device(ordinal)?.sim.streams_mut().complete(stream, count);
        sim.settle()
    }

    /// Completes all events.
    fn fakecuda_complete_all() |sim| {
        for device in sim.devices_mut() {
            device.sim.streams_mut().complete_all();
        }
        sim.settle()
    }

    /// From now on, PyTorch's NCCL watchdogs see only events that were recorded before the last call of this function.
    fn fakecuda_show_watchdogs() |sim| {
        sim.events.show_watchdogs();
        Ok(())
    }

    /// Sets the value that a copy of a single byte from the device reads.
    fn fakecuda_set_bool(value: c_int) |sim| {
        sim.reads.bool = u8::from(value != 0);
        Ok(())
    }

    /// Sets the integer that a copy of four or eight bytes from the device reads.
    fn fakecuda_set_count(value: u64) |sim| {
        sim.reads.count = value;
        Ok(())
    }

    /// Sets the memory of each device, in bytes.
    fn fakecuda_set_total(bytes: u64) |sim| {
        sim.settings.device.capacity = bytes;
        sim.devices_mut().for_each(|device| device.sim.set_capacity(bytes));
        Ok(())
    }

    /// Sets the memory used by other processes, in bytes.
    fn fakecuda_set_foreign(bytes: u64) |sim| {
        sim.settings.device.foreign = bytes;
        for device in sim.devices_mut() {
            device.sim.set_foreign(bytes.saturating_add(device.library_memory.total()));
        }
        Ok(())
    }

    /// A library takes memory of the current device, in bytes, or returns it if `bytes` is negative.
    fn fakecuda_take(part: c_int, bytes: i64) |sim| {
        let ordinal = context::current().unwrap_or(0);
        sim.take(ordinal, Part::of(part)?, bytes)
    }

    /// Makes the next `count` requests for memory fail.
    fn fakecuda_fail_next(count: u64) |sim| {
        sim.faults().for_each(|faults| faults.refuse_next(count));
        Ok(())
    }

    /// Writes memory in use and numbers of calls.
    fn fakecuda_counters(counters: Out<Counters>) |sim| {
        counters.set(sim.all_counters())
    }

    /// Starts or stops logging the calls that change something.
    fn fakecuda_log_enable(on: c_int) |sim| {
        sim.logging = on != 0;
        Ok(())
    }
}

/// What a function of the machine returns; 0 if it is misconfigured.
fn answer<T: Default>(work: impl FnOnce(&mut Sim) -> Outcome<T>) -> T {
    let mut found = T::default();
    control(|sim| {
        found = work(sim)?;
        Ok(())
    });
    found
}

/// Returns the compute capability as one number: 90 is 9.0.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_cc() -> c_int {
    let number = |(major, minor)| major * 10 + minor;
    answer(|sim| Ok(number(sim.settings.compute_capability)))
}

/// Returns the bytes of the pinned host memory that contains an address; 0 if it is not pinned.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_pinned_range(addr: u64) -> u64 {
    answer(|sim| Ok(sim.pinned_range(addr)))
}

/// Returns the most bytes of host memory that were pinned.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_peak_pinned() -> u64 {
    answer(|sim| Ok(sim.peak_pinned()))
}

/// Returns the most bytes of one device that were in use, by the program and by libraries.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_peak_with_libraries() -> u64 {
    answer(|sim| Ok(sim.most_library_memory()?.peak))
}

/// Returns the bytes that a library had taken of it then.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_taken(part: c_int) -> u64 {
    answer(|sim| Ok(sim.most_library_memory()?.at_peak(Part::of(part)?)))
}

/// Receives the log: the text, its length in bytes, and the context of the caller of
/// [`fakecuda_log_take`].
pub type TakeText = Option<unsafe extern "C" fn(*const c_char, usize, *mut c_void)>;

/// Passes the log since the last call to `take`, one call per line, unless it is empty.
///
/// # Safety
///
/// `take` may read the text only during the call. The caller is responsible for `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fakecuda_log_take(take: TakeText, context: *mut c_void) {
    let mut text = String::new();
    control(|sim| {
        text = sim.take_log();
        Ok(())
    });
    if let Some(take) = take
        && !text.is_empty()
    {
        // SAFETY: as the caller promises.
        unsafe { take(text.as_ptr().cast(), text.len(), context) }
    }
}
