//! Stream capture and graphs.

use crate::border::{In, Out, entry_points, shared_entry_points};
use crate::captures::Mode;
use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// `CUstreamCaptureStatus`.
const NOT_CAPTURED: i32 = 0;
const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;

/// `CUstreamCaptureStatus` of a stream.
fn capture_status(sim: &Sim, stream: u64) -> i32 {
    match sim.captures.of(stream) {
        None if sim.looks_captured() => ACTIVE,
        None => NOT_CAPTURED,
        Some(capture) if capture.is_valid => ACTIVE,
        Some(_) => INVALIDATED,
    }
}

/// Where to write what is known about a capture. Any place may be null.
struct CaptureInfo {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<u64>,
    /// The address of the nodes that the next operation depends on, valid until that operation.
    dependencies: Out<u64>,
    /// The data of the edges from them: null, because all are plain.
    edges: Out<u64>,
    count: Out<u64>,
}

impl CaptureInfo {
    fn fill(&self, sim: &Sim, stream: u64) -> Outcome {
        self.status.set(capture_status(sim, stream))?;
        self.edges.set_if_wanted(0);
        let Some(capture) = sim.captures.of(stream) else {
            // A stream may look captured without a capture.
            for nothing in [self.id, self.graph, self.dependencies, self.count] {
                nothing.set_if_wanted(0);
            }
            return Ok(());
        };
        let frontier = capture.frontier(stream);
        self.id.set_if_wanted(capture.id);
        self.graph.set_if_wanted(capture.graph);
        let address = frontier.as_ptr().expose_provenance() as u64;
        self.dependencies.set_if_wanted(address);
        self.count.set_if_wanted(frontier.len() as u64);
        Ok(())
    }
}

/// Writes up to `count` nodes and the number written; only the number of all without a place for them.
fn list(all: &[u64], nodes: Out<u64>, count: Out<u64>) -> Outcome {
    if nodes.is_null() {
        return count.set(all.len() as u64);
    }
    let room: u64 = count.argument().get()?;
    if room == 0 {
        // As on an H200 (driver 580), also for a node that follows none.
        return Err(Code::INVALID_VALUE);
    }
    let written = (0_u64..)
        .zip(all)
        .take_while(|&(index, _)| index < room)
        .map(|(index, node)| nodes.at(index as usize).set_if_wanted(*node));
    count.set(written.count() as u64)
}

shared_entry_points! {
    fn cuStreamBeginCapture_v2, cudaStreamBeginCapture(stream: u64, mode: i32) |sim, api| {
        let here = api.device(sim)?;
        sim.begin_capture(here, stream, Mode::parse(mode)?, None)
    }

    /// Captures into a graph of the program, behind `count` of its nodes.
    fn cuStreamBeginCaptureToGraph, cudaStreamBeginCaptureToGraph(
        stream: u64,
        graph: u64,
        nodes: In<u64>,
        _edges: u64,
        count: u64,
        mode: i32,
    ) |sim, api| {
        let here = api.device(sim)?;
        let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
        let after: Outcome<Vec<u64>> = (0..count).map(|index| nodes.at(index).get()).collect();
        sim.begin_capture(here, stream, Mode::parse(mode)?, Some((graph, after?)))
    }

    /// Writes null instead of the graph if the capture failed.
    fn cuStreamEndCapture, cudaStreamEndCapture(stream: u64, graph: Out<u64>) |sim, api| {
        let here = api.device(sim)?;
        graph.set(0)?;
        graph.fill(|| sim.end_capture(here, stream))
    }

    fn cuStreamIsCapturing, cudaStreamIsCapturing(stream: u64, status: Out<i32>) |sim, _| {
        status.set(capture_status(sim, stream))
    }

    /// As in CUDA 12, without the data of edges.
    fn cuStreamGetCaptureInfo_v2, cudaStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        count: Out<u64>,
    ) |sim, _| {
        let edges = Out::NOWHERE;
        CaptureInfo { status, id, graph, dependencies, edges, count }.fill(sim, stream)
    }

    fn cuStreamGetCaptureInfo_v3, cudaStreamGetCaptureInfo(
        stream: u64,
        status: Out<i32>,
        id: Out<u64>,
        graph: Out<u64>,
        dependencies: Out<u64>,
        edges: Out<u64>,
        count: Out<u64>,
    ) |sim, _| {
        CaptureInfo { status, id, graph, dependencies, edges, count }.fill(sim, stream)
    }

    fn cuThreadExchangeStreamCaptureMode, cudaThreadExchangeStreamCaptureMode(
        mode: Out<i32>,
    ) |_, _| {
        let wanted = Mode::parse(mode.argument().get()?)?;
        mode.set(context::capture_mode().number())?;
        context::set_capture_mode(wanted);
        Ok(())
    }
}

shared_entry_points! {
    fn cuGraphCreate, cudaGraphCreate(graph: Out<u64>, _flags: u32) |sim, _| {
        graph.fill(|| Ok(sim.graphs.create()))
    }

    fn cuGraphDestroy, cudaGraphDestroy(graph: u64) |sim, _| { sim.graphs.destroy(graph) }

    fn cuGraphInstantiateWithFlags, cudaGraphInstantiateWithFlags(
        executable: Out<u64>,
        graph: u64,
        _flags: u64,
    ) |sim, api| {
        let here = api.device(sim)?;
        executable.fill(|| sim.instantiate(here, graph))
    }

    fn cuGraphUpload, cudaGraphUpload(_executable: u64, _stream: u64) |_, _| { Ok(()) }

    fn cuGraphLaunch, cudaGraphLaunch(executable: u64, stream: u64) |sim, api| {
        let here = api.device(sim)?;
        sim.launch_graph(here, executable, stream)
    }

    fn cuGraphExecDestroy, cudaGraphExecDestroy(executable: u64) |sim, _| {
        sim.graphs.destroy_executable(executable)
    }

    fn cuGraphGetNodes, cudaGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) |sim, _| {
        list(&sim.graphs.nodes(graph)?, nodes, count)
    }

    fn cuGraphNodeGetType, cudaGraphNodeGetType(node: u64, kind: Out<i32>) |sim, _| {
        kind.fill(|| sim.graphs.kind(node))
    }

    /// The runtime of CUDA 13 has it under the name without a version, which in CUDA 12 has no edges. The
    /// library for a version of CUDA adds that name.
    fn cuGraphNodeGetDependencies_v2, cudaGraphNodeGetDependencies_v2(
        node: u64,
        nodes: Out<u64>,
        _edges: u64,
        count: Out<u64>,
    ) |sim, _| {
        list(sim.graphs.dependencies(node)?, nodes, count)
    }

    /// Writes the graph as a file for Graphviz.
    fn cuGraphDebugDotPrint, cudaGraphDebugDotPrint(
        graph: u64,
        path: In<u8>,
        _flags: u32,
    ) |sim, _| {
        let text = sim.graphs.dot(graph)?;
        std::fs::write(path.text()?, text).map_err(|_| Code::INVALID_VALUE)
    }
}

entry_points! { runtime:
    fn cudaGraphInstantiate(executable: Out<u64>, graph: u64, _flags: u64) |sim| {
        let here = sim.runtime_device()?;
        executable.fill(|| sim.instantiate(here, graph))
    }
}
