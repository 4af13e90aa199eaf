//! Stream capture and graphs. The runtime's functions have the same arguments.

use crate::border::{In, Out, entry_points};
use crate::captures::Mode;
use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// `CUstreamCaptureStatus`.
const NOT_CAPTURED: i32 = 0;
const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;

/// `CUstreamCaptureStatus` of a stream.
pub(crate) fn capture_status(sim: &Sim, stream: u64) -> i32 {
    match sim.captures.of(stream) {
        None if sim.looks_captured() => ACTIVE,
        None => NOT_CAPTURED,
        Some(capture) if capture.is_valid => ACTIVE,
        Some(_) => INVALIDATED,
    }
}

/// Where to write what is known about a capture. Any place may be null.
pub(crate) struct CaptureInfo {
    pub(crate) status: Out<i32>,
    pub(crate) id: Out<u64>,
    pub(crate) graph: Out<u64>,
    /// The address of the nodes that the next operation depends on, valid until that operation.
    pub(crate) dependencies: Out<u64>,
    /// The data of the edges from them: null, because all are plain.
    pub(crate) edges: Out<u64>,
    pub(crate) count: Out<u64>,
}

impl CaptureInfo {
    pub(crate) fn fill(&self, sim: &Sim, stream: u64) -> Outcome {
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

/// Begins to capture a stream into a graph of the program, behind `count` of its nodes.
pub(crate) fn begin_capture_to(
    sim: &mut Sim,
    here: u32,
    stream: u64,
    graph: u64,
    nodes: In<u64>,
    count: u64,
    mode: i32,
) -> Outcome {
    let count = usize::try_from(count).map_err(|_| Code::INVALID_VALUE)?;
    let after: Outcome<Vec<u64>> = (0..count).map(|index| nodes.at(index).get()).collect();
    sim.begin_capture(here, stream, Mode::parse(mode)?, Some((graph, after?)))
}

/// Ends a capture. Writes null instead of the graph if it failed.
pub(crate) fn end_capture(sim: &mut Sim, here: u32, stream: u64, graph: Out<u64>) -> Outcome {
    graph.set(0)?;
    graph.fill(|| sim.end_capture(here, stream))
}

/// Exchanges the capture mode of this thread.
pub(crate) fn exchange_mode(mode: Out<i32>) -> Outcome {
    let wanted = Mode::parse(mode.argument().get()?)?;
    mode.set(context::capture_mode().number())?;
    context::set_capture_mode(wanted);
    Ok(())
}

/// Writes up to `count` nodes and the number written; only the number of all without a place for them.
pub(crate) fn list(all: &[u64], nodes: Out<u64>, count: Out<u64>) -> Outcome {
    if nodes.is_null() {
        return count.set(all.len() as u64);
    }
    let room: u64 = count.argument().get()?;
    if room == 0 {
        // As on an H200 (driver 580), also for a node that follows none.
        return Err(Code::INVALID_VALUE);
    }
    let written = (0_u64..).zip(all).take_while(|&(index, _)| index < room);
    let written = written.map(|(index, node)| nodes.at(index as usize).set_if_wanted(*node));
    count.set(written.count() as u64)
}

/// Writes a graph as a file for Graphviz.
pub(crate) fn print(sim: &Sim, graph: u64, path: In<u8>) -> Outcome {
    let text = sim.graphs.dot(graph)?;
    std::fs::write(path.text()?, text).map_err(|_| Code::INVALID_VALUE)
}

entry_points! { driver:
    fn cuStreamBeginCapture_v2(stream: u64, mode: i32) |sim| {
        sim.begin_capture(context::required()?, stream, Mode::parse(mode)?, None)
    }

    fn cuStreamBeginCaptureToGraph(
        stream: u64,
        graph: u64,
        nodes: In<u64>,
        _edges: u64,
        count: u64,
        mode: i32,
    ) |sim| {
        begin_capture_to(sim, context::required()?, stream, graph, nodes, count, mode)
    }

    fn cuStreamEndCapture(stream: u64, graph: Out<u64>) |sim| {
        end_capture(sim, context::required()?, stream, graph)
    }

    fn cuStreamIsCapturing(stream: u64, status: Out<i32>) |sim| {
        status.set(capture_status(sim, stream))
    }

    fn cuStreamGetCaptureInfo_v2(
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

    fn cuStreamGetCaptureInfo_v3(
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

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |_| { exchange_mode(mode) }
}

entry_points! { driver:
    fn cuGraphCreate(graph: Out<u64>, _flags: u32) |sim| { graph.fill(|| Ok(sim.graphs.create())) }
    fn cuGraphDestroy(graph: u64) |sim| { sim.graphs.destroy(graph) }

    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, _flags: u64) |sim| {
        executable.fill(|| sim.graphs.instantiate(graph))
    }

    fn cuGraphUpload(_executable: u64, _stream: u64) |_| { Ok(()) }

    fn cuGraphLaunch(executable: u64, stream: u64) |sim| {
        sim.launch_graph(context::required()?, executable, stream)
    }

    fn cuGraphExecDestroy(executable: u64) |sim| { sim.graphs.destroy_executable(executable) }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) |sim| {
        list(&sim.graphs.nodes(graph)?, nodes, count)
    }

    fn cuGraphNodeGetType(node: u64, kind: Out<i32>) |sim| {
        kind.fill(|| sim.graphs.kind(node))
    }

    fn cuGraphNodeGetDependencies_v2(
        node: u64,
        nodes: Out<u64>,
        _edges: u64,
        count: Out<u64>,
    ) |sim| {
        list(sim.graphs.dependencies(node)?, nodes, count)
    }

    fn cuGraphDebugDotPrint(graph: u64, path: In<u8>, _flags: u32) |sim| { print(sim, graph, path) }
}
