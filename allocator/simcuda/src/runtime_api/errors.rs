//! What went wrong last, and what status codes are called.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char};

use crate::context;
use crate::errors::Code;

/// What a code is called that there is not.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

/// The last failure of this thread, which is forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    let last = context::last_error();
    context::set_last_error(Code::SUCCESS);
    last.0
}

/// The last failure of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    context::last_error().0
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: i32) -> *const c_char {
    Code(code).text().unwrap_or(UNRECOGNIZED).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: i32) -> *const c_char {
    Code(code).runtime_name().unwrap_or(UNRECOGNIZED).as_ptr()
}
