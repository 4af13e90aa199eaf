//! Stream capture and graphs.

use crate::border::{In, Out, entry_points};
use crate::captures::Mode;
use crate::driver_api::graph::{
    CaptureInfo, begin_capture_to, capture_status, end_capture, exchange_mode, list, print,
};

entry_points! { runtime:
    fn cudaStreamBeginCapture(stream: u64, mode: i32) |sim| {
        let here = sim.runtime_device()?;
        sim.begin_capture(here, stream, Mode::parse(mode)?, None)
    }

    fn cudaStreamBeginCaptureToGraph(
        stream: u64,
        graph: u64,
        nodes: In<u64>,
        _edges: u64,
        count: u64,
        mode: i32,
    ) |sim| {
        let here = sim.runtime_device()?;
        begin_capture_to(sim, here, stream, graph, nodes, count, mode)
    }

    fn cudaStreamEndCapture(stream: u64, graph: Out<u64>) |sim| {
        let here = sim.runtime_device()?;
        end_capture(sim, here, stream, graph)
    }

    fn cudaStreamIsCapturing(stream: u64, status: Out<i32>) |sim| {
        status.set(capture_status(sim, stream))
    }

    fn cudaStreamGetCaptureInfo(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        edges: Out<u64>,
        count: Out<u64>,
    ) |sim| {
        CaptureInfo { status, id, graph, dependencies, edges, count }.fill(sim, stream)
    }

    /// The same in CUDA 12, without the data of edges.
    fn cudaStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        count: Out<u64>,
    ) |sim| {
        let edges = Out::NOWHERE;
        CaptureInfo { status, id, graph, dependencies, edges, count }.fill(sim, stream)
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) |_| { exchange_mode(mode) }
}

entry_points! { runtime:
    fn cudaGraphCreate(graph: Out<u64>, _flags: u32) |sim| {
        graph.fill(|| Ok(sim.graphs.create()))
    }

    fn cudaGraphDestroy(graph: u64) |sim| { sim.graphs.destroy(graph) }

    fn cudaGraphInstantiate(executable: Out<u64>, graph: u64, _flags: u64) |sim| {
        executable.fill(|| sim.graphs.instantiate(graph))
    }

    fn cudaGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) |sim| {
        executable.fill(|| sim.graphs.instantiate(graph))
    }

    fn cudaGraphUpload(_executable: u64, _stream: u64) |_| { Ok(()) }

    fn cudaGraphLaunch(executable: u64, stream: u64) |sim| {
        let here = sim.runtime_device()?;
        sim.launch_graph(here, executable, stream)
    }

    fn cudaGraphExecDestroy(executable: u64) |sim| { sim.graphs.destroy_executable(executable) }

    fn cudaGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) |sim| {
        list(&sim.graphs.nodes(graph)?, nodes, count)
    }

    fn cudaGraphNodeGetType(node: u64, kind: Out<i32>) |sim| {
        kind.fill(|| sim.graphs.kind(node))
    }

    /// CUDA 13 has it under the name without a version, which in CUDA 12 has no edges. The library for
    /// a version of CUDA adds that name.
    fn cudaGraphNodeGetDependencies_v2(
        node: u64,
        nodes: Out<u64>,
        _edges: u64,
        count: Out<u64>,
    ) |sim| {
        list(sim.graphs.dependencies(node)?, nodes, count)
    }

    fn cudaGraphDebugDotPrint(graph: u64, path: In<u8>, _flags: u32) |sim| {
        print(sim, graph, path)
    }
}
