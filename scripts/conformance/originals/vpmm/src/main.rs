//! Puts operations through OpenVM's own VPMM and prints what it answered as a vector of
//! `allocator/tests/originals`.
//!
//! ```text
//! vpmm-recorder PAGE_SIZE VA_SIZE INITIAL_PAGES CAPACITY held|complete < operations > vector
//! ```
//!
//! The pool is the unchanged file `vm_pool.rs`, over the simulated device of coalesce-alloc, whose events are held until
//! completed (`c STREAM COUNT`) or complete at once. Every request must be at least a page: smaller ones are
//! `cudaMallocAsync`'s.

mod cuda;

use std::collections::HashMap;
use std::io::{self, BufRead, BufWriter, Write};

use coalesce_alloc::driver::sim::SimConfig;
use coalesce_alloc::driver::StreamId;

use self::cuda::{common, error, stream};
use self::error::MemoryError;
use self::memory_manager::Pool;
use self::stream::{CudaStream, StreamGuard};

mod memory_manager {
    pub use super::cuda::driver as cuda;

    include!(concat!(env!("OUT_DIR"), "/original.rs"));

    use super::error::MemoryError;
    use super::stream::StreamGuard;

    /// The original, whose items only this module can see.
    pub struct Pool(vm_pool::VirtualMemoryPool);

    impl Pool {
        pub fn new(page_size: usize, va_size: usize, initial_pages: usize) -> Self {
            Self(vm_pool::VirtualMemoryPool::new(vm_pool::VpmmConfig {
                page_size: Some(page_size),
                va_size,
                initial_pages,
            }))
        }

        pub fn malloc(&mut self, bytes: usize, stream: &StreamGuard) -> Result<u64, MemoryError> {
            let addr = self.0.malloc_internal(bytes, stream)?;
            Ok(addr as u64)
        }

        pub fn free(&mut self, addr: u64) -> Result<(), MemoryError> {
            self.0
                .free_internal(addr as *mut std::ffi::c_void)
                .map(|_| ())
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |what| -> u64 {
        let text = arguments.next().expect(what);
        text.parse().expect(what)
    };
    let page_size = number("bytes of a page");
    let va_size = number("bytes of addresses");
    let initial_pages = number("initial pages");
    let capacity = number("bytes of the device");
    let events = arguments.next().expect("held or complete");
    cuda::set_device(&SimConfig {
        hold_events: events == "held",
        ..SimConfig::with_capacity(capacity)
    });
    let mut pool = Pool::new(page_size as usize, va_size as usize, initial_pages as usize);

    let mut out = BufWriter::new(io::stdout().lock());
    let mut say = |line: String| writeln!(out, "{line}").expect("standard output");
    say("# original: openvm-org/stark-backend bf161ed, vm_pool.rs".to_owned());
    say("# policy: vpmm".to_owned());
    say(format!(
        "# conf: page_size:{page_size},va_size:{va_size},initial_pages:{initial_pages}"
    ));
    say(format!("# capacity: {capacity}"));
    say(format!("# events: {events}"));
    let mut live = HashMap::new();
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input");
        match *line.split(' ').collect::<Vec<_>>() {
            ["a", id, bytes, on] => {
                let bytes: u64 = bytes.parse().expect("bytes");
                assert!(bytes >= page_size, "smaller than a page: {line}");
                let on = StreamId::nth(on.parse().expect("a stream"));
                let guard = StreamGuard::new(CudaStream(on));
                match pool.malloc(bytes.next_multiple_of(page_size) as usize, &guard) {
                    Ok(addr) => {
                        live.insert(id.to_owned(), addr);
                        say(format!("{line} {addr:#x}"));
                    }
                    Err(
                        MemoryError::OutOfMemory { .. }
                        | MemoryError::RequestedExceedsVaChunk { .. },
                    ) => say(format!("{line} oom")),
                    Err(error) => panic!("{line}: {error:?}"),
                }
            }
            ["f", id] => {
                if let Some(addr) = live.remove(id) {
                    pool.free(addr).expect("a live block");
                }
                say(line);
            }
            ["c", on, count] => {
                let on = on.parse().expect("a stream");
                cuda::complete(on, count.parse().expect("a number"));
                say(line);
            }
            _ => panic!("no operation: {line}"),
        }
    }
}
