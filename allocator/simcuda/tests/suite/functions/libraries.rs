//! Libraries, their kernels, and how many blocks of a kernel run at once.

use std::ffi::{CStr, CString};

use super::{FILE_NOT_FOUND, INVALID_IMAGE, begin, stream};
use crate::library::{cuda, ok};
use crate::machine::Machine;

/// Several binaries together (`fatbin`), of which nothing but the beginning is read.
const COMPILED: [u32; 4] = [0xba55_ed50, 1, 0, 0];

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
