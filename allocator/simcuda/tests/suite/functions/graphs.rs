//! Stream capture, graphs, and handles for other processes.

use super::{INVALID_CONTEXT, INVALID_VALUE, MIB, SUCCESS, begin, malloc, stream};
use crate::library::{cuda, ok};
use crate::machine::Machine;

const GLOBAL: i32 = 0;

fn begin_capture(stream: u64) {
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
}

fn end_capture(stream: u64) -> (i32, u64) {
    let mut graph = u64::MAX;
    let status = cuda!(cuStreamEndCapture(stream, &raw mut graph));
    (status, graph)
}

fn fill(stream: u64, addr: u64, byte: u8) -> i32 {
    cuda!(cuMemsetD8Async(addr, byte, 8_u64, stream))
}

#[test]
fn the_capture_info_has_the_nodes_that_the_next_operation_depends_on() {
    Machine::with(&[]).run(|| {
        begin();
        let (stream, addr) = (stream(), malloc(MIB));
        let info = || {
            let (mut status, mut id, mut graph) = (-1_i32, 0_u64, 0_u64);
            let (mut nodes, mut count) = (std::ptr::null::<u64>(), 0_u64);
            ok!(cuStreamGetCaptureInfo_v2(
                stream,
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                &raw mut nodes,
                &raw mut count
            ));
            // SAFETY: the driver says how many nodes are there; nothing happened since.
            let nodes = (0..count as usize).map(|at| unsafe { *nodes.add(at) });
            (status, id, graph, nodes.collect::<Vec<_>>())
        };
        assert_eq!(info().0, 0);
        begin_capture(stream);
        let (status, first, graph, nodes) = info();
        assert_eq!((status, nodes.len()), (1, 0));
        assert_eq!(fill(stream, addr, 1), SUCCESS);
        let before = info().3;
        assert_eq!(fill(stream, addr, 2), SUCCESS);
        let [last] = info().3[..] else {
            panic!("one node");
        };
        let (mut found, mut count) = ([0_u64; 2], 2_u64);
        ok!(cuGraphNodeGetDependencies_v2(
            last,
            found.as_mut_ptr(),
            0_u64,
            &raw mut count
        ));
        assert_eq!((count, &found[..1]), (1, &before[..]));
        count = 0;
        let answer = cuda!(cuGraphNodeGetDependencies_v2(
            last,
            found.as_mut_ptr(),
            0_u64,
            &raw mut count
        ));
        assert_eq!(answer, INVALID_VALUE, "a list without room");
        assert_eq!(end_capture(stream), (SUCCESS, graph));
        begin_capture(stream);
        assert!(info().1 > first, "every capture has its own number");
    });
}

#[test]
fn memory_is_opened_by_other_processes_alone() {
    Machine::with(&[]).run(|| {
        begin();
        let (addr, mut other) = (malloc(MIB), 0_u64);
        let mut handle = [0_u64; 8];
        ok!(cuIpcGetMemHandle(handle.as_mut_ptr(), addr));
        let inside = cuda!(cuIpcGetMemHandle(handle.as_mut_ptr(), addr + 512));
        assert_eq!(inside, INVALID_VALUE, "not the start of an allocation");
        let mut pooled = 0_u64;
        ok!(cuMemAllocAsync(&raw mut pooled, MIB, 0_u64));
        let of_pool = cuda!(cuIpcGetMemHandle(handle.as_mut_ptr(), pooled));
        assert_eq!(of_pool, INVALID_VALUE, "memory of a pool");
        let same = cuda!(cuIpcOpenMemHandle_v2(&raw mut other, handle, 1_u32));
        assert_eq!(same, INVALID_CONTEXT);
        // The second word is the process.
        handle[1] += 1;
        let mut opened = [0_u64; 2];
        for place in &mut opened {
            ok!(cuIpcOpenMemHandle_v2(&raw mut *place, handle, 1_u32));
        }
        assert_eq!(opened[0], opened[1]);
        assert_ne!(opened[0], addr);
        ok!(cuIpcCloseMemHandle(opened[0]));
        ok!(cuIpcCloseMemHandle(opened[0]));
        assert_eq!(cuda!(cuIpcCloseMemHandle(opened[0])), INVALID_VALUE);
    });
}

/// Creates 4 MiB of physical memory that can be exported as the handle types in `types`.
fn shareable(types: i32) -> u64 {
    let mut handle = 0_u64;
    let mut what = super::on_device(0);
    what[1] = types;
    ok!(cuMemCreate(&raw mut handle, 4 * MIB, what.as_ptr(), 0_u64));
    handle
}

#[test]
fn virtual_memory_is_exported_as_a_file() {
    Machine::with(&[]).run(|| {
        begin();
        let (mut imported, mut file) = (0_u64, -1_i32);
        let handle = shareable(1);
        let place = &raw mut file;
        ok!(cuMemExportToShareableHandle(place, handle, 1_i32, 0_u64));
        let import = |imported: &mut u64, file: u64| {
            cuda!(cuMemImportFromShareableHandle(
                &raw mut *imported,
                file,
                1_i32
            ))
        };
        assert_eq!(import(&mut imported, file as u64), SUCCESS);
        let mut addr = 0_u64;
        let reserved = &raw mut addr;
        ok!(cuMemAddressReserve(reserved, 4 * MIB, 0_u64, 0_u64, 0_u64));
        ok!(cuMemMap(addr, 4 * MIB, 0_u64, imported, 0_u64));
        assert_eq!(import(&mut imported, 9999), INVALID_VALUE);
        let private = shareable(0);
        let refused = cuda!(cuMemExportToShareableHandle(place, private, 1_i32, 0_u64));
        assert_eq!(refused, INVALID_VALUE, "not requested");
    });
}
