//! CUDA's functions, called as a program does that loads `libcuda.so.1`.
#![expect(unsafe_code, reason = "functions of C")]

#[path = "functions/library.rs"]
mod library;

use std::ffi::{CStr, CString, c_char, c_void};

use coalesce_alloc::driver::contents::{CHECK, FILL, PTX, word};
use library::{Library, cuda, folder, in_a_process};

const MIB: u64 = 1 << 20;

/// Statuses.
const SUCCESS: i32 = 0;
const INVALID_VALUE: i32 = 1;
const OUT_OF_MEMORY: i32 = 2;
const NOT_INITIALIZED: i32 = 3;
const NO_DEVICE: i32 = 100;
const INVALID_DEVICE: i32 = 101;
const INVALID_CONTEXT: i32 = 201;
const INVALID_HANDLE: i32 = 400;
const NOT_FOUND: i32 = 500;
const NOT_READY: i32 = 600;
const ILLEGAL_ADDRESS: i32 = 700;
const NOT_SUPPORTED: i32 = 801;

/// A program that has made the context of the first device current.
fn begin(cuda: Library) {
    assert_eq!(cuda!(cuda, cuInit(0_u32)), SUCCESS);
    enter(cuda, 0);
}

fn enter(cuda: Library, device: i32) {
    let mut context = 0_u64;
    assert_eq!(
        cuda!(cuda, cuDevicePrimaryCtxRetain(&raw mut context, device)),
        SUCCESS
    );
    assert_eq!(cuda!(cuda, cuCtxSetCurrent(context)), SUCCESS);
}

fn malloc(cuda: Library, bytes: u64) -> u64 {
    let mut addr = 0_u64;
    assert_eq!(cuda!(cuda, cuMemAlloc_v2(&raw mut addr, bytes)), SUCCESS);
    addr
}

fn stream(cuda: Library) -> u64 {
    let mut stream = 0_u64;
    assert_eq!(cuda!(cuda, cuStreamCreate(&raw mut stream, 1_u32)), SUCCESS);
    stream
}

fn event(cuda: Library) -> u64 {
    let mut event = 0_u64;
    assert_eq!(cuda!(cuda, cuEventCreate(&raw mut event, 0_u32)), SUCCESS);
    event
}

fn attribute(cuda: Library, number: i32) -> i32 {
    let mut value = -1_i32;
    assert_eq!(
        cuda!(cuda, cuDeviceGetAttribute(&raw mut value, number, 0_i32)),
        SUCCESS
    );
    value
}

fn pool_attribute(cuda: Library, pool: u64, number: i32) -> u64 {
    let mut value = u64::MAX;
    assert_eq!(
        cuda!(cuda, cuMemPoolGetAttribute(pool, number, &raw mut value)),
        SUCCESS
    );
    value
}

/// `CUmemAllocationProp` of memory on a device.
fn on_device(device: i32) -> [i32; 8] {
    [1, 1, 1, device, 0, 0, 0, 0]
}

#[test]
fn who_does_not_begin_at_the_beginning_is_told() {
    in_a_process("who_does_not_begin_at_the_beginning_is_told", &[], |cuda| {
        let mut value = 0_u64;
        let mut count = -1_i32;
        assert_eq!(
            cuda!(cuda, cuDeviceGetCount(&raw mut count)),
            NOT_INITIALIZED
        );
        assert_eq!(cuda!(cuda, cuInit(0_u32)), SUCCESS);
        assert_eq!(
            cuda!(cuda, cuMemAlloc_v2(&raw mut value, MIB)),
            INVALID_CONTEXT
        );
        assert_eq!(
            cuda!(cuda, cuCtxSetCurrent(0x9000_u64)),
            INVALID_CONTEXT,
            "not retained"
        );
        assert_eq!(
            cuda!(cuda, cuDevicePrimaryCtxRetain(&raw mut value, 1_i32)),
            INVALID_DEVICE
        );
        enter(cuda, 0);
        let null: *mut u64 = std::ptr::null_mut();
        assert_eq!(cuda!(cuda, cuMemAlloc_v2(null, MIB)), INVALID_VALUE);
        let (mut free, mut total) = (0_u64, 0_u64);
        assert_eq!(
            cuda!(cuda, cuMemGetInfo_v2(&raw mut free, &raw mut total)),
            SUCCESS
        );
        assert_eq!(
            (free, total),
            (80 << 30, 80 << 30),
            "nothing was allocated for nobody"
        );
        let mut name: *const c_char = std::ptr::null();
        assert_eq!(
            cuda!(cuda, cuGetErrorName(INVALID_CONTEXT, &raw mut name)),
            SUCCESS
        );
        // SAFETY: the name of a code, which stays.
        let name = unsafe { CStr::from_ptr(name) };
        assert_eq!(name, c"CUDA_ERROR_INVALID_CONTEXT");
    });
}

