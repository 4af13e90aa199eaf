//! What status codes are called.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CStr, c_char};

use crate::border::{Out, entry_points};
use crate::errors::{Code, Outcome};

/// Text that stays, or null for a code that there is not.
fn tell(text: Option<&'static CStr>, to: Out<*const c_char>) -> Outcome {
    to.set(text.map_or(std::ptr::null(), CStr::as_ptr))?;
    text.map(|_| ()).ok_or(Code::INVALID_VALUE)
}

entry_points! { early:
    fn cuGetErrorName(code: i32, name: Out<*const c_char>) |_| {
        tell(Code(code).driver_name(), name)
    }

    fn cuGetErrorString(code: i32, text: Out<*const c_char>) |_| {
        tell(Code(code).text(), text)
    }
}
