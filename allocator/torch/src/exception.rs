//! Throws C++ exceptions into PyTorch.
//!
//! PyTorch uses whatever a pluggable allocator returns as a tensor's address, even null, and the next kernel
//! would access address 0. But its C++ code handles exceptions thrown by the allocator. They are created and
//! thrown by functions that PyTorch's libraries export, looked up by name in the process, and pass through
//! Rust frames with the ABI `C-unwind`.
//!
//! - `c10::OutOfMemoryError`, in Python `torch.OutOfMemoryError`, if memory runs out;
//! - `c10::Error`, in Python `RuntimeError`, for all other failures.
//!
//! This relies on the Itanium C++ ABI: name mangling, the vtable pointer at the start of an object, and the
//! positions of the type information and the destructor in the vtable. The layout of classes is not relied
//! on, except that an exception has at most `ROOM` bytes and a string at most `STRING_ROOM`. If a symbol is
//! missing, in another version of PyTorch or without PyTorch, nothing is thrown.
//!
//! Sources: PyTorch 2.6 to 2.15, `c10/util/Exception.h`; Itanium C++ ABI 2.5.2 (vtables) and section 2.4 of its
//! exception handling.
#![expect(unsafe_code, reason = "calls C++")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::sync::OnceLock;

use crate::failure::Failure;

/// Bytes reserved for an exception: `c10::OutOfMemoryError` has 128.
const ROOM: usize = 1024;
/// Bytes reserved for a `std::string`, which has 32.
const STRING_ROOM: usize = 128;

/// What [`throw`] needs and does not find: a library or one of its symbols.
#[must_use]
pub fn missing() -> Option<&'static CStr> {
    match thrower() {
        Err(name) => Some(name),
        Ok(thrower) => thrower.out_of_memory.as_ref().err().copied(),
    }
}

fn thrower() -> &'static Result<Thrower, Missing> {
    static THROWER: OnceLock<Result<Thrower, Missing>> = OnceLock::new();
    THROWER.get_or_init(Thrower::find)
}

/// The name of a library or symbol that is not found.
type Missing = &'static CStr;

/// Throws `failure` into the calling C++ code. Returns only if that is not possible.
///
/// # Safety
/// All frames up to the C++ code must allow unwinding: `extern "C-unwind"` functions without
/// `catch_unwind` in between.
pub unsafe fn throw(failure: &Failure) {
    let Ok(thrower) = thrower() else {
        return;
    };
    let message = failure.message.replace('\0', " ");
    let Ok(message) = CString::new(message) else {
        return;
    };
    // SAFETY: the functions have the declared types, and exceptions may pass.
    unsafe {
        match &thrower.out_of_memory {
            Ok(class) if failure.is_out_of_memory => class.throw(&message),
            _ => (thrower.check_fail)(FUNCTION.as_ptr(), FILE.as_ptr(), line!(), message.as_ptr()),
        }
    }
}

/// The source location reported by exceptions.
const FUNCTION: &CStr = c"coalesce_malloc_or_throw";
const FILE: &CStr = c"libcoalesce_torch.so";

/// `c10::detail::torchCheckFail(function, file, line, message)`, which throws a `c10::Error`.
type CheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char) -> !;

/// The functions that create and throw exceptions.
struct Thrower {
    check_fail: CheckFail,
    out_of_memory: Result<OutOfMemoryError, Missing>,
}

/// `c10::OutOfMemoryError`: a `c10::Error` with another vtable.
struct OutOfMemoryError {
    /// Its vtable.
    vtable: Vtable,
    /// `c10::Error::Error(SourceLocation, std::string)`.
    make_error: unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut StringStorage),
    /// `std::string::string(const char*, const std::allocator<char>&)`.
    make_string: unsafe extern "C-unwind" fn(*mut StringStorage, *const c_char, *const c_char),
    /// `std::string::~string()`.
    drop_string: unsafe extern "C-unwind" fn(*mut StringStorage),
    /// `__cxa_allocate_exception`.
    allocate: unsafe extern "C-unwind" fn(usize) -> *mut c_void,
    /// `__cxa_throw`.
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !,
}