#[test]
fn memory_is_counted_and_given_back_once() {
    let environment = [("FAKE_TOTAL_BYTES", "16M")];
    in_a_process(
        "memory_is_counted_and_given_back_once",
        &environment,
        |cuda| {
            begin(cuda);
            let addr = malloc(cuda, 9 * MIB);
            let mut more = 0_u64;
            assert_eq!(
                cuda!(cuda, cuMemAlloc_v2(&raw mut more, 8 * MIB)),
                OUT_OF_MEMORY
            );
            assert_eq!(
                cuda!(cuda, cuMemAlloc_v2(&raw mut more, 0_u64)),
                INVALID_VALUE
            );
            assert_eq!(cuda!(cuda, cuMemFree_v2(addr + 512)), INVALID_VALUE);
            assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), SUCCESS);
            assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), INVALID_VALUE);
            malloc(cuda, 16 * MIB);
        },
    );
}

#[test]
fn virtual_memory_is_mapped_where_it_is_reserved() {
    in_a_process(
        "virtual_memory_is_mapped_where_it_is_reserved",
        &[],
        |cuda| {
            begin(cuda);
            let mut base = 0_u64;
            let place = &raw mut base;
            assert_eq!(
                cuda!(
                    cuda,
                    cuMemAddressReserve(place, 8 * MIB, 0_u64, 0_u64, 0_u64)
                ),
                SUCCESS
            );
            for offset in [0, 2 * MIB] {
                let mut handle = 0_u64;
                let what = on_device(0);
                let created = cuda!(
                    cuda,
                    cuMemCreate(&raw mut handle, 2 * MIB, what.as_ptr(), 0_u64)
                );
                assert_eq!(created, SUCCESS);
                let map = |offset: u64| {
                    cuda!(cuda, cuMemMap(base + offset, 2 * MIB, 0_u64, handle, 0_u64))
                };
                assert_eq!(map(offset), SUCCESS);
                assert_eq!(map(offset), INVALID_VALUE, "there is something");
                assert_eq!(cuda!(cuda, cuMemRelease(handle)), SUCCESS);
            }
            let access = [1_i32, 0, 3];
            let set = |bytes: u64| cuda!(cuda, cuMemSetAccess(base, bytes, access.as_ptr(), 1_u64));
            assert_eq!((set(4 * MIB), set(6 * MIB)), (SUCCESS, INVALID_VALUE));
            assert_eq!(
                cuda!(cuda, cuMemAddressFree(base, 8 * MIB)),
                INVALID_VALUE,
                "still mapped"
            );
            let part = cuda!(cuda, cuMemUnmap(base, 3 * MIB));
            assert_eq!(part, INVALID_VALUE, "one and a part of one");
            assert_eq!(set(4 * MIB), SUCCESS, "all still there");
            let both = cuda!(cuda, cuMemUnmap(base, 4 * MIB));
            assert_eq!(both, SUCCESS, "two at once");
            assert_eq!(cuda!(cuda, cuMemUnmap(base, 4 * MIB)), INVALID_VALUE);
            assert_eq!(cuda!(cuda, cuMemAddressFree(base, 8 * MIB)), SUCCESS);
            let what = on_device(1);
            let created = cuda!(cuda, cuMemCreate(place, 2 * MIB, what.as_ptr(), 0_u64));
            assert_eq!(created, INVALID_VALUE, "no such device");
        },
    );
}

