//! What the call stacks of the requests tell about the steps.
//!
//! The part of a stack outside of PyTorch and of any module's `forward` is its *path*, outermost frame first.
//! When a program loops, a frame of the path returns to a line that it has left. The outermost such frame
//! repeats the steps; layers repeat within a module. A backward pass has no Python frames, because
//! autograd's own threads run it.

use std::collections::HashMap;
use std::sync::Arc;

use coalesce_workloads::formats::snapshot::{Frame, Stack, StackId};

use super::repeats::SHORTEST;
use super::{FEWEST, StepSource};
use crate::diagnose::log::{Allocation, Log};
use crate::diagnose::recorded::RecordedRequests;

/// The fewest requests without Python frames that show a backward pass.
const BACKWARD: usize = 3;
/// A stack that occurs this often in a step belongs to repeated layers.
const LAYERS: u32 = 3;

/// The call stacks of a log's requests.
pub struct RequestStacks {
    /// The stack of each request; `None` if unknown.
    of: Vec<Option<StackId>>,
    outlines: Vec<Outline>,
    /// The frames of all paths as a tree; the first node is the root.
    nodes: Vec<Node>,
}

/// The properties of a stack.
#[derive(Clone, Default)]
struct Outline {
    /// The nodes of its path, outermost first.
    path: Vec<u32>,
    is_update: bool,
    calls_module: bool,
    is_backward: bool,
}

/// A frame of a path.
#[derive(Default)]
struct Node {
    parent: u32,
    /// None for the root.
    frame: Option<Arc<Frame>>,
}

/// A line of the program that several paths pass.
struct Line {
    node: u32,
    /// The requests at which it is reached from another line.
    visits: Vec<usize>,
}

impl RequestStacks {
    /// Examines the stacks of the requests in a log.
    #[must_use]
    pub(in crate::diagnose) fn new(recorded: Option<&RecordedRequests<'_>>, log: &Log) -> Self {
        let recording = recorded.map(|recorded| recorded.recording);
        let stack_of = |a: &Allocation| {
            let entry = recorded?.entry_of(a)?;
            recording?.entry_stacks.get(entry).copied()
        };
        let of = log.allocations.iter().map(stack_of).collect();
        let stacks = recording.map_or(&[][..], |recording| &recording.stacks);
        let mut tree = HashMap::new();
        let mut nodes = vec![Node::default()];
        let outlines = stacks.iter().map(|stack| {
            let mut outline = Outline::of(stack);
            let mut parent = 0;
            for frame in path(stack) {
                let key = (parent, &frame.filename, &frame.name, frame.line);
                parent = *tree.entry(key).or_insert_with(|| {
                    nodes.push(Node {
                        parent,
                        frame: Some(Arc::clone(frame)),
                    });
                    u32::try_from(nodes.len() - 1).unwrap_or(u32::MAX)
                });
                outline.path.push(parent);
            }
            outline
        });
        let outlines = outlines.collect();
        Self {
            of,
            outlines,
            nodes,
        }
    }

    /// The stack of a request; `None` if unknown.
    #[must_use]
    pub fn id(&self, request: usize) -> Option<StackId> {
        *self.of.get(request)?
    }

    /// The frames of a request's path, outermost first, as numbers; empty if its stack is unknown.
    #[must_use]
    pub fn path(&self, request: usize) -> &[u32] {
        let outline = self.outline(request);
        outline.map_or(&[], |outline| &outline.path)
    }

    /// The frame with a number.
    #[must_use]
    pub fn frame(&self, number: u32) -> Option<&Frame> {
        self.nodes.get(number as usize)?.frame.as_deref()
    }

    fn outline(&self, request: usize) -> Option<&Outline> {
        let id = self.id(request)?;
        self.outlines.get(id.0 as usize)
    }

    /// Whether a request can be one of a backward pass: its stack is unknown, or has no frames of the program.
    #[must_use]
    pub fn may_be_backward(&self, request: usize) -> bool {
        let outline = self.outline(request);
        outline.is_none_or(|outline| outline.is_backward)
    }

    /// The events of the first requests of the optimizer steps; of several optimizers, those of the first.
    #[must_use]
    pub fn updates(&self, log: &Log) -> Vec<u64> {
        let mut begins = Vec::new();
        let mut last: Option<usize> = None;
        let mut caller = None;
        for request in 0..self.of.len() {
            let Some(outline) = self.outline(request).filter(|outline| outline.is_update) else {
                continue;
            };
            if *caller.get_or_insert(&outline.path) != &outline.path {
                continue;
            }
            if last.is_none_or(|last| request - last > SHORTEST) {
                begins.extend(log.allocations.get(request).map(|a| a.born));
            }
            last = Some(request);
        }
        begins
    }

    /// The steps of a loop outside of any module, if they are proved: their source and the events at which
    /// they begin.
    #[must_use]
    pub fn steps(&self, log: &Log) -> Option<(StepSource, Vec<u64>)> {
        let deepest = self
            .outlines
            .iter()
            .map(|outline| outline.path.len())
            .max()?;
        let (line, begins) = (0..deepest).find_map(|depth| self.loop_at(depth))?;
        let complete = begins.windows(2);
        let all =
            |has: &dyn Fn(usize, usize) -> bool| complete.clone().all(|step| has(step[0], step[1]));
        let trains = all(&|start, end| self.trains(start, end));
        if !trains && !all(&|start, end| self.repeats_layers(start, end)) {
            return None;
        }
        let source = StepSource::Loop {
            place: self.frame(line)?.place(),
            trains,
        };
        let born = |request: &usize| log.allocations.get(*request).map(|a| a.born);
        Some((source, begins.iter().filter_map(born).collect()))
    }

