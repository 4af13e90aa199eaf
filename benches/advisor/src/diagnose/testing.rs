//! Short workloads for tests.

pub mod case;

use std::sync::Arc;

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::{Program, Tensor};
use coalesce_workloads::formats::snapshot::{Frame, Recording, Stack, StackId};
use coalesce_workloads::op::{Sink, Workload, WorkloadError};

use super::{Evidence, Subject};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// A workload written as a function.
pub struct Written<F>(pub F);

impl<F: Fn(&mut Program<'_>) + Send + Sync> Workload for Written<F> {
    fn name(&self) -> &'static str {
        "written"
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        let mut program = Program::new(sink);
        (self.0)(&mut program);
        program.finish()
    }
}

/// The settings string, the device's capacity in bytes, and the recording.
pub struct Scene<'a>(pub &'a str, pub u64, pub Option<&'a Recording>);

/// The default settings on a roomy device.
pub const ROOMY: Scene<'_> = Scene::with_conf("");

impl<'a> Scene<'a> {
    /// A roomy device.
    pub const fn with_conf(conf: &'a str) -> Self {
        Self(conf, 80 * GIB, None)
    }

    /// A roomy device with a recording under the default settings.
    pub const fn recorded(recording: &'a Recording) -> Self {
        Self("", 80 * GIB, Some(recording))
    }

    /// Gathers the evidence of a workload and passes it to `look`.
    pub fn gather<T>(
        &self,
        program: impl Fn(&mut Program<'_>) + Send + Sync,
        look: impl Fn(&Evidence<'_>) -> T,
    ) -> T {
        self.gather_under(None, program, look)
    }

    /// The same for a process that may reserve no more than `limit` bytes.
    pub fn gather_under<T>(
        &self,
        limit: Option<u64>,
        program: impl Fn(&mut Program<'_>) + Send + Sync,
        look: impl Fn(&Evidence<'_>) -> T,
    ) -> T {
        let workload = Written(program);
        let evidence = Evidence::gather(Subject {
            workload: &workload,
            recording: self.2,
            conf: self.0,
            conditions: ReplayConditions {
                limit,
                ..ReplayConditions::on(self.1)
            },
        });
        look(&evidence.unwrap())
    }
}

/// Several tensors of the same size.
pub fn several(program: &mut Program<'_>, number: u64, bytes: u64) -> Vec<Tensor> {
    (0..number)
        .map(|_| program.alloc(bytes, "several"))
        .collect()
}

/// Tensors that live until the program ends.
pub fn hold(program: &mut Program<'_>, number: u64, bytes: u64) {
    for tensor in several(program, number, bytes) {
        program.hold(tensor);
    }
}

/// Several tensors that are freed together.
pub fn burst(program: &mut Program<'_>, number: u64, bytes: u64) {
    let tensors = several(program, number, bytes);
    program.free_all(tensors);
}

/// A program with the call stacks of its requests.
pub struct Traced {
    /// The stack of each request, the bytes, and whether the tensor stays.
    requests: Vec<(Vec<Arc<Frame>>, u64, bool)>,
}

impl Traced {
    pub const fn new() -> Self {
        Self {
            requests: Vec::new(),
        }
    }

    /// Requests a tensor that stays or is freed at once. The stack is `FILE:LINE FUNCTION`, outermost first,
    /// separated by `>`; empty in the backward pass.
    pub fn request(&mut self, stack: &str, bytes: u64, stays: bool) {
        let mut frames: Vec<_> = stack
            .split(" > ")
            .filter_map(|frame| {
                let (place, name) = frame.split_once(' ')?;
                let (filename, line) = place.rsplit_once(':')?;
                Some(Arc::new(Frame {
                    name: name.to_owned(),
                    filename: filename.to_owned(),
                    line: line.parse().ok()?,
                }))
            })
            .collect();
        frames.reverse();
        self.requests.push((frames, bytes, stays));
    }

    /// Gathers the evidence and passes it to `look`.
    pub fn gather<T>(&self, look: impl Fn(&Evidence<'_>) -> T) -> T {
        let entries: Vec<_> = self
            .requests
            .iter()
            .map(|&(_, bytes, _)| (Action::Alloc, 0, bytes))
            .collect();
        let stacks = self.requests.iter().map(|(frames, ..)| Stack {
            frames: frames.clone(),
        });
        let mut all = vec![Stack::default()];
        let mut ids = Vec::new();
        for stack in stacks {
            let known = all.iter().position(|other| *other == stack);
            let id = known.unwrap_or(all.len());
            if known.is_none() {
                all.push(stack);
            }
            ids.push(StackId(u32::try_from(id).unwrap()));
        }
        let recording = Recording {
            stacks: all,
            entry_stacks: ids,
            ..recording(&entries)
        };
        let program = |program: &mut Program<'_>| {
            for &(_, bytes, stays) in &self.requests {
                if stays {
                    hold(program, 1, bytes)
                } else {
                    program.scratch(bytes, "several")
                }
            }
        };
        Scene::recorded(&recording).gather(program, look)
    }
}

/// A recording that consists of entries alone: action, address, bytes.
pub fn recording(entries: &[(Action, u64, u64)]) -> Recording {
    let entry = |&(action, addr, size): &(Action, u64, u64)| TraceEntry {
        action,
        addr: DeviceAddr(addr),
        size,
        stream: StreamId::DEFAULT,
        time_us: 0,
    };
    Recording {
        entries: entries.iter().map(entry).collect(),
        ..Recording::default()
    }
}