#[test]
fn held_events_complete_when_somebody_waits() {
    let environment = [("FAKE_HOLD_EVENTS", "1")];
    in_a_process(
        "held_events_complete_when_somebody_waits",
        &environment,
        |cuda| {
            begin(cuda);
            let (stream, event) = (stream(cuda), event(cuda));
            let query = || cuda!(cuda, cuEventQuery(event));
            assert_eq!(query(), SUCCESS, "not recorded yet");
            let record = || cuda!(cuda, cuEventRecord(event, stream));
            let waits: [fn(Library, u64, u64) -> i32; 3] = [
                |cuda, event, _| cuda!(cuda, cuEventSynchronize(event)),
                |cuda, _, stream| cuda!(cuda, cuStreamSynchronize(stream)),
                |cuda, _, _| cuda!(cuda, cuCtxSynchronize()),
            ];
            for wait in waits {
                assert_eq!((record(), query()), (SUCCESS, NOT_READY));
                assert_eq!(cuda!(cuda, cuStreamQuery(stream)), NOT_READY);
                assert_eq!(wait(cuda, event, stream), SUCCESS);
                assert_eq!(
                    (query(), cuda!(cuda, cuStreamQuery(stream))),
                    (SUCCESS, SUCCESS)
                );
            }
            assert_eq!(record(), SUCCESS);
            let mut ms = -1_f32;
            let elapsed = |cuda: Library, ms| cuda!(cuda, cuEventElapsedTime(ms, event, event));
            assert_eq!(elapsed(cuda, &raw mut ms), NOT_READY);
            assert_eq!(cuda!(cuda, cuEventSynchronize(event)), SUCCESS);
            assert_eq!((elapsed(cuda, &raw mut ms), ms), (SUCCESS, 0.0));
            let mut untimed = 0_u64;
            assert_eq!(cuda!(cuda, cuEventCreate(&raw mut untimed, 2_u32)), SUCCESS);
            assert_eq!(cuda!(cuda, cuEventRecord(untimed, stream)), SUCCESS);
            assert_eq!(cuda!(cuda, cuEventSynchronize(untimed)), SUCCESS);
            let status = cuda!(cuda, cuEventElapsedTime(&raw mut ms, untimed, untimed));
            assert_eq!(status, INVALID_HANDLE, "it was not to tell the time");
            assert_eq!(cuda!(cuda, cuEventDestroy_v2(event)), SUCCESS);
            assert_eq!(query(), INVALID_HANDLE);
            let another = self::event(cuda);
            assert_eq!(
                cuda!(cuda, cuEventQuery(another)),
                SUCCESS,
                "the old one's records are not its"
            );
            assert_eq!(cuda!(cuda, cuStreamDestroy_v2(stream)), SUCCESS);
            assert_eq!(cuda!(cuda, cuEventRecord(another, stream)), INVALID_HANDLE);
        },
    );
}

#[test]
fn devices_have_their_own_memory_addresses_and_streams() {
    let environment = [("FAKE_DEVICE_COUNT", "2"), ("FAKE_TOTAL_BYTES", "4M")];
    in_a_process(
        "devices_have_their_own_memory_addresses_and_streams",
        &environment,
        |cuda| {
            begin(cuda);
            let (first, event) = (malloc(cuda, 4 * MIB), event(cuda));
            enter(cuda, 1);
            let (second, stream) = (malloc(cuda, 4 * MIB), stream(cuda));
            assert!(first.abs_diff(second) > 1 << 40);
            assert_eq!(
                cuda!(cuda, cuEventRecord(event, stream)),
                INVALID_HANDLE,
                "of another device"
            );
            assert_eq!(
                cuda!(cuda, cuStreamWaitEvent(stream, event, 0_u32)),
                SUCCESS
            );
            assert_eq!(
                cuda!(cuda, cuMemFree_v2(first)),
                SUCCESS,
                "whichever is current"
            );
            let mut again = 0_u64;
            assert_eq!(
                cuda!(cuda, cuMemAlloc_v2(&raw mut again, MIB)),
                OUT_OF_MEMORY
            );
            enter(cuda, 0);
            malloc(cuda, 4 * MIB);
        },
    );
}

