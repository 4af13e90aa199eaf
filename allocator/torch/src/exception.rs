//! Telling PyTorch that there is no memory.
//!
//! PyTorch takes whatever a pluggable allocator returns for a tensor's address, null included: the next
//! kernel then reads address 0 and the process is lost. The frames above the call are C++, though, and
//! understand an exception, which a function of another language may throw as well: it is made and
//! thrown by the functions that PyTorch's own libraries export, found by name in the process, and passes
//! through Rust's frames as the ABI `C-unwind` allows.
//!
//! - `c10::OutOfMemoryError`, which Python sees as `torch.OutOfMemoryError`, if memory is short;
//! - `c10::Error`, which Python sees as `RuntimeError`, for all else.
//!
//! What is taken for granted is the Itanium C++ ABI: how names are mangled, that an object begins with
//! the pointer to its class's virtual functions, and that in that table the type's description and the
//! destructor stand where the ABI puts them. No layout of a class is, but that an exception has at most
//! `ROOM` bytes and a string at most `STRING_ROOM`. If a name is missing, in another PyTorch or
//! outside of one, nothing is thrown.
//!
//! Sources: PyTorch 2.11, `c10/util/Exception.h`; Itanium C++ ABI 2.5.2 (tables of virtual functions) and
//! 2.4 of its exception handling.
#![expect(unsafe_code, reason = "calls C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

use crate::failure::Failure;

/// Bytes set aside for an exception: `c10::OutOfMemoryError` has 128.
const ROOM: usize = 1024;
/// Bytes set aside for a `std::string`, which has 32.
const STRING_ROOM: usize = 128;

/// Throws what `failure` says at the C++ code that called. Returns only if that cannot be done.
///
/// # Safety
/// All frames up to the C++ ones must let an exception pass: `extern "C-unwind"` functions, and no
/// `catch_unwind` between.
pub unsafe fn throw(failure: &Failure) {
    static THROWER: OnceLock<Option<Thrower>> = OnceLock::new();
    let Some(thrower) = THROWER.get_or_init(Thrower::find) else {
        return;
    };
    let message = failure.message.replace('\0', " ");
    let Ok(message) = CString::new(message) else {
        return;
    };
    // SAFETY: the functions are those that were looked for, and exceptions may pass.
    unsafe {
        match &thrower.out_of_memory {
            Some(class) if failure.is_out_of_memory => class.throw(&message),
            _ => (thrower.check_fail)(FUNCTION.as_ptr(), FILE.as_ptr(), line!(), message.as_ptr()),
        }
    }
}

/// Where exceptions say that they come from.
const FUNCTION: &CStr = c"coalesce_malloc_or_throw";
const FILE: &CStr = c"libcoalesce_torch.so";

/// `c10::detail::torchCheckFail(function, file, line, message)`, which throws a `c10::Error`.
type CheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char) -> !;

/// What exceptions are made with.
struct Thrower {
    check_fail: CheckFail,
    out_of_memory: Option<OutOfMemoryError>,
}

/// `c10::OutOfMemoryError`: a `c10::Error` with virtual functions of its own.
struct OutOfMemoryError {
    /// Its table of virtual functions.
    vtable: Vtable,
    /// `c10::Error::Error(SourceLocation, std::string)`.
    make_error: unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut StringRoom),
    /// `std::string::string(const char*, const std::allocator<char>&)`.
    make_string: unsafe extern "C-unwind" fn(*mut StringRoom, *const c_char, *const c_char),
    /// `std::string::~string()`.
    drop_string: unsafe extern "C-unwind" fn(*mut StringRoom),
    /// `__cxa_allocate_exception`.
    allocate: unsafe extern "C-unwind" fn(usize) -> *mut c_void,
    /// `__cxa_throw`.
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !,
}

/// `c10::SourceLocation`, which is passed as C passes it.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// Room for a `std::string`.
#[repr(C, align(16))]
struct StringRoom([u8; STRING_ROOM]);

/// A table of virtual functions as the ABI lays it out: the offset to the top of the object, the type's
/// description, then the functions, of which the destructor of a complete object is the first.
#[derive(Clone, Copy)]
struct Vtable(*const [*const c_void; 3]);

// SAFETY: it is a constant of a library that stays loaded.
unsafe impl Send for Vtable {}
// SAFETY: as above.
unsafe impl Sync for Vtable {}

impl Thrower {
    /// What there is in the process; nothing if it has no PyTorch, or one too different.
    fn find() -> Option<Self> {
        let torch = Library::loaded(c"libc10_cuda.so")?;
        // SAFETY: the types are those that the names spell.
        unsafe {
            Some(Self {
                check_fail: torch.function(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_")?,
                out_of_memory: OutOfMemoryError::find(&torch),
            })
        }
    }
}

impl OutOfMemoryError {
    fn find(torch: &Library) -> Option<Self> {
        let vtable = torch.symbol(c"_ZTVN3c1016OutOfMemoryErrorE")?;
        // SAFETY: the types are those that the names spell.
        unsafe {
            Some(Self {
                vtable: Vtable(vtable.cast()),
                make_error: torch.function(
                    c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                )?,
                make_string: torch.function(
                    c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
                )?,
                drop_string: torch
                    .function(c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev")?,
                allocate: torch.function(c"__cxa_allocate_exception")?,
                throw: torch.function(c"__cxa_throw")?,
            })
        }
    }

    /// # Safety
    /// As [`throw`].
    unsafe fn throw(&self, message: &CStr) -> ! {
        let location = SourceLocation {
            function: FUNCTION.as_ptr(),
            file: FILE.as_ptr(),
            line: line!(),
        };
        let mut text = StringRoom([0; STRING_ROOM]);
        let empty = [0; 1];
        // SAFETY: the class adds no data to `c10::Error`, so an object of that one becomes one of this
        // one with its virtual functions. The constructor takes the string's contents and leaves
        // destroying it to its caller. `std::allocator<char>` has no state: any address will do.
        unsafe {
            let exception = (self.allocate)(ROOM);
            (self.make_string)(&mut text, message.as_ptr(), empty.as_ptr());
            (self.make_error)(exception, location, &mut text);
            (self.drop_string)(&mut text);
            let [_, description, destructor] = *self.vtable.0;
            let functions = (&raw const (*self.vtable.0)[2]).cast::<c_void>();
            exception.cast::<*const c_void>().write(functions);
            (self.throw)(exception, description, destructor)
        }
    }
}

/// A library of the process, with those it needs itself.
struct Library(*mut c_void);

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

impl Library {
    /// The library of this name, if it is loaded already.
    fn loaded(name: &CStr) -> Option<Self> {
        const RTLD_LAZY: c_int = 1;
        const RTLD_NOLOAD: c_int = 4;
        // SAFETY: the name is a C string; nothing is loaded, so nothing is run.
        let library = unsafe { dlopen(name.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
        (!library.is_null()).then_some(Self(library))
    }

    fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: the library is open and stays so.
        let symbol = unsafe { dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol.cast_const())
    }

    /// # Safety
    /// `F` must be a pointer to a function of the type that the name's has.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        let symbol = self.symbol(name)?;
        assert_pointer_sized::<F>();
        // SAFETY: `F` is a function pointer, which on this platform is as large as any, and this one is
        // not null.
        Some(unsafe { transmute_copy(&symbol) })
    }
}

const fn assert_pointer_sized<F>() {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) }
}
