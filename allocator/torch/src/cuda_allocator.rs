//! The C interface behind the C++ class `coalesce::CudaAllocator` (`python/coalesce_torch/cpp`), which implements
//! PyTorch's `CUDAAllocator`.
//!
//! [`coalesce_interface`] returns a table of functions. Each returns null, or a [`Failure`] that the C++ class
//! throws and releases. None of them panics or unwinds, and the functions passed to them must not unwind either.
#![expect(unsafe_code, reason = "the C interface")]

mod captures;
mod figures;
mod functions;
mod pools;
mod report;
mod sharing;

use std::ffi::{c_char, c_int, c_void};

use coalesce_alloc::Checkpoint;
use coalesce_alloc::MempoolId;

use self::figures::{OutOfMemoryFigures, Settings, Stats};
use self::report::{Block, Segment};
use self::sharing::SharedPage;
use crate::failure::{Failure, guarded};
use crate::opened::OpenedPages;
use crate::process::{CurrentStream, DEVICES, follow_current_stream};
use crate::text::coalesce_release_text;

/// Changes whenever the table or a type in it does.
const VERSION: u32 = 2;

/// The outcome of a call: null, or a failure that the caller releases.
type Outcome = *mut Failure;

/// The id of a private pool.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PoolId {
    first: u64,
    second: u64,
}

impl From<PoolId> for MempoolId {
    fn from(id: PoolId) -> Self {
        Self(id.first, id.second)
    }
}

impl From<MempoolId> for PoolId {
    fn from(MempoolId(first, second): MempoolId) -> Self {
        Self { first, second }
    }
}

/// Whether allocations for a stream go to a pool.
type Accepts = extern "C" fn(*mut c_void, u64) -> bool;
/// Drops what belongs to a callback.
type Drops = extern "C" fn(*mut c_void);
/// Allocates a segment of a pool; 0 if there is no memory.
type MallocSegment = extern "C" fn(*mut c_void, u64) -> u64;
/// Frees a segment of a pool.
type FreeSegment = extern "C" fn(*mut c_void, u64);
/// Called for each entry of the history with the device, the action (its index in `Action::ALL`), the address, the size
/// in bytes, the stream and the pool.
type TakeEntry = extern "C" fn(c_int, c_int, u64, u64, u64, PoolId);
/// Frees memory that only PyTorch knows of, and returns whether it did.
type Collect = extern "C" fn() -> bool;
/// Receives an address.
type TakeAddress = extern "C" fn(*mut c_void, u64);
/// Receives an expandable segment: the stream, whether it is of a small pool, mapped bytes.
type TakeExpandableSegment = extern "C" fn(*mut c_void, u64, bool, u64);
/// Receives a page of shared memory.
type TakePage = extern "C" fn(*mut c_void, *const SharedPage);
/// Receives the statistics of a private pool: bytes reserved.
type TakePool = extern "C" fn(*mut c_void, PoolId, *const [figures::Stat; 3]);

/// Which streams' allocations go to a pool.
#[repr(C)]
pub struct Filter {
    data: *mut c_void,
    accepts: Accepts,
    drop: Drops,
}

/// Where the segments of a pool come from.
#[repr(C)]
pub struct Source {
    data: *mut c_void,
    malloc: MallocSegment,
    free: FreeSegment,
    drop: Drops,
}

/// Receives a snapshot: each segment, followed by its blocks.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SnapshotSink {
    data: *mut c_void,
    segment: extern "C" fn(*mut c_void, *const Segment),
    block: extern "C" fn(*mut c_void, *const Block),
}

