//! An instance as a workload: a program that allocates each buffer when it begins to live.

use std::path::Path;

use super::{Instance, read};
use crate::formats::trace::{TraceError, name_of};
use crate::op::{Op, Sink, Workload, WorkloadError};

/// The instance in a file. At one moment frees come before mallocs, each in the order of the lines; what
/// a buffer is called is the tag of its malloc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceFile {
    name: String,
    instance: Instance,
    /// The time of each event, whether it is a malloc, and the number of its buffer.
    events: Vec<(u64, bool, usize)>,
}

impl InstanceFile {
    /// Reads an instance.
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be read or is no instance.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let instance = read(path)?;
        let buffers = instance.buffers.iter().enumerate();
        let ends = |(index, buffer): (usize, &_)| {
            let coalesce_alloc::placement::Buffer { lower, upper, .. } = *buffer;
            [(lower, true, index), (upper, false, index)]
        };
        let mut events: Vec<_> = buffers.flat_map(ends).collect();
        events.sort_unstable();
        Ok(Self {
            name: name_of(path),
            instance,
            events,
        })
    }
}

impl Workload for InstanceFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn emit(&self, sink: &mut dyn Sink) -> Result<(), WorkloadError> {
        for &(_, is_malloc, index) in &self.events {
            let id = index as u64;
            sink.op(if is_malloc {
                Op::Malloc {
                    id,
                    bytes: self.instance.buffers[index].size,
                    stream: 0,
                    tag: &self.instance.ids[index],
                }
            } else {
                Op::Free { id }
            })?;
        }
        Ok(())
    }
}
