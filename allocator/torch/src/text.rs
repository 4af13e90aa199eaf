//! Texts that C programs own.
#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CString, c_char};
use std::ptr;

/// Hands a text to a C program, which frees it with [`coalesce_release_text`].
pub(crate) fn text(content: String) -> *mut c_char {
    let content = CString::new(content.replace('\0', " "));
    content.map_or(ptr::null_mut(), CString::into_raw)
}

/// Frees a text returned by a function of this library. Null is ignored.
///
/// # Safety
/// The text must come from this library and must not be freed twice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coalesce_release_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller guarantees it.
        drop(unsafe { CString::from_raw(text) });
    }
}