/// Declares the table: each function with the types of its arguments.
macro_rules! interface {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $function:path;)+) => {
        /// The functions that the C++ class calls.
        #[repr(C)]
        pub struct Interface {
            /// [`VERSION`].
            version: u32,
            /// The bytes of this table.
            bytes: u32,
            $($(#[$doc])* $name: $type,)+
        }

        static INTERFACE: Interface = Interface {
            version: VERSION,
            bytes: size_of::<Interface>() as u32,
            $($name: $function,)+
        };
    };
}

interface! {
    /// Returns the message of a failure. It is valid as long as the failure.
    failure_message: unsafe extern "C" fn(*const Failure, *mut usize) -> *const c_char = functions::failure_message;
    /// Whether memory ran out.
    failure_is_out_of_memory: unsafe extern "C" fn(*const Failure) -> bool = functions::failure_is_out_of_memory;
    /// The figures of a request for which the device had no memory; false if there are none.
    failure_figures: unsafe extern "C" fn(*const Failure, *mut OutOfMemoryFigures) -> bool = functions::failure_figures;
    release_failure: unsafe extern "C" fn(*mut Failure) = functions::release_failure;

    /// Allocates memory. Arguments: device, bytes, stream, a function to call if no cached block fits; result: address.
    malloc: unsafe extern "C" fn(c_int, u64, u64, Collect, *mut u64) -> Outcome = functions::malloc;
    free: unsafe extern "C" fn(u64) -> Outcome = functions::free;
    /// Looks up a block. Arguments: address; results: device, size of the block in bytes.
    block: unsafe extern "C" fn(u64, *mut c_int, *mut u64) -> Outcome = functions::block;
    /// Records a use on another stream. Arguments: address, stream.
    record_stream: unsafe extern "C" fn(u64, u64) -> Outcome = functions::record_stream;
    /// Looks up a segment. Arguments: address of a block; results: address and size of its segment.
    base_allocation: unsafe extern "C" fn(u64, *mut u64, *mut u64) -> Outcome = functions::base_allocation;

    /// Returns what another process opens to use a block. Arguments: address; results: the range. The function receives its
    /// pages, with the last argument.
    share: unsafe extern "C" fn(u64, *mut u64, TakePage, *mut c_void) -> Outcome = sharing::share;
    /// Opens pages of another process, by file descriptors of this one. Arguments: device, bytes of a page, pages, number of
    /// pages; results: the opened pages, their address. Release them with `close_pages`.
    open_pages: unsafe extern "C" fn(c_int, *const SharedPage, usize, *mut *mut OpenedPages, *mut u64) -> Outcome = sharing::open_pages;
    /// Closes pages. Arguments: device, opened pages.
    close_pages: unsafe extern "C" fn(c_int, *mut OpenedPages) -> Outcome = sharing::close_pages;

    /// Returns cached memory. Arguments: device, pool; (0, 0) means the default pools.
    empty_cache: unsafe extern "C" fn(c_int, PoolId) -> Outcome = functions::empty_cache;
    memory_fraction: unsafe extern "C" fn(c_int, *mut f64) -> Outcome = functions::memory_fraction;
    set_memory_fraction: unsafe extern "C" fn(c_int, f64) -> Outcome = functions::set_memory_fraction;
    largest_free: unsafe extern "C" fn(c_int, *mut u64) -> Outcome = functions::largest_free;
    /// Gives a peer access to memory. Arguments: device that owns the memory, peer.
    open_to_peer: unsafe extern "C" fn(c_int, c_int) -> Outcome = functions::open_to_peer;
    /// Returns the current settings. Release their text with `release_text`.
    settings: unsafe extern "C" fn(*mut Settings) -> Outcome = functions::settings;
    release_text: unsafe extern "C" fn(*mut c_char) = coalesce_release_text;

    /// Returns the statistics of a device. Calls the function for each private pool, with the pool's statistics and
    /// the last argument.
    stats: unsafe extern "C" fn(c_int, *mut Stats, TakePool, *mut c_void) -> Outcome = report::stats;
    reset_peak_stats: unsafe extern "C" fn(c_int) -> Outcome = report::reset_peak_stats;
    reset_accumulated_stats: unsafe extern "C" fn(c_int) -> Outcome = report::reset_accumulated_stats;
    /// Calls this function for every entry of the history of every device. It cannot be replaced.
    listen: unsafe extern "C" fn(TakeEntry) -> Outcome = report::listen;
    /// Reports the expandable segments. The function receives each, with the last argument.
    expandable_segments: unsafe extern "C" fn(c_int, TakeExpandableSegment, *mut c_void) -> Outcome = report::expandable_segments;
    /// Takes a snapshot. Arguments: device, pool; (0, 0) means all pools.
    snapshot: unsafe extern "C" fn(c_int, PoolId, SnapshotSink) -> Outcome = report::snapshot;

    /// Creates a pool or adds a user to one. Arguments: device, pool, where its segments come from, or null for the device.
    /// The source is dropped with the pool, or immediately if the call fails.
    create_or_use_pool: unsafe extern "C" fn(c_int, PoolId, *const Source) -> Outcome = pools::create_or_use;
    begin_allocate_to_pool: unsafe extern "C" fn(c_int, PoolId, Filter) -> Outcome = pools::begin;
    end_allocate_to_pool: unsafe extern "C" fn(c_int, PoolId) -> Outcome = pools::end;
    release_pool: unsafe extern "C" fn(c_int, PoolId) -> Outcome = pools::release;
    pool_use_count: unsafe extern "C" fn(c_int, PoolId, *mut u64) -> Outcome = pools::use_count;
    set_use_on_oom: unsafe extern "C" fn(c_int, PoolId, bool) -> Outcome = pools::set_use_on_oom;
    set_no_split: unsafe extern "C" fn(c_int, PoolId) -> Outcome = pools::set_no_split;

    /// Sets the function that returns the current stream.
    follow_current_stream: unsafe extern "C" fn(CurrentStream) = follow;
    mark_capture_begin: unsafe extern "C" fn(c_int) -> Outcome = captures::begin;
    mark_capture_end: unsafe extern "C" fn(c_int) -> Outcome = captures::end;
    /// Compares the live allocations of a pool with a list. Arguments: device, pool, addresses, number of addresses;
    /// result: whether they are equal.
    pool_live_allocations_are: unsafe extern "C" fn(c_int, PoolId, *const u64, usize, *mut bool) -> Outcome = captures::live_allocations_are;
    /// Takes a checkpoint of a pool. Release it with `release_checkpoint`.
    checkpoint_pool: unsafe extern "C" fn(c_int, PoolId, *mut *mut Checkpoint) -> Outcome = captures::checkpoint;
    release_checkpoint: unsafe extern "C" fn(*mut Checkpoint) = captures::release_checkpoint;
    /// Restores a checkpoint. The two functions receive the freed and the allocated addresses, with the last argument.
    restore_pool: unsafe extern "C" fn(c_int, *const Checkpoint, TakeAddress, TakeAddress, *mut c_void) -> Outcome = captures::restore;
}

/// Returns the table for the C++ class, and lets PyTorch name peers and keep the history from then on. The class checks
/// the first two members, because a table of another version has other functions.
#[unsafe(no_mangle)]
pub extern "C" fn coalesce_interface() -> *const Interface {
    DEVICES.expect_complete_interface();
    &raw const INTERFACE
}

/// Runs the body of a function of the table.
fn outcome(work: impl FnOnce() -> Result<(), Failure>) -> Outcome {
    match guarded(work) {
        Ok(()) => std::ptr::null_mut(),
        Err(failure) => Box::into_raw(Box::new(failure)),
    }
}

extern "C" fn follow(current: CurrentStream) {
    follow_current_stream(current);
}
