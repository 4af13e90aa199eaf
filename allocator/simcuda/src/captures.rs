//! Stream capture: the operations of streams become nodes of a graph instead of being done.
//!
//! A capture begins on one stream and spreads to every stream that waits for an event recorded in it. A
//! call that capture forbids fails and invalidates the capture: waiting for captured work or asking whether
//! it is done, and the calls that CUDA names *potentially unsafe*, such as `cudaMalloc`, as far as the mode
//! of the capture and the mode of the thread prohibit them.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::context;
use crate::errors::{Code, Outcome};
use crate::state::Sim;
use crate::streams::LAST_DEFAULT;
use crate::transfer::Operation;

/// `CUstreamCaptureMode`: whom a capture prohibits from potentially unsafe calls, and which captures a
/// thread lets prohibit it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// All threads.
    Global,
    /// The thread that began the capture.
    ThreadLocal,
    /// Nobody.
    Relaxed,
}

impl Mode {
    pub(crate) fn parse(number: i32) -> Outcome<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    pub(crate) const fn number(self) -> i32 {
        match self {
            Self::Global => 0,
            Self::ThreadLocal => 1,
            Self::Relaxed => 2,
        }
    }
}

/// Nodes of a capture, for an event recorded in it.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// The number of the capture.
    capture: u64,
    nodes: Vec<u64>,
}

/// A capture that has not ended.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The number of the capture, from 1 on.
    pub(crate) id: u64,
    pub(crate) graph: u64,
    /// Whether the capture made the graph, so that nothing remains of it if it fails.
    owns_graph: bool,
    origin: u64,
    /// The thread that began it.
    thread: u64,
    mode: Mode,
    pub(crate) is_valid: bool,
    /// The captured streams, each with the nodes that its next operation depends on.
    streams: HashMap<u64, Vec<u64>, FixedState>,
}

impl Capture {
    /// Whether a thread of this mode is prohibited from potentially unsafe calls.
    fn prohibits(&self, thread: u64, mode: Mode) -> bool {
        match mode {
            Mode::Relaxed => false,
            _ if self.thread == thread => self.mode != Mode::Relaxed,
            Mode::ThreadLocal => false,
            Mode::Global => self.mode == Mode::Global,
        }
    }

    fn ensure_valid(&self) -> Outcome {
        if self.is_valid {
            Ok(())
        } else {
            Err(Code::CAPTURE_INVALIDATED)
        }
    }

    fn invalidate(&mut self, reason: Code) -> Code {
        self.is_valid = false;
        reason
    }

    /// The nodes that the next operation of a captured stream depends on.
    pub(crate) fn frontier(&self, stream: u64) -> &[u64] {
        self.streams.get(&stream).map_or(&[], Vec::as_slice)
    }
}

/// All captures that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    active: Vec<Capture>,
    begun: u64,
}

impl Captures {
    /// The capture of a stream.
    pub(crate) fn of(&self, stream: u64) -> Option<&Capture> {
        let mut active = self.active.iter();
        active.find(|capture| capture.streams.contains_key(&stream))
    }

    fn of_mut(&mut self, stream: u64) -> Option<&mut Capture> {
        let mut active = self.active.iter_mut();
        active.find(|capture| capture.streams.contains_key(&stream))
    }

    fn begin(&mut self, stream: u64, mode: Mode, graph: u64, after: Option<Vec<u64>>) {
        self.begun += 1;
        self.active.push(Capture {
            id: self.begun,
            graph,
            owns_graph: after.is_none(),
            origin: stream,
            thread: context::thread(),
            mode,
            is_valid: true,
            streams: std::iter::once((stream, after.unwrap_or_default())).collect(),
        });
    }

    /// Fails if this thread is prohibited from potentially unsafe calls.
    pub(crate) fn ensure_safe_call(&mut self) -> Outcome {
        let (thread, mode) = (context::thread(), context::capture_mode());
        let active = self.active.iter_mut();
        active
            .filter(|capture| capture.prohibits(thread, mode))
            .map(|capture| Err(capture.invalidate(Code::CAPTURE_UNSUPPORTED)))
            .fold(Ok(()), Outcome::and)
    }

    /// Fails if a stream is captured, because its operations are not done.
    pub(crate) fn ensure_uncaptured(&mut self, stream: u64) -> Outcome {
        match self.of_mut(stream) {
            Some(capture) => Err(capture.invalidate(Code::CAPTURE_UNSUPPORTED)),
            None => Ok(()),
        }
    }

    /// The present end of a stream's operations, if it is captured.
    pub(crate) fn mark(&self, stream: u64) -> Outcome<Option<Mark>> {
        let Some(capture) = self.of(stream) else {
            return Ok(None);
        };
        capture.ensure_valid()?;
        Ok(Some(Mark {
            capture: capture.id,
            nodes: capture.frontier(stream).to_vec(),
        }))
    }

    /// Makes a stream wait for captured operations: it joins their capture.
    pub(crate) fn join(&mut self, stream: u64, mark: &Mark) -> Outcome {
        let own = self.of(stream).map(|capture| capture.id);
        let mut active = self.active.iter_mut();
        let Some(capture) = active.find(|capture| capture.id == mark.capture) else {
            return Err(Code::CAPTURED_EVENT);
        };
        capture.ensure_valid()?;
        if stream <= LAST_DEFAULT {
            return Err(capture.invalidate(Code::CAPTURE_IMPLICIT));
        }
        if own.is_some_and(|own| own != mark.capture) {
            let reason = capture.invalidate(Code::CAPTURE_MERGE);
            return self
                .ensure_uncaptured(stream)
                .and(Err(reason))
                .or(Err(reason));
        }
        let frontier = capture.streams.entry(stream).or_default();
        for node in &mark.nodes {
            if !frontier.contains(node) {
                frontier.push(*node);
            }
        }
        Ok(())
    }