#[test]
fn every_thread_has_a_current_device_of_its_own() {
    let test = "every_thread_has_a_current_device_of_its_own";
    in_a_process(test, &[("FAKE_DEVICE_COUNT", "4")], |cuda| {
        begin(cuda);
        let works_on = |device: i32| {
            let mut addr = 0_u64;
            let status = cuda!(cuda, cuMemAlloc_v2(&raw mut addr, MIB));
            assert_eq!(
                status, INVALID_CONTEXT,
                "that of the first thread is not this one's"
            );
            enter(cuda, device);
            for _ in 0..1000 {
                let addr = malloc(cuda, MIB);
                assert_eq!(addr >> 48, device as u64);
                assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), SUCCESS);
            }
        };
        std::thread::scope(|scope| {
            for device in 0..4 {
                scope.spawn(move || works_on(device));
            }
        });
        assert_eq!(malloc(cuda, MIB) >> 48, 0);
    });
}

#[test]
fn a_pool_keeps_what_it_is_told_to() {
    in_a_process("a_pool_keeps_what_it_is_told_to", &[], |cuda| {
        const RELEASE_THRESHOLD: i32 = 4;
        const RESERVED: i32 = 5;
        const USED: i32 = 7;
        const USED_HIGH: i32 = 8;
        begin(cuda);
        let mut pool = 0_u64;
        let what = [[1, 0, 1, 0].as_slice(), &[0; 18]].concat();
        assert_eq!(
            cuda!(cuda, cuMemPoolCreate(&raw mut pool, what.as_ptr())),
            SUCCESS
        );
        let stream = stream(cuda);
        let mut addr = 0_u64;
        let mut malloc = |bytes: u64| {
            let place = &raw mut addr;
            let status = cuda!(cuda, cuMemAllocFromPoolAsync(place, bytes, pool, stream));
            assert_eq!(status, SUCCESS);
            addr
        };
        let first = malloc(3 * MIB);
        assert_eq!(pool_attribute(cuda, pool, RESERVED), 32 * MIB);
        assert_eq!(cuda!(cuda, cuMemFreeAsync(first, stream)), SUCCESS);
        assert_eq!(malloc(2 * MIB), first, "in the order of the stream");
        assert_eq!(cuda!(cuda, cuMemFreeAsync(first, stream)), SUCCESS);
        assert_eq!(cuda!(cuda, cuMemFreeAsync(first, stream)), INVALID_VALUE);
        assert_eq!(pool_attribute(cuda, pool, USED), 0);
        assert_eq!(pool_attribute(cuda, pool, USED_HIGH), 3 * MIB);
        assert_eq!(cuda!(cuda, cuCtxSynchronize()), SUCCESS);
        assert_eq!(
            pool_attribute(cuda, pool, RESERVED),
            0,
            "nothing is kept by default"
        );
        let mut all = u64::MAX;
        let set = cuda!(
            cuda,
            cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &raw mut all)
        );
        assert_eq!(set, SUCCESS);
        let first = malloc(MIB);
        assert_eq!(cuda!(cuda, cuMemFree_v2(first)), SUCCESS);
        assert_eq!(cuda!(cuda, cuCtxSynchronize()), SUCCESS);
        assert_eq!(pool_attribute(cuda, pool, RESERVED), 32 * MIB);
        assert_eq!(cuda!(cuda, cuMemPoolTrimTo(pool, 0_u64)), SUCCESS);
        assert_eq!(pool_attribute(cuda, pool, RESERVED), 0);
        assert_eq!(cuda!(cuda, cuMemPoolDestroy(pool)), SUCCESS);
        assert_eq!(cuda!(cuda, cuMemPoolTrimTo(pool, 0_u64)), INVALID_VALUE);
    });
}

/// The kernels that check contents, as loaded from a module.
struct Kernels {
    cuda: Library,
    fill: u64,
    check: u64,
}

impl Kernels {
    fn load(cuda: Library) -> Self {
        let mut module = 0_u64;
        let image = CString::new(PTX).unwrap();
        assert_eq!(
            cuda!(cuda, cuModuleLoadData(&raw mut module, image.as_ptr())),
            SUCCESS
        );
        let get = |name: &str| {
            let name = CString::new(name).unwrap();
            let mut kernel = 0_u64;
            let status = cuda!(
                cuda,
                cuModuleGetFunction(&raw mut kernel, module, name.as_ptr())
            );
            (status, kernel)
        };
        assert_eq!(get("coalesce_mend").0, NOT_FOUND);
        let [fill, check] = [FILL, CHECK].map(|name| get(name).1);
        Self { cuda, fill, check }
    }