/// `c10::SourceLocation`, passed like a C struct.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// Storage for a `std::string`.
#[repr(C, align(16))]
struct StringStorage([u8; STRING_ROOM]);

/// A vtable in the layout of the ABI: the offset to the top of the object, the type information, then the
/// virtual functions, the first of which is the complete object destructor.
#[derive(Clone, Copy)]
struct Vtable(*const [*const c_void; 3]);

// SAFETY: the vtable is a constant of a library that stays loaded.
unsafe impl Send for Vtable {}
// SAFETY: as above.
unsafe impl Sync for Vtable {}

impl Thrower {
    /// Looks the functions up in the process. Fails without PyTorch or with an incompatible version.
    fn find() -> Result<Self, Missing> {
        let torch = Library::loaded(c"libc10_cuda.so")?;
        // SAFETY: the types match the mangled names.
        unsafe {
            Ok(Self {
                check_fail: torch.function(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_")?,
                out_of_memory: OutOfMemoryError::find(&torch),
            })
        }
    }
}

/// The functions whose names contain `std::string`: in its present form, and in the one before C++11, which
/// PyPI's wheel of PyTorch 2.6 uses.
const STRING_ABIS: [[&CStr; 3]; 2] = [
    [
        c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
        c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1EPKcRKS3_",
        c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
    ],
    [
        c"_ZN3c105ErrorC1ENS_14SourceLocationESs",
        c"_ZNSsC1EPKcRKSaIcE",
        c"_ZNSsD1Ev",
    ],
];

impl OutOfMemoryError {
    fn find(torch: &Library) -> Result<Self, Missing> {
        let vtable = torch.symbol(c"_ZTVN3c1016OutOfMemoryErrorE")?;
        // The constructor of an error, and the constructor and destructor of a string.
        let is_used = |[make_error, ..]: &[&'static CStr; 3]| torch.symbol(make_error).is_ok();
        let [make_error, make_string, drop_string] = STRING_ABIS
            .into_iter()
            .find(is_used)
            .unwrap_or(STRING_ABIS[0]);
        // SAFETY: the types match the mangled names.
        unsafe {
            Ok(Self {
                vtable: Vtable(vtable.cast()),
                make_error: torch.function(make_error)?,
                make_string: torch.function(make_string)?,
                drop_string: torch.function(drop_string)?,
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
        let mut text = StringStorage([0; STRING_ROOM]);
        let empty = [0; 1];
        // SAFETY: the class adds no data to `c10::Error`, so replacing the vtable turns a `c10::Error` into
        // it. The constructor moves the string's contents; the caller destroys the string.
        // `std::allocator<char>` has no state, so any address will do.
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

/// A loaded library with its dependencies.
struct Library(*mut c_void);

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

impl Library {
    /// Returns the library of this name if it is loaded.
    fn loaded(name: &'static CStr) -> Result<Self, Missing> {
        const RTLD_LAZY: c_int = 1;
        const RTLD_NOLOAD: c_int = 4;
        // SAFETY: the name is a C string; `RTLD_NOLOAD` loads nothing, so no initializer runs.
        let library = unsafe { dlopen(name.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
        if library.is_null() {
            return Err(name);
        }
        Ok(Self(library))
    }

    fn symbol(&self, name: &'static CStr) -> Result<*const c_void, Missing> {
        // SAFETY: the library is open and stays so.
        let symbol = unsafe { dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            return Err(name);
        }
        Ok(symbol.cast_const())
    }

    /// # Safety
    /// `F` must be a function pointer of the symbol's type.
    unsafe fn function<F: Copy>(&self, name: &'static CStr) -> Result<F, Missing> {
        let symbol = self.symbol(name)?;
        assert_pointer_sized::<F>();
        // SAFETY: `F` is a function pointer of pointer size, and the symbol is not null.
        Ok(unsafe { transmute_copy(&symbol) })
    }
}

const fn assert_pointer_sized<F>() {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) }
}