    /// Makes a stream wait for work outside captures, which a captured stream cannot.
    pub(crate) fn ensure_may_wait(&mut self, stream: u64) -> Outcome {
        match self.of_mut(stream) {
            Some(capture) => Err(capture.invalidate(Code::CAPTURE_ISOLATION)),
            None => Ok(()),
        }
    }

    /// Invalidates the capture that an event was recorded in. Returns why the event cannot be asked for.
    pub(crate) fn refuse(&mut self, mark: &Mark) -> Code {
        let mut active = self.active.iter_mut();
        match active.find(|capture| capture.id == mark.capture) {
            Some(capture) => capture.invalidate(Code::CAPTURED_EVENT),
            None => Code::CAPTURED_EVENT,
        }
    }

    /// Ends the capture that began on a stream.
    fn take(&mut self, stream: u64) -> Outcome<Capture> {
        let capture = self.of_mut(stream).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(capture.invalidate(Code::CAPTURE_UNMATCHED));
        }
        if capture.thread != context::thread() && capture.mode != Mode::Relaxed {
            return Err(capture.invalidate(Code::CAPTURE_WRONG_THREAD));
        }
        let id = capture.id;
        let at = self.active.iter().position(|capture| capture.id == id);
        at.map(|at| self.active.swap_remove(at))
            .ok_or(Code::ILLEGAL_STATE)
    }
}

impl Sim {
    /// Begins to capture a stream into a graph, or into a new one, behind some of its nodes.
    pub(crate) fn begin_capture(
        &mut self,
        here: u32,
        stream: u64,
        mode: Mode,
        into: Option<(u64, Vec<u64>)>,
    ) -> Outcome {
        self.streams.get(here, stream)?;
        if stream <= LAST_DEFAULT {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        if self.captures.of(stream).is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        let (graph, after) = match into {
            None => (self.graphs.create(), None),
            Some((graph, after)) => {
                let nodes = self.graphs.nodes(graph)?;
                if !after.iter().all(|node| nodes.contains(node)) {
                    return Err(Code::INVALID_VALUE);
                }
                (graph, Some(after))
            }
        };
        self.captures.begin(stream, mode, graph, after);
        Ok(())
    }

    /// Ends a capture; returns its graph.
    pub(crate) fn end_capture(&mut self, here: u32, stream: u64) -> Outcome<u64> {
        self.streams.get(here, stream)?;
        let capture = self.captures.take(stream)?;
        let graph = capture.graph;
        let outcome = capture.ensure_valid().and_then(|()| {
            let ends = capture.streams.values().flatten().copied();
            if self.graphs.precede(graph, ends, capture.frontier(stream))? {
                Ok(graph)
            } else {
                Err(Code::CAPTURE_UNJOINED)
            }
        });
        if outcome.is_err() && capture.owns_graph {
            self.graphs.destroy(graph)?;
        }
        outcome
    }

    /// Makes an operation a node if its stream is captured; gives it back otherwise.
    pub(crate) fn capture(
        &mut self,
        stream: u64,
        operation: Operation,
    ) -> Outcome<Option<Operation>> {
        let Some(capture) = self.captures.of_mut(stream) else {
            return Ok(Some(operation));
        };
        capture.ensure_valid()?;
        let before = capture.frontier(stream).to_vec();
        let node = self.graphs.add(capture.graph, operation, before)?;
        capture.streams.insert(stream, vec![node]);
        Ok(None)
    }

    /// Fails if a device has a captured stream, which cannot be waited for.
    pub(crate) fn ensure_no_capture_on(&mut self, ordinal: u32) -> Outcome {
        let streams = &self.streams;
        let is_here = |&stream: &u64| {
            let found = streams.get(ordinal, stream);
            found.is_ok_and(|stream| stream.ordinal == ordinal)
        };
        let active = self.captures.active.iter_mut();
        active
            .filter(|capture| capture.streams.keys().any(is_here))
            .map(|capture| Err(capture.invalidate(Code::CAPTURE_UNSUPPORTED)))
            .fold(Ok(()), Outcome::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_say_who_may_make_unsafe_calls() {
        use Mode::{Global, Relaxed, ThreadLocal};
        let mut captures = Captures::default();
        let here = context::thread();
        for (of_capture, of_thread, same, expected) in [
            (Global, Global, true, true),
            (Global, Global, false, true),
            (Global, ThreadLocal, false, false),
            (Global, ThreadLocal, true, true),
            (ThreadLocal, Global, false, false),
            (ThreadLocal, Global, true, true),
            (Relaxed, Global, true, false),
            (Global, Relaxed, true, false),
        ] {
            captures.begin(0x100, of_capture, 1, None);
            let capture = captures.take(0x100).unwrap();
            let thread = if same { here } else { here + 1 };
            let what = (of_capture, of_thread, same);
            assert_eq!(capture.prohibits(thread, of_thread), expected, "{what:?}");
        }
    }
}