    fn launch(&self, kernel: u64, stream: u64, arguments: &[u64]) -> i32 {
        let mut places: Vec<*const u64> = arguments.iter().map(std::ptr::from_ref).collect();
        let (one, none) = (1_u32, std::ptr::null_mut::<c_void>());
        let places = places.as_mut_ptr();
        cuda!(
            self.cuda,
            cuLaunchKernel(
                kernel, one, one, one, 256_u32, one, one, 0_u32, stream, places, none
            )
        )
    }

    fn fill(&self, stream: u64, addr: u64, seed: u64) {
        assert_eq!(
            self.launch(self.fill, stream, &[addr, MIB / 8, seed]),
            SUCCESS
        );
    }

    /// Words from `addr` on that are not those of `seed` once the stream is done.
    fn mismatches(&self, stream: u64, addr: u64, seed: u64, counter: u64) -> u64 {
        let cuda = self.cuda;
        assert_eq!(
            cuda!(cuda, cuMemsetD32Async(counter, 0_u32, 2_u64, stream)),
            SUCCESS
        );
        assert_eq!(
            self.launch(self.check, stream, &[addr, MIB / 8, seed, counter]),
            SUCCESS
        );
        assert_eq!(cuda!(cuda, cuStreamSynchronize(stream)), SUCCESS);
        let mut count = u64::MAX;
        assert_eq!(
            cuda!(cuda, cuMemcpyDtoH_v2(&raw mut count, counter, 8_u64)),
            SUCCESS
        );
        count
    }
}

#[test]
fn memory_that_is_reused_too_early_is_seen() {
    let environment = [("FAKE_MEMORY", "1"), ("FAKE_HOLD_EVENTS", "1")];
    in_a_process(
        "memory_that_is_reused_too_early_is_seen",
        &environment,
        |cuda| {
            begin(cuda);
            let kernels = Kernels::load(cuda);
            let [addr, counter] = [MIB, 8].map(|bytes| malloc(cuda, bytes));
            let [owner, user] = [stream(cuda), stream(cuda)];
            // As an allocator does that forgets that another stream still works on the block.
            kernels.fill(user, addr, 1);
            kernels.fill(owner, addr, 2);
            assert_eq!(
                kernels.mismatches(owner, addr, 2, counter),
                0,
                "the user is not there yet"
            );
            assert_eq!(cuda!(cuda, cuStreamSynchronize(user)), SUCCESS);
            assert_eq!(kernels.mismatches(owner, addr, 2, counter), MIB / 8);
            // As one does that waits for it.
            kernels.fill(user, addr, 1);
            let event = event(cuda);
            assert_eq!(cuda!(cuda, cuEventRecord(event, user)), SUCCESS);
            assert_eq!(cuda!(cuda, cuStreamWaitEvent(owner, event, 0_u32)), SUCCESS);
            kernels.fill(owner, addr, 2);
            assert_eq!(cuda!(cuda, cuEventQuery(event)), NOT_READY);
            assert_eq!(kernels.mismatches(owner, addr, 2, counter), 0);
            assert_eq!(
                cuda!(cuda, cuEventQuery(event)),
                SUCCESS,
                "the owner has waited for it"
            );
            assert_eq!(cuda!(cuda, cuCtxSynchronize()), SUCCESS);
            assert_eq!(kernels.mismatches(owner, addr, 2, counter), 0);
        },
    );
}

