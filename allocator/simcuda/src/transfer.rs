//! Fills, copies and kernels as work of streams.
//!
//! Without contents (`FAKE_MEMORY` not set), a copy from a device reads zeros. Copies as small as a bool or a count
//! read what [`Reads`] holds, and a copy of what was just copied there reads that. No other operation accesses a device.
//! With contents, a fill or copy outside memory fails, as with a real driver.

use std::fmt;
use std::sync::Arc;

use crate::border::HostBytes;
use crate::contents::extents::Content;
use crate::contents::work::Work;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

/// The bytes that a copy reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) to: u64,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

/// What a program asks a stream to do: once, or with each launch of a graph.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Work on memory, or a kernel without effect.
    Work(Option<Work>),
    /// Copy from the host.
    CopyIn(Transfer),
    /// Copy to the host.
    CopyOut(Transfer),
    /// Record the event of a handle.
    RecordEvent(u64),
    /// Wait for the event of a handle.
    WaitForEvent(u64),
    /// Launch a graph.
    Graph(Arc<[Operation]>),
}

impl Operation {
    /// `CUgraphNodeType`.
    pub(crate) fn node_type(&self) -> i32 {
        match self {
            Self::Work(None | Some(Work::Check { .. } | Work::Find { .. })) => 0,
            Self::CopyIn(_) | Self::CopyOut(_) | Self::Work(Some(Work::Copy { .. })) => 1,
            Self::Work(Some(Work::Fill { .. })) => 2,
            Self::Graph(_) => 4,
            Self::WaitForEvent(_) => 6,
            Self::RecordEvent(_) => 7,
        }
    }
}

/// The largest copy to a device whose bytes are kept, without contents. `DistributedDataParallel` needs this: it copies the sizes
/// of its buckets to the device, broadcasts them, and reads them back.
const KEPT: u64 = 1 << 16;

/// What copies from a device without contents read.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// For a copy of one byte.
    pub(crate) bool: u8,
    /// For a copy of four or eight bytes, the sizes in which PyTorch reads how many elements a mask selects.
    pub(crate) count: u64,
    /// The address and the bytes of the last copy to a device; none once a kernel, a fill or another copy may have overwritten them.
    last: Option<(u64, Vec<u8>)>,
}

impl Reads {
    pub(crate) fn with_bool(bool: u8) -> Self {
        Self {
            bool,
            ..Self::default()
        }
    }

    /// The first bytes of what a copy reads. The rest are zeros.
    fn of(&self, bytes: u64) -> [u8; 8] {
        match bytes {
            1 => u64::from(self.bool),
            4 | 8 => self.count,
            _ => 0,
        }
        .to_le_bytes()
    }

    /// The bytes there, if they were just copied.
    fn just_copied(&self, addr: u64, room: usize) -> Option<&[u8]> {
        let (start, copied) = self.last.as_ref()?;
        let skipped = usize::try_from(addr.checked_sub(*start)?).ok()?;
        copied.get(skipped..)?.get(..room)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.node_type() {
            0 => "KERNEL",
            1 => "MEMCPY",
            2 => "MEMSET",
            4 => "GRAPH",
            6 => "EVENT_WAIT",
            _ => "EVENT_RECORD",
        })
    }
}

impl Sim {
    /// Has a stream do an operation, or makes it a node while the stream is captured.
    pub(crate) fn submit(&mut self, here: u32, stream: u64, operation: Operation) -> Outcome {
        self.streams.get(here, stream)?;
        match self.capture(stream, operation)? {
            Some(operation) => self.perform(here, stream, &operation),
            None => Ok(()),
        }
    }

    fn perform(&mut self, here: u32, stream: u64, operation: &Operation) -> Outcome {
        self.events.count_operation(operation);
        if matches!(operation, Operation::Work(_)) {
            self.take_kernels(here)?;
            self.reads.last = None;
        }
        match *operation {
            Operation::Work(None) => self.settle(),
            Operation::Work(Some(ref work)) => {
                let stream = self.streams.resolve(here, stream)?;
                if let Some(contents) = &mut self.contents {
                    contents.submit(stream, work.clone());
                }
                self.settle()
            }
            Operation::CopyIn(transfer) => self.copy_in_now(here, stream, transfer),
            Operation::CopyOut(transfer) => self.copy_out_now(here, stream, transfer),
            Operation::RecordEvent(event) => self.record_event_now(here, event, stream),
            Operation::WaitForEvent(event) => self.wait_event_now(here, stream, event),
            Operation::Graph(ref operations) => operations
                .iter()
                .try_for_each(|operation| self.perform(here, stream, operation)),
        }
    }

