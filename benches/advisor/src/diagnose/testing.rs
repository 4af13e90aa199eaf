//! Short workloads for tests.

pub mod case;

use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::history::{Action, TraceEntry};
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::{Program, Tensor};
use coalesce_workloads::formats::snapshot::Recording;
use coalesce_workloads::op::Workload;

use super::{Evidence, Subject};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// A workload written as a function.
pub fn written(run: impl Fn(&mut Program<'_>) + Send + Sync) -> impl Workload {
    coalesce_workloads::written::program("written", run)
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
        let workload = written(program);
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
