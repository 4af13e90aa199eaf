//! Replays an instance: allocates each buffer when its lifetime begins and frees it when that ends.

use super::{Instance, read_file};
use crate::formats::file::{FileError, InputFile};
use crate::formats::source::Source;
use crate::formats::stem;
use crate::op::{Op, Sink, Workload, WorkloadError};

/// The instance in a file, as a workload. Frees come before mallocs of the same time, each in the order of
/// the lines. The tag of a malloc is the id of the buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InstanceFile {
    name: String,
    instance: Instance,
    /// The time of each event, whether it is a malloc, and the index of its buffer.
    events: Vec<(u64, bool, usize)>,
}

impl InstanceFile {
    /// Reads an instance.
    ///
    /// # Errors
    /// [`FileError`] if the file cannot be read or is not an instance.
    pub fn open(source: impl Into<Source>) -> Result<Self, FileError> {
        Self::new(InputFile::open(source)?)
    }

    pub(in crate::formats) fn new(file: InputFile) -> Result<Self, FileError> {
        let name = stem(file.path());
        let instance = read_file(file)?;
        let buffers = instance.buffers.iter().enumerate();
        let ends = |(index, buffer): (usize, &_)| {
            let coalesce_alloc::placement::Buffer { lower, upper, .. } = *buffer;
            [(lower, true, index), (upper, false, index)]
        };
        let mut events: Vec<_> = buffers.flat_map(ends).collect();
        events.sort_unstable();
        Ok(Self {
            name,
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
