//! What the program inherits from the process that starts it, as far as Rust's library hides or keeps it.
#![cfg_attr(
    unix,
    expect(unsafe_code, reason = "C alone runs before Rust's library")
)]

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program started.
pub fn stdout_is_closed() -> bool {
    STDOUT_IS_CLOSED.load(Ordering::Relaxed)
}

/// Runs before `main`: Rust's library puts /dev/null in place of closed streams, and then what is printed is lost and
/// nobody told. Also lets a write beyond the limit of the size of files fail with EFBIG, which would end the program.
#[cfg(unix)]
#[used]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        // SAFETY: it asks about a descriptor, open or not.
        let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
        STDOUT_IS_CLOSED.store(flags == -1, Ordering::Relaxed);
        // SAFETY: no handler is installed, and no other thread runs yet.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    }
    before_main
};
