//! The process that a library runs in.
#![expect(
    unsafe_code,
    reason = "loads a library and calls its functions in C, and those of the simulated CUDA"
)]

use std::collections::HashMap;
use std::ffi::{OsString, c_char, c_int, c_void};
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::simcuda;
use crate::wire::{Reply, Request, Unlogged};

/// As PyTorch declares the functions of a pluggable allocator.
type Malloc = unsafe extern "C-unwind" fn(isize, c_int, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C-unwind" fn(*mut c_void, isize, c_int, *mut c_void);
type RecordStream = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type EmptyCache = unsafe extern "C-unwind" fn();

/// The names of the two functions, tried in this order if none are given: those of `coalesce-torch`, of PyTorch's
/// documentation, and of RMM. The name `free` is never tried, because every library would give C's own function.
const FUNCTIONS: [(&str, &str); 3] = [
    ("coalesce_malloc", "coalesce_free"),
    ("my_malloc", "my_free"),
    ("allocate", "deallocate"),
];
const RECORD_STREAM: [&str; 2] = ["coalesce_record_stream", "my_record_stream"];
const EMPTY_CACHE: [&str; 2] = ["coalesce_empty_cache", "my_empty_cache"];

const DEVICE: c_int = 0;

/// Serves requests until the parent closes its end. The arguments are the path of the library and, if given, the
/// names of its functions.
pub(crate) fn serve(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut out = UnixStream::from(socket);
    let Ok(source) = out.try_clone() else {
        return ExitCode::FAILURE;
    };
    let mut source = BufReader::new(source);
    let mut host = match Host::load(&arguments) {
        Ok(host) => host,
        Err(reason) => {
            // Without a parent nobody needs the reason.
            let _ = Reply::Failed { reason }.write(&mut out);
            return ExitCode::FAILURE;
        }
    };
    let mut reply = host.reply(0);
    // An error means that the parent has ended.
    while reply.write(&mut out).is_ok()
        && let Ok(request) = Request::read(&mut source)
    {
        let addr = host.call(request);
        reply = host.reply(addr);
    }
    ExitCode::SUCCESS
}

/// The library over the simulated CUDA.
struct Host {
    cuda: Cuda,
    malloc: Malloc,
    free: Free,
    record_stream: Option<RecordStream>,
    empty_cache: Option<EmptyCache>,
    /// The handles of the streams of the workload.
    streams: HashMap<u64, *mut c_void>,
    _library: Library,
}

impl Host {
    fn load(arguments: &[OsString]) -> Result<Self, String> {
        let [path, names @ ..] = arguments else {
            return Err("no library".to_owned());
        };
        let cuda = Cuda::load()?;
        // SAFETY: loading runs code of the library, which this process exists for. A function that the simulated
        // CUDA lacks matters only when it is called.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let library = library.map_err(|error| explain(&error))?;
        let given: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        let tried = match given.as_slice() {
            [malloc, free] => vec![(&**malloc, &**free)],
            _ => FUNCTIONS.to_vec(),
        };
        // SAFETY: the user says that these are the functions of a pluggable allocator, which have these types.
        let functions = tried.iter().find_map(|(malloc, free)| unsafe {
            Some((
                function::<Malloc>(&library, malloc)?,
                function::<Free>(&library, free)?,
            ))
        });
        let Some((malloc, free)) = functions else {
            let pairs = tried
                .iter()
                .map(|(malloc, free)| format!("{malloc} and {free}"));
            return Err(format!(
                "it has no functions for malloc and free: looked for {}. Name them as in plugin:PATH:MALLOC,FREE",
                pairs.collect::<Vec<_>>().join(", or ")
            ));
        };
        // SAFETY: as above.
        let (record_stream, empty_cache) = unsafe {
            (
                RECORD_STREAM
                    .iter()
                    .find_map(|name| function::<RecordStream>(&library, name)),
                EMPTY_CACHE
                    .iter()
                    .find_map(|name| function::<EmptyCache>(&library, name)),
            )
        };
        Ok(Self {
            cuda,
            malloc,
            free,
            record_stream,
            empty_cache,
            streams: HashMap::new(),
            _library: library,
        })
    }

    /// Calls the library. Returns the address of a malloc, otherwise 0.
    fn call(&mut self, request: Request) -> u64 {
        // SAFETY: the arguments are those that PyTorch passes: an address from the library's own malloc that was not
        // freed, and a live stream. Addresses are never dereferenced here.
        unsafe {
            match request {
                Request::Malloc { bytes, stream } => {
                    let stream = self.stream(stream);
                    let addr = (self.malloc)(bytes.cast_signed() as isize, DEVICE, stream);
                    return addr.addr() as u64;
                }
                Request::Free {
                    addr,
                    bytes,
                    stream,
                } => {
                    let stream = self.stream(stream);
                    (self.free)(pointer(addr), bytes.cast_signed() as isize, DEVICE, stream);
                }
                Request::RecordStream { addr, stream } => {
                    let stream = self.stream(stream);
                    if let Some(record_stream) = self.record_stream {
                        record_stream(pointer(addr), stream);
                    }
                }
                Request::EmptyCache => {
                    if let Some(empty_cache) = self.empty_cache {
                        empty_cache();
                    }
                }
            }
        }
        0
    }

    /// The reply, with the driver calls since the last one.
    fn reply(&self, addr: u64) -> Reply {
        let (unlogged, log) = self.cuda.calls();
        Reply::Done {
            addr,
            unlogged,
            log,
        }
    }

    /// The stream of the simulated CUDA for a stream of the workload.
    fn stream(&mut self, stream: u64) -> *mut c_void {
        if stream == 0 {
            return ptr::null_mut();
        }
        let cuda = &self.cuda;
        *self
            .streams
            .entry(stream)
            .or_insert_with(|| cuda.new_stream())
    }
}

fn pointer(addr: u64) -> *mut c_void {
    ptr::without_provenance_mut(addr as usize)
}

/// The function of this name.
///
/// # Safety
/// It must have the type `F`.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: as the caller says.
    let symbol: Result<Symbol<F>, _> = unsafe { library.get(name) };
    symbol.ok().map(|symbol| *symbol)
}

