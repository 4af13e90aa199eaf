//! The border to C: reads and writes through pointers, and turns the outcome of each call into a
//! status.
#![expect(
    unsafe_code,
    reason = "reads and writes through pointers that C passes"
)]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::{self, Sim};

/// A pointer to the place of a result: null, or room for one `T`, aligned or not.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A null pointer.
    pub(crate) const NOWHERE: Self = Self(std::ptr::null_mut());

    /// Does the work and writes its result. Fails without doing the work if the pointer is null.
    pub(crate) fn fill(self, work: impl FnOnce() -> Outcome<T>) -> Outcome {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        self.set_if_wanted(work()?);
        Ok(())
    }

    pub(crate) fn set(self, value: T) -> Outcome {
        self.fill(|| Ok(value))
    }

    /// Writes unless the pointer is null.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: every CUDA function requires room for one `T` here, which nothing else accesses
            // during the call.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The element at `index` of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Casts to a result of another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Casts to an argument of another type.
    pub(crate) fn argument<U>(self) -> In<U> {
        In(self.0.cast_const().cast())
    }
}

impl Out<u8> {
    /// Writes `text` with a null byte into `room` bytes; truncates it to fit.
    pub(crate) fn set_text(self, text: &str, room: usize) -> Outcome {
        let Some(most) = room.checked_sub(1) else {
            return Err(Code::INVALID_VALUE);
        };
        let bytes = text.as_bytes();
        let bytes = bytes.get(..most).unwrap_or(bytes);
        let text = [bytes, &[0]].concat();
        HostBytes::at(self.0.expose_provenance() as u64, text.len())?.write(&text);
        Ok(())
    }
}

/// A pointer to an argument: null, or one `T`, aligned or not.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    pub(crate) fn get(self) -> Outcome<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: every CUDA function requires one `T` here that does not change during the call. All
        // types read here are plain numbers, for which any bits are valid.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The element at `index` of an array.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// The pointer as a number, for arguments that CUDA declares as pointers although they are numbers.
    pub(crate) fn value(self) -> u64 {
        self.0.addr() as u64
    }
}

impl In<u8> {
    /// The text up to its null byte.
    pub(crate) fn text(&self) -> Outcome<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: functions with a name argument require text that ends with a null byte and does not
        // change during the call, which outlives `self`.
        let text = unsafe { CStr::from_ptr(self.0.cast()) };
        text.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// Host memory of the program: `bytes` from an address on.
#[derive(Debug)]
pub(crate) struct HostBytes {
    start: *mut u8,
    bytes: usize,
}

impl HostBytes {
    pub(crate) fn at(addr: u64, bytes: usize) -> Outcome<Self> {
        if addr == 0 && bytes > 0 {
            return Err(Code::INVALID_VALUE);
        }
        let start = std::ptr::with_exposed_provenance_mut(addr as usize);
        Ok(Self { start, bytes })
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        if self.bytes > 0 {
            // SAFETY: a copy from the host requires this many readable bytes; `copy` is a new
            // allocation.
            unsafe {
                self.start
                    .copy_to_nonoverlapping(copy.as_mut_ptr(), self.bytes)
            }
        }
        copy
    }

    /// Writes `contents` from the start on, truncated to fit.
    pub(crate) fn write(&mut self, contents: &[u8]) {
        let bytes = self.bytes.min(contents.len());
        if bytes > 0 {
            // SAFETY: a copy to the host requires this much writable room; `contents` is large enough
            // and does not overlap it.
            unsafe {
                self.start
                    .copy_from_nonoverlapping(contents.as_ptr(), bytes)
            }
        }
    }

    pub(crate) fn set(&mut self, byte: u8) {
        if self.bytes > 0 {
            // SAFETY: as for `write`.
            unsafe { self.start.write_bytes(byte, self.bytes) }
        }
    }

    /// Copies within host memory, where the two ranges may overlap.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let bytes = self.bytes.min(other.bytes);
        if bytes > 0 {
            // SAFETY: as for `read` and `write`; the ranges may overlap here.
            unsafe { self.start.copy_from(other.start, bytes) }
        }
    }
}

/// Runs a driver function that requires `cuInit`.
pub(crate) fn driver(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    call(name, |sim| {
        sim.ensure_initialized()?;
        work(sim)
    })
}

/// Runs a driver function that does not require `cuInit`.
pub(crate) fn early(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    call(name, work)
}

/// Runs a runtime function: initializes the driver first, and keeps a failure for `cudaGetLastError`.
pub(crate) fn runtime(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    runtime_early(name, |sim| {
        sim.initialize()?;
        work(sim)
    })
}

/// Runs a runtime function that does not initialize the driver.
pub(crate) fn runtime_early(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    let code = call(name, work);
    if code != Code::SUCCESS.0 {
        context::set_last_error(Code(code));
    }
    code
}

/// The interface through which a program calls a function that both have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Api {
    Driver,
    Runtime,
}

impl Api {
    /// The current device. The runtime makes the first one current if none is.
    pub(crate) fn device(self, sim: &mut Sim) -> Outcome<u32> {
        match self {
            Self::Driver => context::required(),
            Self::Runtime => sim.runtime_device(),
        }
    }
}

/// Returns a status whatever happens, even a panic.
fn call(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut sim = state::lock()?;
        sim.ensure_not_failing(name)?;
        work(&mut sim)
    }));
    match outcome {
        Ok(Ok(())) => Code::SUCCESS.0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Defines functions that C calls: `fn name(arguments) |sim| { work }`. The work gets the state of the
/// machine; its outcome becomes the status.
macro_rules! entry_points {
    ($api:ident: $(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$sim:pat_param| $work:block
    )*) => {$(
        $(#[$attribute])*
        // SAFETY: this is CUDA's name for the function; nothing else here defines it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::border::$api(stringify!($name), |$sim| $work)
        }
    )*};
}

/// Defines functions that the driver and the runtime have with the same arguments:
/// `fn cuName, cudaName(arguments) |sim, api| { work }`.
macro_rules! shared_entry_points {
    ($(
        $(#[$attribute:meta])*
        fn $driver:ident, $runtime:ident($($argument:ident: $type:ty),* $(,)?)
            |$sim:pat_param, $api:pat_param| $work:block
    )*) => {
        $crate::border::entry_points! { driver: $(
            $(#[$attribute])*
            fn $driver($($argument: $type),*) |$sim| {
                let $api = $crate::border::Api::Driver;
                $work
            }
        )*}
        $crate::border::entry_points! { runtime: $(
            $(#[$attribute])*
            fn $runtime($($argument: $type),*) |$sim| {
                let $api = $crate::border::Api::Runtime;
                $work
            }
        )*}
    };
}
pub(crate) use {entry_points, shared_entry_points};
