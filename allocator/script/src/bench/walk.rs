//! The walk over the timed operations of a script.

use coalesce_alloc::Shared;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;

use super::Allocator;
use crate::{Op, RunError, Script};

/// Requests of a run, and failed requests among them.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) allocations: u64,
    pub(super) ooms: u64,
}

/// A timed operation. Small, so that walking the script costs little.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Malloc { id: u32, stream: u16, bytes: u64 },
    Free { id: u32 },
    RecordStream { id: u32, stream: u16 },
    HoldEvents(bool),
    CompleteEvents { stream: u16, count: u64 },
    CompleteAllEvents,
    EmptyCache,
    SetMemoryFraction(f64),
}

impl Step {
    /// The operations of a script, without printing and rare ones.
    pub(super) fn timed(script: &Script) -> Vec<Self> {
        script.ops().iter().filter_map(Self::of).collect()
    }

    /// An operation, unless it is not timed.
    fn of(op: &Op) -> Option<Self> {
        // Streams beyond the first 65,536 share their places.
        let short = |stream: u32| stream as u16;
        match *op {
            Op::Malloc { id, bytes, stream } => Some(Self::Malloc {
                id,
                stream: short(stream),
                bytes,
            }),
            Op::Free { id } => Some(Self::Free { id }),
            Op::RecordStream { id, stream } => Some(Self::RecordStream {
                id,
                stream: short(stream),
            }),
            Op::HoldEvents(hold) => Some(Self::HoldEvents(hold)),
            Op::CompleteEvents { stream, count } => Some(match stream {
                Some(stream) => Self::CompleteEvents {
                    stream: short(stream),
                    count,
                },
                None => Self::CompleteAllEvents,
            }),
            Op::EmptyCache => Some(Self::EmptyCache),
            Op::SetMemoryFraction(fraction) => Some(Self::SetMemoryFraction(fraction)),
            _ => None,
        }
    }
}

/// Access to the allocator for one step.
pub(super) trait Access {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R;

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.with(|allocator| allocator.free(addr))
    }
}

/// An allocator of one thread.
impl Access for &mut Allocator {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R {
        call(self)
    }
}

/// An allocator behind a lock, which each step takes.
impl Access for &Shared<Allocator> {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R {
        call(&mut self.lock())
    }
}

/// Replays a script.
#[derive(Clone, Copy)]
pub(super) struct Walker<'a> {
    pub(super) script: &'a Script,
    pub(super) steps: &'a [Step],
    pub(super) walks: usize,
}

/// The address of each id; null if it is not live.
pub(super) type Live = Vec<DeviceAddr>;

impl Walker<'_> {
    pub(super) fn nothing_live(self) -> Live {
        vec![DeviceAddr::NULL; self.script.ids().len()]
    }

    /// Performs every step. A function of its own, so that profilers can tell it from the rest.
    #[inline(never)]
    pub(super) fn walk(
        self,
        stream_offset: u16,
        live: &mut [DeviceAddr],
        access: &mut impl Access,
    ) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let stream = |number: u16| StreamId::nth(number.into());
        for _ in 0..self.walks {
            for (at, &step) in self.steps.iter().enumerate() {
                match step {
                    Step::Malloc {
                        id,
                        bytes,
                        stream: number,
                    } => {
                        let place = &mut live[id as usize];
                        if !place.is_null() {
                            return Err(self.already_live(at, id));
                        }
                        tally.allocations += 1;
                        let stream = stream(number.wrapping_add(stream_offset));
                        match access.with(|allocator| allocator.raw_malloc(bytes, stream)) {
                            Ok(addr) => *place = addr,
                            Err(error) if error.is_out_of_memory() => tally.ooms += 1,
                            Err(error) => return Err(error.into()),
                        }
                    }
                    Step::Free { id } => {
                        access.free(std::mem::take(&mut live[id as usize]))?;
                    }
                    Step::RecordStream { id, stream: number } => {
                        let addr = live[id as usize];
                        access.with(|allocator| allocator.record_stream(addr, stream(number)))?;
                    }
                    Step::CompleteEvents {
                        stream: number,
                        count,
                    } => access.with(|allocator| {
                        let streams = allocator.driver_mut().streams_mut();
                        streams.complete(stream(number), count);
                    }),
                    Step::CompleteAllEvents => {
                        access.with(|allocator| {
                            allocator.driver_mut().streams_mut().complete_all();
                        });
                    }
                    Step::HoldEvents(hold) => {
                        access.with(|allocator| {
                            allocator.driver_mut().streams_mut().set_hold(hold);
                        });
                    }
                    Step::EmptyCache => access.with(Allocator::empty_cache)?,
                    Step::SetMemoryFraction(fraction) => {
                        access.with(|allocator| allocator.set_memory_fraction(fraction))?;
                    }
                }
            }
        }
        Ok(tally)
    }

    /// Step `at` allocates under the id of a live allocation.
    fn already_live(self, at: usize, id: u32) -> anyhow::Error {
        let ops = self.script.ops().iter().enumerate();
        let mut timed = ops.filter(|(_, op)| Step::of(op).is_some());
        let op = timed.nth(at).map_or(0, |(op, _)| op);
        let id = self.script.ids()[id as usize].clone();
        RunError::AlreadyLive { op, id }.into()
    }
}
