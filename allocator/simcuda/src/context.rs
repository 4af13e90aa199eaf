//! State of each thread: the current device, the mode of stream capture, and the runtime's last error.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::captures::Mode;
use crate::errors::{Code, Outcome};

thread_local! {
    static CURRENT: Cell<Option<u32>> = const { Cell::new(None) };
    static BELOW: RefCell<Vec<Option<u32>>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
    static LAST_ERROR: Cell<Code> = const { Cell::new(Code::SUCCESS) };
}

/// The ordinal of the device whose primary context is current.
pub(crate) fn current() -> Option<u32> {
    CURRENT.get()
}

/// [`current`], or an error without one.
pub(crate) fn required() -> Outcome<u32> {
    current().ok_or(Code::INVALID_CONTEXT)
}

pub(crate) fn set_current(ordinal: Option<u32>) {
    CURRENT.set(ordinal);
}

/// Makes a device current until popped.
pub(crate) fn push(ordinal: u32) {
    let before = CURRENT.replace(Some(ordinal));
    // A thread that is ending has no stack.
    let _ = BELOW.try_with(|below| below.borrow_mut().push(before));
}

/// Restores the previous device; returns the one that was current.
pub(crate) fn pop() -> Outcome<u32> {
    let popped = required()?;
    let before = BELOW.try_with(|below| below.borrow_mut().pop());
    set_current(before.ok().flatten().flatten());
    Ok(popped)
}

/// The number of this thread, from 1 on.
pub(crate) fn thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    if THREAD.get() == 0 {
        THREAD.set(1 + THREADS.fetch_add(1, Ordering::Relaxed));
    }
    THREAD.get()
}

pub(crate) fn capture_mode() -> Mode {
    CAPTURE_MODE.get()
}

pub(crate) fn set_capture_mode(mode: Mode) {
    CAPTURE_MODE.set(mode);
}

pub(crate) fn last_error() -> Code {
    LAST_ERROR.get()
}

pub(crate) fn set_last_error(code: Code) {
    LAST_ERROR.set(code);
}
