//! Fills, copies and kernels as work of streams.
//!
//! Without contents (`FAKE_MEMORY` not set) a copy from a device reads zeros, a copy of a single byte
//! reads `FAKE_BOOL`, and nothing else accesses a device. With contents, a fill or copy outside memory
//! fails, as with a real driver.

use std::sync::Arc;

use crate::border::HostBytes;
use crate::contents::extents::Content;
use crate::contents::work::Work;
use crate::errors::{Code, Outcome};
use crate::state::Sim;

impl Sim {
    /// Queues work on a stream.
    pub(crate) fn submit(&mut self, here: u32, stream: u64, work: Option<Work>) -> Outcome {
        let stream = self.streams.resolve(here, stream)?;
        if let (Some(contents), Some(work)) = (&mut self.contents, work) {
            contents.submit(stream, work);
        }
        self.settle()
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
        self.submit(here, stream, Some(work))
    }

    /// Copies from the host. Captures the present bytes, even if the stream does the copy later.
    pub(crate) fn copy_in(
        &mut self,
        here: u32,
        stream: u64,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Outcome {
        if self.contents.is_none() {
            return Ok(());
        }
        let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
        self.ensure_memory(to, bytes)?;
        let copied = HostBytes::at(from, room)?.read();
        let content = Content::Bytes {
            bytes: Arc::from(copied),
            skipped: 0,
        };
        let work = Work::Fill {
            addr: to,
            bytes,
            content,
        };
        self.submit(here, stream, Some(work))
    }

    /// Copies to the host after finishing the work of the stream, because the destination may not live
    /// longer than the call.
    pub(crate) fn copy_out(
        &mut self,
        here: u32,
        stream: u64,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Outcome {
        let stream = self.streams.resolve(here, stream)?;
        let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
        self.ensure_memory(from, bytes)?;
        let mut host = HostBytes::at(to, room)?;
        let Some(contents) = &mut self.contents else {
            host.set(if bytes == 1 { self.byte } else { 0 });
            return Ok(());
        };
        let read = contents.read(stream, from, bytes);
        self.settle()?;
        host.write(&read?);
        Ok(())
    }

    /// Copies between devices.
    pub(crate) fn copy_within(
        &mut self,
        here: u32,
        stream: u64,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Outcome {
        self.ensure_memory(to, bytes)?;
        self.ensure_memory(from, bytes)?;
        self.submit(here, stream, Some(Work::Copy { to, from, bytes }))
    }

    /// Copies between any two places.
    pub(crate) fn copy(
        &mut self,
        here: u32,
        stream: u64,
        to: u64,
        from: u64,
        bytes: u64,
    ) -> Outcome {
        match (self.is_device_address(to), self.is_device_address(from)) {
            (true, true) => self.copy_within(here, stream, to, from, bytes),
            (true, false) => self.copy_in(here, stream, to, from, bytes),
            (false, true) => self.copy_out(here, stream, to, from, bytes),
            (false, false) => copy_on_host(to, from, bytes),
        }
    }
}

/// Copies within host memory.
pub(crate) fn copy_on_host(to: u64, from: u64, bytes: u64) -> Outcome {
    let room = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    HostBytes::at(to, room)?.copy_from(&HostBytes::at(from, room)?);
    Ok(())
}