#[test]
fn contents_are_what_was_written() {
    in_a_process(
        "contents_are_what_was_written",
        &[("FAKE_MEMORY", "1")],
        |cuda| {
            begin(cuda);
            let kernels = Kernels::load(cuda);
            let [addr, copy] = [MIB, MIB].map(|bytes| malloc(cuda, bytes));
            kernels.fill(0, addr, 7);
            assert_eq!(cuda!(cuda, cuMemcpyDtoD_v2(copy, addr, MIB)), SUCCESS);
            let mine = [1_u8, 2, 3];
            assert_eq!(
                cuda!(cuda, cuMemcpyHtoD_v2(copy + 1, mine.as_ptr(), 3_u64)),
                SUCCESS
            );
            assert_eq!(cuda!(cuda, cuMemsetD8_v2(copy + 8, 9_u8, 4_u64)), SUCCESS);
            let mut read = [0_u8; 24];
            assert_eq!(
                cuda!(cuda, cuMemcpyDtoH_v2(read.as_mut_ptr(), copy, 24_u64)),
                SUCCESS
            );
            let mut expected = [0, 1, 2].map(|index| word(7, index).to_le_bytes()).concat();
            expected[1..4].copy_from_slice(&mine);
            expected[8..12].fill(9);
            assert_eq!(read.as_slice(), expected);
            let beyond = cuda!(cuda, cuMemsetD8_v2(copy + 2 * MIB - 1, 0_u8, 2_u64));
            assert_eq!(beyond, INVALID_VALUE, "beyond the end");
            assert_eq!(
                cuda!(cuda, cuMemsetD32_v2(copy + 1, 0_u32, 1_u64)),
                INVALID_VALUE
            );
        },
    );
}

#[test]
fn work_beyond_memory_breaks_the_device() {
    in_a_process(
        "work_beyond_memory_breaks_the_device",
        &[("FAKE_MEMORY", "1")],
        |cuda| {
            begin(cuda);
            let kernels = Kernels::load(cuda);
            let addr = malloc(cuda, MIB);
            let status = kernels.launch(kernels.fill, 0, &[addr, MIB, 1]);
            assert_eq!(status, ILLEGAL_ADDRESS);
            assert_eq!(cuda!(cuda, cuCtxSynchronize()), ILLEGAL_ADDRESS);
            assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), ILLEGAL_ADDRESS);
        },
    );
}

#[test]
fn machines_without_can_be_had() {
    let test = "machines_without_can_be_had";
    let without = [
        ("FAKE_NO_DEVICE", "1"),
        ("FAKE_NO_VMM", "1"),
        ("FAKE_NO_POOLS", "1"),
        ("FAKE_DRIVER_VERSION", "12040"),
        ("FAKE_ADDR", "sideways"),
    ];
    for (variable, value) in without {
        in_a_process(test, &[(variable, value)], |cuda| {
            let is = |name: &str| std::env::var(name).is_ok();
            let mut place = 0_u64;
            if is("FAKE_NO_DEVICE") {
                assert_eq!(cuda!(cuda, cuInit(0_u32)), NO_DEVICE);
                let mut count = -1_i32;
                assert_eq!(cuda!(cuda, cudaGetDeviceCount(&raw mut count)), NO_DEVICE);
                assert_eq!(count, 0);
                return;
            }
            if is("FAKE_ADDR") {
                assert_eq!(cuda!(cuda, cuInit(0_u32)), NOT_INITIALIZED);
                return;
            }
            begin(cuda);
            if is("FAKE_NO_VMM") {
                assert_eq!(attribute(cuda, 102), 0);
                let what = on_device(0);
                let created = cuda!(
                    cuda,
                    cuMemCreate(&raw mut place, 2 * MIB, what.as_ptr(), 0_u64)
                );
                assert_eq!(created, NOT_SUPPORTED);
            }
            if is("FAKE_NO_POOLS") {
                assert_eq!(attribute(cuda, 115), 0);
                let status = cuda!(cuda, cuMemAllocAsync(&raw mut place, MIB, 0_u64));
                assert_eq!(status, NOT_SUPPORTED);
            }
            let mut version = 0_i32;
            assert_eq!(cuda!(cuda, cuDriverGetVersion(&raw mut version)), SUCCESS);
            let expected = if is("FAKE_DRIVER_VERSION") {
                12040
            } else {
                13000
            };
            assert_eq!(version, expected);
        });
    }
}

