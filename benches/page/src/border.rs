//! The border to JavaScript: one buffer for input, one for the reply, and a function for each step.
//!
//! JavaScript writes bytes where [`input`] says, then calls [`add_file`] or [`ask`], and reads the reply at
//! [`reply_start`], [`reply_length`]. All runs in one thread, a web worker.
// The names of the exported functions must be unique, which the compiler cannot check.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::take;

use coalesce_alloc::printable::printable_lines;

use crate::engine::Engine;

#[derive(Default)]
struct Border {
    input: Vec<u8>,
    reply: Vec<u8>,
    engine: Engine,
}

thread_local! {
    static BORDER: RefCell<Border> = RefCell::default();
}

/// A place for some bytes of input. It is valid until the next call of any function here.
#[unsafe(no_mangle)]
pub extern "C" fn input(length: usize) -> *mut u8 {
    BORDER.with_borrow_mut(|border| {
        border.input = vec![0; length];
        border.input.as_mut_ptr()
    })
}

/// Takes the input as the content of a file. Its first line is the name of the file.
#[unsafe(no_mangle)]
pub extern "C" fn add_file() {
    BORDER.with_borrow_mut(|border| {
        let bytes = take(&mut border.input);
        border.engine.add_file(bytes);
    });
}

/// Answers the input, a [`Request`](crate::Request) as JSON. Returns whether that succeeded; if not, the reply is
/// the reason.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> bool {
    started();
    BORDER.with_borrow_mut(|border| {
        let request = take(&mut border.input);
        border.reply = Vec::new();
        let answer = border.engine.answer(&request);
        let succeeded = answer.is_ok();
        border.reply = answer.unwrap_or_else(|error| {
            printable_lines(&format!("{error:#}"))
                .into_owned()
                .into_bytes()
        });
        succeeded
    })
}

/// Where the reply begins. It is valid until the next call of [`ask`].
#[unsafe(no_mangle)]
pub extern "C" fn reply_start() -> *const u8 {
    BORDER.with_borrow(|border| border.reply.as_ptr())
}

/// The bytes of the reply.
#[unsafe(no_mangle)]
pub extern "C" fn reply_length() -> usize {
    BORDER.with_borrow(|border| border.reply.len())
}

/// Gives JavaScript's clock to the engine, and reports progress and panics to JavaScript.
#[cfg(target_family = "wasm")]
fn started() {
    use std::sync::Once;
    use std::time::Duration;

    use coalesce_bench::measure::progress;
    use coalesce_workloads::clock;

    // SAFETY: JavaScript provides these functions with these types, see web/worker.js. They have no effect on memory.
    #[link(wasm_import_module = "page")]
    unsafe extern "C" {
        /// Milliseconds since some moment.
        safe fn now() -> f64;
        /// Tells how many replays are done.
        safe fn replayed(count: f64);
        /// Tells why the engine ends, as UTF-8.
        safe fn panicked(start: *const u8, length: usize);
    }

    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        clock::set_source(|| Duration::from_secs_f64(now() / 1000.0));
        progress::set_listener(|_, count| replayed(count as f64));
        std::panic::set_hook(Box::new(|panic| {
            let text = panic.to_string();
            panicked(text.as_ptr(), text.len());
        }));
    });
}

#[cfg(not(target_family = "wasm"))]
fn started() {}
