//! An allocator with a history of what was asked of it and of the device below.

use crate::allocator::Allocator;
use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::history::{Action, History, HistoryOptions, TraceEntry};
use crate::snapshot::SegmentInfo;
use crate::stats::DeviceStats;

/// Any allocator, with the entries of [`History`] that its calls alone tell: what was handed out, what
/// was given back, what failed. (The reference keeps a history of its own, which knows more.)
#[derive(Debug)]
pub struct Traced<A> {
    allocator: A,
    history: History,
}

impl<A: Allocator> Traced<A> {
    /// Records from now on.
    #[must_use]
    pub fn new(allocator: A, options: HistoryOptions) -> Self {
        let mut history = History::default();
        history.start(options);
        Self { allocator, history }
    }

    /// What happened.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    fn record(&mut self, action: Action, addr: DeviceAddr, size: u64, stream: StreamId) {
        let time_us = self.allocator.driver().now_us();
        self.history.record(TraceEntry {
            action,
            addr,
            size,
            stream,
            time_us,
        });
    }
}

impl<A: Allocator> Allocator for Traced<A> {
    type Driver = A::Driver;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let answer = self.allocator.malloc(bytes, stream);
        match &answer {
            Ok(addr) if !addr.is_null() => self.record(Action::Alloc, *addr, bytes, stream),
            Err(Error::OutOfMemory(error)) => {
                let free = DeviceAddr(error.device_free);
                self.record(Action::Oom, free, bytes, stream);
            }
            _ => {}
        }
        answer
    }

    /// The entry has neither the size nor the stream, which a free does not tell.
    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        let answer = self.allocator.free(addr);
        if answer.is_ok() && !addr.is_null() {
            self.record(Action::FreeRequested, addr, 0, StreamId::DEFAULT);
        }
        answer
    }

    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator.record_stream(addr, stream)
    }

    fn empty_cache(&mut self) -> Result<(), Error> {
        self.allocator.empty_cache()
    }

    fn stats(&self) -> &DeviceStats {
        self.allocator.stats()
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        self.allocator.segments()
    }

    fn check(&self) -> Result<(), Violation> {
        self.allocator.check()
    }

    fn driver(&self) -> &A::Driver {
        self.allocator.driver()
    }

    fn driver_mut(&mut self) -> &mut A::Driver {
        self.allocator.driver_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::hooks::limit::Limit;
    use crate::driver::sim::{GRANULARITY, SimConfig, SimDevice};
    use crate::driver::tap::Tap;
    use crate::managed::Managed;
    use crate::policy::direct::Direct;

    /// A policy under three adaptors, and none of them knows of another.
    #[test]
    fn adaptors_compose() {
        let page = GRANULARITY;
        let device = SimDevice::new(&SimConfig::default());
        let limited = Tap::over(device, Limit::new(2 * page, page));
        let counted = Managed::new("direct", Direct::default(), limited);
        let mut traced = Traced::new(counted, HistoryOptions::default());
        let first = traced.malloc(page, StreamId::DEFAULT).unwrap();
        assert!(traced.malloc(2 * page, StreamId::DEFAULT).is_err());
        traced.free(first).unwrap();
        let actions: Vec<Action> = traced.history().entries().map(|e| e.action).collect();
        assert_eq!(actions, [Action::Alloc, Action::Oom, Action::FreeRequested]);
        assert_eq!(traced.stats().num_ooms, 1);
        assert_eq!(traced.stats().reserved_bytes.all.peak.cast_unsigned(), page);
    }
}