/// Says what to do about a library that cannot be loaded.
fn explain(error: &libloading::Error) -> String {
    use std::error::Error;
    let reason = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let names = simcuda::NAMES.join(", ");
    format!(
        "cannot load it: {reason}. The simulated CUDA stands for {names}; the folders of other libraries that it \
         needs go into LD_LIBRARY_PATH"
    )
}

/// The functions of the simulated CUDA that steer it. `allocator/simcuda/include/fakecuda.h` describes them.
struct Cuda {
    take_log: unsafe extern "C" fn(TakeText, *mut c_void),
    counters: unsafe extern "C" fn(*mut [u64; COUNTERS]),
    create_stream: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    _library: Library,
}

type TakeText = unsafe extern "C" fn(*const c_char, usize, *mut c_void);

/// The numbers in `fakecuda_counters_t`, and the places of those in use.
const COUNTERS: usize = 26;
const CREATE_EVENT: usize = 15;
const QUERY_EVENT: usize = 17;
const MEMORY_INFO: usize = 22;

impl Cuda {
    /// Loads it for all libraries that are loaded later, and starts its log.
    fn load() -> Result<Self, String> {
        let [name, ..] = simcuda::NAMES;
        let cannot = |error: libloading::Error| format!("the simulated CUDA: {error}");
        // SAFETY: loading it runs no code of its own.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(cannot)?;
        // SAFETY: the functions have these types, and the log and the first device may be used from now on. Like
        // PyTorch, `cudaFree` makes the first device current.
        unsafe {
            let log: Symbol<unsafe extern "C" fn(c_int)> =
                library.get("fakecuda_log_enable").map_err(cannot)?;
            let free: Symbol<unsafe extern "C" fn(*mut c_void) -> c_int> =
                library.get("cudaFree").map_err(cannot)?;
            log(1);
            let status = free(ptr::null_mut());
            if status != 0 {
                return Err(format!(
                    "the simulated CUDA does not start: status {status}"
                ));
            }
            Ok(Self {
                take_log: *library.get("fakecuda_log_take").map_err(cannot)?,
                counters: *library.get("fakecuda_counters").map_err(cannot)?,
                create_stream: *library.get("cudaStreamCreate").map_err(cannot)?,
                _library: library,
            })
        }
    }

    /// The numbers of calls without a line so far, and the lines since the last time.
    fn calls(&self) -> (Unlogged, String) {
        unsafe extern "C" fn add(text: *const c_char, length: usize, log: *mut c_void) {
            // SAFETY: the text has this length during the call, and `log` is the string below.
            unsafe {
                let text = std::slice::from_raw_parts(text.cast::<u8>(), length);
                (*log.cast::<String>()).push_str(&String::from_utf8_lossy(text));
            }
        }
        let mut log = String::new();
        let mut counters = [0; COUNTERS];
        // SAFETY: both are used during the calls only, and there is room for all counters.
        unsafe {
            (self.take_log)(add, (&raw mut log).cast());
            (self.counters)(&raw mut counters);
        }
        let unlogged = Unlogged {
            create_event: counters[CREATE_EVENT],
            query_event: counters[QUERY_EVENT],
            memory_info: counters[MEMORY_INFO],
        };
        (unlogged, log)
    }

    /// A new stream; the default one if there is none.
    fn new_stream(&self) -> *mut c_void {
        let mut stream = ptr::null_mut();
        // SAFETY: there is room for a handle.
        unsafe { (self.create_stream)(&raw mut stream) };
        stream
    }
}
