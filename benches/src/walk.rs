//! A workload prepared for being replayed as fast as it goes: all of it in memory, ids as numbers of
//! slots.

use allocator::allocator::Allocator;
use allocator::driver::{DeviceAddr, StreamId};
use allocator::error::Error;
use workloads::op::{Answer, Op, Workload, WorkloadError};

/// One operation.
#[derive(Clone, Copy, Debug)]
enum Step {
    Malloc {
        slot: u32,
        bytes: u64,
        stream: StreamId,
    },
    Free {
        slot: u32,
    },
    RecordStream {
        slot: u32,
        stream: StreamId,
    },
}

/// A prepared workload. It ends with everything freed, so it can be walked again and again.
#[derive(Debug, Default)]
pub struct Walk {
    steps: Vec<Step>,
    slots: u32,
    mallocs: u64,
}

impl Walk {
    /// Prepares a workload.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn prepare(workload: &dyn Workload) -> Result<Self, WorkloadError> {
        let mut walk = Self::default();
        let mut slot_of = std::collections::HashMap::new();
        let mut vacant = Vec::new();
        workload.emit(&mut |op: Op<'_>| {
            match op {
                Op::Malloc {
                    id, bytes, stream, ..
                } => {
                    let slot = vacant.pop().unwrap_or_else(|| {
                        walk.slots += 1;
                        walk.slots - 1
                    });
                    slot_of.insert(id, slot);
                    walk.malloc(slot, bytes, StreamId::nth(stream));
                }
                Op::Free { id } => {
                    if let Some(slot) = slot_of.remove(&id) {
                        walk.free(slot);
                        vacant.push(slot);
                    }
                }
                Op::RecordStream { id, stream } => {
                    if let Some(&slot) = slot_of.get(&id) {
                        walk.record_stream(slot, StreamId::nth(stream));
                    }
                }
                // A walk times allocations and frees, of programs that are alone.
                Op::EmptyCache | Op::Around(_) | Op::Mark { .. } => {}
            }
            Ok(Answer::Done)
        })?;
        let mut left: Vec<u32> = slot_of.into_values().collect();
        left.sort_unstable();
        left.into_iter().for_each(|slot| walk.free(slot));
        Ok(walk)
    }

    /// A walk of no steps, with slots to be filled by hand.
    #[must_use]
    pub fn with_slots(slots: u32) -> Self {
        Self {
            slots,
            ..Self::default()
        }
    }

    /// Adds an allocation into an empty slot.
    pub fn malloc(&mut self, slot: u32, bytes: u64, stream: StreamId) {
        self.mallocs += 1;
        self.steps.push(Step::Malloc {
            slot,
            bytes,
            stream,
        });
    }

    /// Adds the free of what is in a slot.
    pub fn free(&mut self, slot: u32) {
        self.steps.push(Step::Free { slot });
    }

    /// Adds a use by another stream.
    pub fn record_stream(&mut self, slot: u32, stream: StreamId) {
        self.steps.push(Step::RecordStream { slot, stream });
    }

    /// Allocations in one walk; each is freed once.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.mallocs
    }

    /// Room for what is live.
    #[must_use]
    pub fn slots(&self) -> Vec<DeviceAddr> {
        vec![DeviceAddr::NULL; self.slots as usize]
    }

    /// Walks it once.
    ///
    /// # Errors
    /// If the allocator fails, for lack of memory too: walks are for devices with enough.
    pub fn run<A: Allocator + ?Sized>(
        &self,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
    ) -> Result<(), Error> {
        for step in &self.steps {
            match *step {
                Step::Malloc {
                    slot,
                    bytes,
                    stream,
                } => slots[slot as usize] = allocator.malloc(bytes, stream)?,
                Step::Free { slot } => allocator.free(slots[slot as usize])?,
                Step::RecordStream { slot, stream } => {
                    allocator.record_stream(slots[slot as usize], stream)?;
                }
            }
        }
        Ok(())
    }
}
