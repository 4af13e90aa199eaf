//! Libraries, their kernels, and how many blocks of a kernel run at once.

use std::ffi::{CStr, CString};

use super::{FILE_NOT_FOUND, INVALID_HANDLE, INVALID_IMAGE, INVALID_VALUE, begin, stream};
use crate::library::{cuda, ok};
use crate::machine::Machine;

/// Several binaries together (`fatbin`), of which nothing but the beginning is read.
const COMPILED: [u32; 4] = [0xba55_ed50, 1, 0, 0];

/// `CUfunction_attribute`.
const THREADS: i32 = 0;
const DYNAMIC_SHARED_BYTES: i32 = 8;

/// The shared memory that a block of an H100 may opt in to.
const MOST_SHARED_BYTES: u32 = 232_448;

fn load() -> u64 {
    let mut library = 0_u64;
    let (nothing, none) = (std::ptr::null::<u64>(), 0_u32);
    ok!(cuLibraryLoadData(
        &raw mut library,
        COMPILED.as_ptr(),
        nothing,
        nothing,
        none,
        nothing,
        nothing,
        none
    ));
    library
}

fn kernel(library: u64, name: &CStr) -> u64 {
    let mut kernel = 0_u64;
    ok!(cuLibraryGetKernel(&raw mut kernel, library, name.as_ptr()));
    kernel
}

fn attribute(kernel: u64, number: i32) -> i32 {
    let mut value = -1_i32;
    ok!(cuFuncGetAttribute(&raw mut value, number, kernel));
    value
}

/// `CUlaunchAttribute` of a cluster.
#[repr(C)]
struct Cluster {
    kind: u64,
    sizes: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: u64,
    attributes: *const Cluster,
    count: u32,
}

/// A launch of one block of 128 threads, or of a cluster of such blocks.
fn configuration(stream: u64, shared_bytes: u32, cluster: Option<&Cluster>) -> Configuration {
    Configuration {
        grid: [cluster.map_or(1, |cluster| cluster.sizes[0]), 1, 1],
        block: [128, 1, 1],
        shared_bytes,
        stream,
        attributes: cluster.map_or(std::ptr::null(), std::ptr::from_ref),
        count: cluster.is_some().into(),
    }
}

#[test]
fn a_kernel_has_one_handle_and_its_own_attributes() {
    Machine::with(&[]).run(|| {
        begin();
        let library = load();
        let (one, other) = (kernel(library, c"gemm"), kernel(library, c"fft"));
        assert_eq!(kernel(library, c"gemm"), one);
        assert_ne!(one, other);
        let mut function = 0_u64;
        ok!(cuKernelGetFunction(&raw mut function, one));
        let default = attribute(other, DYNAMIC_SHARED_BYTES);
        ok!(cuFuncSetAttribute(
            function,
            DYNAMIC_SHARED_BYTES,
            100_000_i32
        ));
        assert_eq!(attribute(one, DYNAMIC_SHARED_BYTES), 100_000);
        assert_eq!(attribute(other, DYNAMIC_SHARED_BYTES), default);
        let status = cuda!(cuFuncSetAttribute(function, THREADS, 1_i32));
        assert_eq!(status, INVALID_VALUE);

        ok!(cuLibraryUnload(library));
        assert_eq!(cuda!(cuLibraryUnload(library)), INVALID_HANDLE);
        let mut value = 0_i32;
        let status = cuda!(cuFuncGetAttribute(&raw mut value, THREADS, one));
        assert_eq!(status, INVALID_HANDLE);
    });
}

#[test]
fn a_module_is_read_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, image: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, image).unwrap();
        CString::new(path.to_str().unwrap()).unwrap()
    };
    let load = |path: &CStr| {
        let mut module = 0_u64;
        (cuda!(cuModuleLoad(&raw mut module, path.as_ptr())), module)
    };
    Machine::with(&[]).run(|| {
        begin();
        let (status, module) = load(&path("compiled", &COMPILED[0].to_le_bytes()));
        assert_eq!(status, 0);
        let mut kernel = 0_u64;
        ok!(cuModuleGetFunction(
            &raw mut kernel,
            module,
            c"gemm".as_ptr()
        ));
        assert_eq!(load(&path("empty", &[])).0, INVALID_IMAGE);
        assert_eq!(load(c"/no/such/file").0, FILE_NOT_FOUND);
    });
}

#[test]
fn clusters_lie_within_parts_of_the_device() {
    Machine::with(&[]).run(|| {
        begin();
        let (kernel, stream) = (kernel(load(), c"gemm"), stream());
        let clusters = |size: u32| {
            let mut sizes = [1; 16];
            sizes[0] = size;
            let cluster = Cluster { kind: 4, sizes };
            let how = configuration(stream, MOST_SHARED_BYTES, Some(&cluster));
            ok!(cuLaunchKernelEx(
                &raw const how,
                kernel,
                std::ptr::null::<u64>(),
                std::ptr::null::<u64>()
            ));
            let mut clusters = -1_i32;
            ok!(cuOccupancyMaxActiveClusters(
                &raw mut clusters,
                kernel,
                &raw const how
            ));
            clusters
        };
        let mut multiprocessors = 0_i32;
        ok!(cuDeviceGetAttribute(
            &raw mut multiprocessors,
            16_i32,
            0_i32
        ));
        assert_eq!(clusters(1), multiprocessors);
        for size in 1..16 {
            let at_once = clusters(size);
            assert!(at_once >= clusters(size + 1));
            assert!(at_once * size.cast_signed() <= multiprocessors);
        }
    });
}

#[test]
fn shared_memory_limits_the_blocks_of_a_multiprocessor() {
    Machine::with(&[]).run(|| {
        begin();
        let kernel = kernel(load(), c"gemm");
        for blocks in [1, 2, 3, 8] {
            let mut bytes = 0_u64;
            ok!(cuOccupancyAvailableDynamicSMemPerBlock(
                &raw mut bytes,
                kernel,
                blocks,
                128_i32
            ));
            let mut fitting = 0_i32;
            ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut fitting,
                kernel,
                128_i32,
                bytes
            ));
            assert_eq!(fitting, blocks);
        }
    });
}
