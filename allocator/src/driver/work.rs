//! Kernels that take time, so that memory is requested and freed while work is pending.

use std::collections::BTreeMap;

use super::{Driver, Status, StreamId};

/// The kernel that runs for some time: `(u64 ns)`.
pub const BUSY: &str = "coalesce_busy";

/// Source of the kernel, for the same GPUs and drivers as [`contents::PTX`](super::contents::PTX).
pub const PTX: &str = include_str!("work.ptx");

/// A kernel that only takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// The stream that runs it.
    pub stream: StreamId,
    /// Nanoseconds that it runs.
    pub ns: u64,
    /// Nanoseconds that the program takes on the host to submit it.
    pub host_ns: u64,
    /// When it is submitted, in nanoseconds on the clock of the simulated device. Hooks that delay calls add their clock.
    pub submitted_ns: u64,
}

/// A device that can run kernels.
pub trait Work: Driver {
    /// Submits a kernel to its stream, and returns after [`Kernel::host_ns`].
    ///
    /// # Errors
    /// If the device refuses the work.
    fn submit(&mut self, kernel: Kernel) -> Status;
}

/// When the work of each stream is over. The kernels of a stream run one after another, those of different streams at the
/// same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Nanoseconds on the clock at which the work of each stream is over.
    until_ns: BTreeMap<StreamId, u64>,
}

impl Timeline {
    /// Adds a kernel.
    pub(super) fn submit(&mut self, kernel: Kernel) {
        let until = self.until_ns.entry(kernel.stream).or_default();
        *until = kernel.submitted_ns.max(*until).saturating_add(kernel.ns);
    }

    /// Makes later work of a stream begin at `ns` or later.
    pub(super) fn delay(&mut self, stream: StreamId, ns: u64) {
        let until = self.until_ns.entry(stream).or_default();
        *until = ns.max(*until);
    }

    /// When the work of a stream is over.
    pub(super) fn until(&self, stream: StreamId) -> u64 {
        self.until_ns.get(&stream).copied().unwrap_or_default()
    }

    /// When all work is over.
    pub(super) fn over(&self) -> u64 {
        self.until_ns.values().copied().max().unwrap_or_default()
    }
}
