//! The border to C: what pointers mean, and what becomes of a call before its work is done.
#![expect(
    unsafe_code,
    reason = "reads and writes through pointers that C passes"
)]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::{self, Sim};

/// A pointer to where a result goes: null, or room for one `T`, aligned or not.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Nowhere.
    pub(crate) const NOWHERE: Self = Self(std::ptr::null_mut());

    /// Does the work and writes down its result; with nowhere to write it, does nothing and fails.
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

    /// Writes if there is somewhere to write to.
    pub(crate) fn set_if_wanted(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: every function of CUDA asks its caller for room for one `T` here. Nothing else
            // looks at it during the call.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// Reads what is there and puts `value` in its place.
    pub(crate) fn exchange(self, value: T) -> Outcome<T>
    where
        T: Copy,
    {
        let before = In(self.0.cast_const()).get()?;
        self.set(value)?;
        Ok(before)
    }

    /// The same place as a result of another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The same place as an argument of another type.
    pub(crate) fn argument<U>(self) -> In<U> {
        In(self.0.cast_const().cast())
    }
}

impl Out<u8> {
    /// Writes `text` and a null byte into `room` bytes, cut if it is too long.
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
        // SAFETY: every function of CUDA asks its caller for one `T` here that nobody changes during
        // the call. All types that are read are plain numbers, so any bits are one.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The `index`-th of several in a row.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }
}

impl In<u8> {
    /// A text that ends with a null byte.
    pub(crate) fn text(&self) -> Outcome<&str> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the functions with a name among their arguments ask for one that ends with a null
        // byte and that stays as it is during the call, which `self` does not outlive.
        let text = unsafe { CStr::from_ptr(self.0.cast()) };
        text.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// Memory of the program: `bytes` from an address on.
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
            // SAFETY: a copy from the program's memory asks for so many bytes there; `copy` is new.
            unsafe {
                self.start
                    .copy_to_nonoverlapping(copy.as_mut_ptr(), self.bytes)
            }
        }
        copy
    }

    /// Writes `contents` from the start on, as far as there is room.
    pub(crate) fn write(&mut self, contents: &[u8]) {
        let bytes = self.bytes.min(contents.len());
        if bytes > 0 {
            // SAFETY: a copy to the program's memory asks for room there; `contents` has as many
            // bytes, and is not the program's.
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

    /// Copies within the program's memory, where the two may overlap.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        let bytes = self.bytes.min(other.bytes);
        if bytes > 0 {
            // SAFETY: as for `read` and `write`; overlapping is allowed here.
            unsafe { self.start.copy_from(other.start, bytes) }
        }
    }
}

/// A function of the driver that wants `cuInit` first.
pub(crate) fn driver(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    call(name, |sim| {
        sim.ensure_initialized()?;
        work(sim)
    })
}

/// A function of the driver that does not.
pub(crate) fn early(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    call(name, work)
}

/// A function of the runtime: it initialises what has to be, and its failure is kept for
/// `cudaGetLastError`.
pub(crate) fn runtime(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    runtime_early(name, |sim| {
        sim.initialize()?;
        work(sim)
    })
}

/// A function of the runtime that initialises nothing.
pub(crate) fn runtime_early(name: &str, work: impl FnOnce(&mut Sim) -> Outcome) -> i32 {
    let code = call(name, work);
    if code != Code::SUCCESS.0 {
        context::set_last_error(Code(code));
    }
    code
}

/// Makes sure that nothing but a number comes out, whatever happens within.
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

/// Functions that C calls: `fn name(arguments) |sim| { work }`, where the work has the state of the
/// machine and its outcome becomes the status.
macro_rules! entry_points {
    ($api:ident: $(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$sim:pat_param| $work:block
    )*) => {$(
        $(#[$attribute])*
        // SAFETY: CUDA's name for CUDA's function; nothing else here defines it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> i32 {
            $crate::border::$api(stringify!($name), |$sim| $work)
        }
    )*};
}
pub(crate) use entry_points;