#[test]
fn functions_fail_to_order() {
    let environment = [("FAKE_FAIL", "cuMemAlloc_v2:9999:2,cuMemFree_v2:700")];
    in_a_process("functions_fail_to_order", &environment, |cuda| {
        begin(cuda);
        let mut addr = malloc(cuda, MIB);
        for _ in 0..2 {
            assert_eq!(cuda!(cuda, cuMemAlloc_v2(&raw mut addr, MIB)), 9999);
        }
        assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), 700);
        let mut name: *const c_char = c"".as_ptr();
        assert_eq!(
            cuda!(cuda, cuGetErrorName(9999_i32, &raw mut name)),
            INVALID_VALUE
        );
        assert!(name.is_null());
    });
}

#[test]
fn functions_are_found_by_name_or_missing() {
    let environment = [("FAKE_MISSING", "cuMemCreate")];
    in_a_process(
        "functions_are_found_by_name_or_missing",
        &environment,
        |cuda| {
            let find = |name: &CStr| {
                let (mut found, mut status) = (1_u64, -1_i32);
                let code = cuda!(
                    cuda,
                    cuGetProcAddress_v2(
                        name.as_ptr(),
                        &raw mut found,
                        12080_i32,
                        0_u64,
                        &raw mut status
                    )
                );
                (code, status, found)
            };
            let (code, status, found) = find(c"cuMemAlloc");
            assert_eq!((code, status), (SUCCESS, 0));
            assert_eq!(found, cuda.symbol("cuMemAlloc_v2") as u64);
            assert_eq!(find(c"cuMemCreate"), (NOT_FOUND, 1, 0));
            assert_eq!(find(c"cuMemRecreate"), (NOT_FOUND, 1, 0));
            assert_eq!(find(c"cudaMalloc"), (NOT_FOUND, 1, 0), "the runtime's");
        },
    );
}

#[test]
fn a_library_can_lack_a_function() {
    let folder = folder("a_library_can_lack_a_function");
    simcuda::library::place_without(&folder, "cuMemAddressReserve").unwrap();
    assert!(simcuda::library::place_without(&folder, "cuMemPreserve").is_err());
    let older = Library::load(&folder.join(simcuda::library::NAME));
    assert!(older.symbol("cuMemAddressReserve").is_null());
    assert!(!older.symbol("cuMemAddressFree").is_null());
}

#[test]
fn the_log_is_written_at_the_end() {
    let folder = folder("the_log_is_written_at_the_end");
    let path = folder.join("log");
    let log = path.to_str().unwrap();
    in_a_process(
        "the_log_is_written_at_the_end",
        &[("FAKE_LOG", log)],
        |cuda| {
            begin(cuda);
            let addr = malloc(cuda, 1000);
            assert_eq!(cuda!(cuda, cuMemFree_v2(addr)), SUCCESS);
        },
    );
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written, "malloc 1000 0x20000000000\nfree 0x20000000000\n");
}

/// The runtime needs no beginning, and remembers what went wrong.
#[test]
fn the_runtime_begins_by_itself() {
    let environment = [("FAKE_TOTAL_BYTES", "4M")];
    in_a_process("the_runtime_begins_by_itself", &environment, |cuda| {
        let mut addr = 1_u64;
        assert_eq!(cuda!(cuda, cudaMalloc(&raw mut addr, 0_u64)), SUCCESS);
        assert_eq!(addr, 0, "nothing of 0 bytes");
        assert_eq!(
            cuda!(cuda, cudaMalloc(&raw mut addr, 5 * MIB)),
            OUT_OF_MEMORY
        );
        assert_eq!(cuda!(cuda, cudaMalloc(&raw mut addr, MIB)), SUCCESS);
        assert_eq!(cuda!(cuda, cudaPeekAtLastError()), OUT_OF_MEMORY);
        assert_eq!(cuda!(cuda, cudaGetLastError()), OUT_OF_MEMORY);
        assert_eq!(cuda!(cuda, cudaGetLastError()), SUCCESS);
        let mut kind = [9_i32; 22];
        assert_eq!(
            cuda!(cuda, cudaPointerGetAttributes(kind.as_mut_ptr(), addr)),
            SUCCESS
        );
        assert_eq!(kind[..2], [2, 0], "memory of the first device");
        let mut copied = [9_u8; 4];
        let status = cuda!(cuda, cudaMemcpy(copied.as_mut_ptr(), addr, 4_u64, 4_i32));
        assert_eq!((status, copied), (SUCCESS, [0; 4]));
    });
}
