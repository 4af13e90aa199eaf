//! Functions by name.

use std::ffi::{CString, c_char, c_int, c_void};

use crate::border::{In, Out, entry_points};
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// `CU_GET_PROC_ADDRESS_SUCCESS`, and `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const FOUND: i32 = 0;
const NOT_FOUND: i32 = 1;

/// `Dl_info`: the library and the symbol of an address.
#[repr(C)]
struct Origin {
    file: *const c_char,
    start: *mut c_void,
    symbol: *const c_char,
    symbol_start: *mut c_void,
}

/// Opens only loaded libraries and binds symbols on use (`RTLD_NOLOAD | RTLD_LAZY`).
const LOADED: c_int = 0x4 | 0x1;

unsafe extern "C" {
    fn dladdr(addr: *const c_void, origin: *mut Origin) -> c_int;
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The function of this name in the library that contains this code.
fn symbol(name: &str) -> Option<u64> {
    let name = CString::new(name).ok()?;
    let mut origin = Origin {
        file: std::ptr::null(),
        start: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        symbol_start: std::ptr::null_mut(),
    };
    // SAFETY: `origin` has room for the result; any address is allowed.
    let known = unsafe { dladdr(symbol as *const c_void, &raw mut origin) } != 0;
    if !known || origin.file.is_null() {
        return None;
    }
    // SAFETY: the linker keeps the name of the file as long as this library is loaded. No code runs,
    // because the library is loaded already; the handle stays valid without being closed.
    let library = unsafe { dlopen(origin.file, LOADED) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is loaded; the name ends with a null byte.
    let found = unsafe { dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found as u64)
}

/// The functions with a third version, and the version of CUDA that introduced it.
const THIRD: [(&str, i32); 1] = [("cuStreamGetCaptureInfo", 12030)];

/// The function that a program means by a name of the driver's interface. Where a function has several
/// versions, this is the second, which all current programs call, unless the program is written for a version of
/// CUDA with a third.
pub(crate) fn find(sim: &Sim, name: &str, cuda: i32) -> Option<u64> {
    let is_missing = sim.settings.missing.iter().any(|missing| missing == name);
    let is_driver = name.starts_with("cu") && !name.starts_with("cuda");
    if is_missing || !is_driver {
        return None;
    }
    if THIRD
        .iter()
        .any(|&(third, since)| third == name && since <= cuda)
    {
        return symbol(&format!("{name}_v3"));
    }
    symbol(&format!("{name}_v2")).or_else(|| symbol(name))
}

fn look_up(sim: &Sim, name: In<u8>, function: Out<u64>, cuda: i32, status: Out<i32>) -> Outcome {
    let found = find(sim, name.text()?, cuda);
    status.set_if_wanted(if found.is_some() { FOUND } else { NOT_FOUND });
    function.set(found.unwrap_or(0))?;
    found.map(drop).ok_or(Code::NOT_FOUND)
}

entry_points! { early:
    fn cuGetProcAddress_v2(
        name: In<u8>,
        function: Out<u64>,
        version: i32,
        _flags: u64,
        status: Out<i32>,
    ) |sim| {
        look_up(sim, name, function, version, status)
    }

    fn cuGetProcAddress(name: In<u8>, function: Out<u64>, version: i32, _flags: u64) |sim| {
        look_up(sim, name, function, version, Out::NOWHERE)
    }
}