    /// A loop in the frames at this depth: a line that is reached once in each repetition, and the requests
    /// at which it is reached. Its repetitions cover at least half of the program.
    fn loop_at(&self, depth: usize) -> Option<(u32, Vec<usize>)> {
        let mut last_line = vec![0_u32; self.nodes.len()];
        let mut last_request = vec![0_usize; self.nodes.len()];
        let mut visits: HashMap<u32, Vec<usize>> = HashMap::new();
        for request in 0..self.of.len() {
            let line = self.outline(request).and_then(|o| o.path.get(depth));
            let Some(&line) = line else { continue };
            let parent = self.nodes.get(line as usize)?.parent as usize;
            if std::mem::replace(last_line.get_mut(parent)?, line) != line {
                visits.entry(line).or_default().push(request);
            }
            *last_request.get_mut(parent)? = request;
        }
        let mut frames: HashMap<u32, Vec<Line>> = HashMap::new();
        for (node, visits) in visits {
            let parent = self.nodes.get(node as usize)?.parent;
            let lines = frames.entry(parent).or_default();
            lines.push(Line { node, visits });
        }
        let loops = frames.into_iter().filter_map(|(parent, lines)| {
            let line = once_per_repetition(lines, |line| {
                self.frame(line.node).map_or(0, |frame| frame.line)
            })?;
            let covered = last_request.get(parent as usize)? - line.visits.first()?;
            (covered * 2 >= self.of.len()).then_some((covered, line))
        });
        let (_, line) = loops.max_by_key(|(covered, line)| (*covered, line.node))?;
        Some((line.node, line.visits))
    }

    /// Whether some requests have a backward pass or an optimizer step among them.
    fn trains(&self, start: usize, end: usize) -> bool {
        let outlines = || (start..end).filter_map(|request| self.outline(request));
        let backward = outlines().filter(|outline| outline.is_backward).count();
        backward >= BACKWARD || outlines().any(|outline| outline.is_update)
    }

    /// Whether some requests repeat layers of a module.
    fn repeats_layers(&self, start: usize, end: usize) -> bool {
        let mut times: HashMap<StackId, u32> = HashMap::new();
        let mut last = None;
        for request in start..end {
            let id = self.id(request);
            let in_module = self
                .outline(request)
                .is_some_and(|outline| outline.calls_module);
            if let Some(id) = id.filter(|&id| in_module && last != Some(id)) {
                let times = times.entry(id).or_default();
                *times += 1;
                if *times >= LAYERS {
                    return true;
                }
            }
            last = id;
        }
        false
    }
}

/// The line that is reached once in each repetition of a frame's lines: among the lines reached as often as
/// most are, the first in the file.
fn once_per_repetition(lines: Vec<Line>, number: impl Fn(&Line) -> u64) -> Option<Line> {
    let mut repeated = lines;
    repeated.retain(|line| line.visits.len() >= FEWEST);
    let agreeing = |line: &Line| {
        let alike = repeated
            .iter()
            .filter(|other| other.visits.len() == line.visits.len());
        alike.count()
    };
    let key = |line: &Line| {
        let often = line.visits.len();
        (usize::MAX - agreeing(line), often, number(line), line.node)
    };
    let best = (0..repeated.len()).min_by_key(|&index| repeated.get(index).map(key))?;
    Some(repeated.swap_remove(best))
}

impl Outline {
    fn of(stack: &Stack) -> Self {
        let python = || stack.frames.iter().filter(|frame| frame.is_python());
        Self {
            path: Vec::new(),
            is_update: python().any(|frame| is_update(frame)),
            calls_module: python().any(|frame| is_module(frame)),
            is_backward: python().next_back().is_none_or(|outermost| {
                normalized(&outermost.filename).ends_with("torch/autograd/function.py")
            }),
        }
    }
}

/// The Python frames of a stack from the outermost to the first of PyTorch or of a module.
fn path(stack: &Stack) -> impl Iterator<Item = &Arc<Frame>> {
    let python = stack.frames.iter().rev().filter(|frame| frame.is_python());
    python.take_while(|frame| !is_module(frame) && (!frame.is_of_torch() || wraps(frame)))
}

fn normalized(file: &str) -> String {
    file.replace('\\', "/")
}

/// Whether a frame of PyTorch calls the program's own code: decorators and launchers.
fn wraps(frame: &Frame) -> bool {
    const WRAPPERS: [&str; 6] = [
        "torch/utils/_contextlib.py",
        "torch/autograd/grad_mode.py",
        "torch/multiprocessing/",
        "torch/distributed/run.py",
        "torch/distributed/elastic/",
        "torch/distributed/launcher/",
    ];
    let file = normalized(&frame.filename);
    WRAPPERS.iter().any(|wrapper| file.contains(wrapper))
}

fn is_module(frame: &Frame) -> bool {
    frame.name == "forward" || normalized(&frame.filename).ends_with("torch/nn/modules/module.py")
}

/// Whether a frame is in an optimizer step. PyTorch wraps `step` of every optimizer in `wrapper`.
fn is_update(frame: &Frame) -> bool {
    let file = normalized(&frame.filename);
    file.ends_with("torch/optim/optimizer.py") && frame.name == "wrapper"
        || file.contains("torch/optim/")
            && !file.ends_with("lr_scheduler.py")
            && frame.name == "step"
}

#[cfg(test)]
mod tests;