    /// Fails unless the memory of a fill or copy exists when it is requested.
    fn ensure_memory(&self, addr: u64, bytes: u64) -> Outcome {
        match &self.contents {
            Some(contents) if !contents.covers(addr, bytes) => Err(Code::INVALID_VALUE),
            _ => Ok(()),
        }
    }

    /// Writes a pattern over `bytes`.
    pub(crate) fn fill(
        &mut self,
        here: u32,
        stream: u64,
        addr: u64,
        pattern: [u8; 4],
        bytes: u64,
    ) -> Outcome {
        self.ensure_memory(addr, bytes)?;
        let content = Content::Pattern {
            bytes: pattern,
            skipped: 0,
        };
        let work = Work::Fill {
            addr,
            bytes,
            content,
        };
        self.submit(here, stream, Operation::Work(Some(work)))
    }

    /// Copies from the host.
    pub(crate) fn copy_in(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        self.ensure_memory(transfer.to, transfer.bytes)?;
        self.submit(here, stream, Operation::CopyIn(transfer))
    }

    /// Copies the present bytes from the host, even if the stream does the copy later.
    fn copy_in_now(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        let Transfer { to, from, bytes } = transfer;
        if self.contents.is_none() && bytes > KEPT {
            self.reads.last = None;
            return Ok(());
        }
        let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
        let copied = HostBytes::at(from, room)?.read();
        if self.contents.is_none() {
            self.reads.last = Some((to, copied));
            return Ok(());
        }
        let content = Content::Bytes {
            bytes: Arc::from(copied),
            skipped: 0,
        };
        let work = Work::Fill {
            addr: to,
            bytes,
            content,
        };
        self.perform(here, stream, &Operation::Work(Some(work)))
    }

    /// Copies to the host.
    pub(crate) fn copy_out(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        self.ensure_memory(transfer.from, transfer.bytes)?;
        self.submit(here, stream, Operation::CopyOut(transfer))
    }

    /// Copies to the host after finishing the work of the stream, because the destination may not live
    /// longer than the call.
    fn copy_out_now(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        let Transfer { to, from, bytes } = transfer;
        let stream = self.streams.resolve(here, stream)?;
        let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
        let mut host = HostBytes::at(to, room)?;
        let Some(contents) = &mut self.contents else {
            match self.reads.just_copied(from, room) {
                Some(copied) => host.write(copied),
                None => {
                    host.set(0);
                    host.write(&self.reads.of(bytes));
                }
            }
            return Ok(());
        };
        let read = contents.read(stream, from, bytes);
        self.settle()?;
        host.write(&read?);
        Ok(())
    }

    /// Copies between devices.
    pub(crate) fn copy_within(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        let Transfer { to, from, bytes } = transfer;
        self.ensure_memory(to, bytes)?;
        self.ensure_memory(from, bytes)?;
        let work = Work::Copy { to, from, bytes };
        self.submit(here, stream, Operation::Work(Some(work)))
    }

    /// Copies between any two places.
    pub(crate) fn copy(&mut self, here: u32, stream: u64, transfer: Transfer) -> Outcome {
        match [transfer.to, transfer.from].map(|addr| self.is_device_address(addr)) {
            [true, true] => self.copy_within(here, stream, transfer),
            [true, false] => self.copy_in(here, stream, transfer),
            [false, true] => self.copy_out(here, stream, transfer),
            [false, false] => copy_on_host(transfer),
        }
    }
}

/// Copies within host memory.
pub(crate) fn copy_on_host(transfer: Transfer) -> Outcome {
    let Transfer { to, from, bytes } = transfer;
    let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    HostBytes::at(to, room)?.copy_from(&HostBytes::at(from, room)?);
    Ok(())
}
