//! A workload prepared for replay at full speed: operations in memory, ids replaced by slot numbers.

use std::time::Instant;

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::{DeviceAddr, StreamId};
use coalesce_alloc::error::Error;
use coalesce_workloads::op::{Answer, Op, Workload, WorkloadError};

use crate::measure::deadline::Deadline;
use crate::timing::yardstick::Yardstick;

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

/// What an operation uses from then on.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Bytes of a new block; 0 for a block that was allocated before.
    pub bytes: u64,
    /// The stream that uses it.
    pub stream: StreamId,
}

impl Step {
    /// What a kernel can use after the operation; `None` after a free.
    fn used(self) -> Option<Used> {
        match self {
            Self::Malloc { bytes, stream, .. } => Some(Used { bytes, stream }),
            Self::RecordStream { stream, .. } => Some(Used { bytes: 0, stream }),
            Self::Free { .. } => None,
        }
    }
}

/// A prepared workload. It frees all blocks at its end, so that it can be repeated.
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
    /// If the workload cannot be read.
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
                // A walk times mallocs and frees only.
                Op::EmptyCache
                | Op::Pool(_)
                | Op::Limit { .. }
                | Op::Surroundings(_)
                | Op::Mark { .. } => {}
            }
            Ok(Answer::Done)
        })?;
        let mut left: Vec<u32> = slot_of.into_values().collect();
        left.sort_unstable();
        left.into_iter().for_each(|slot| walk.free(slot));
        Ok(walk)
    }

    fn malloc(&mut self, slot: u32, bytes: u64, stream: StreamId) {
        self.mallocs += 1;
        self.steps.push(Step::Malloc {
            slot,
            bytes,
            stream,
        });
    }

    fn free(&mut self, slot: u32) {
        self.steps.push(Step::Free { slot });
    }

    fn record_stream(&mut self, slot: u32, stream: StreamId) {
        self.steps.push(Step::RecordStream { slot, stream });
    }

    /// This walk with that many allocations: repeated, or cut short. It frees all blocks at its end as well.
    #[must_use]
    pub fn of_pairs(&self, pairs: u64) -> Self {
        let mut walk = Self {
            slots: self.slots,
            ..Self::default()
        };
        let mut is_live = vec![false; self.slots as usize];
        for &step in self.steps.iter().cycle() {
            match step {
                Step::Malloc { .. } if walk.mallocs == pairs => break,
                Step::Malloc { slot, .. } => {
                    walk.mallocs += 1;
                    is_live[slot as usize] = true;
                }
                Step::Free { slot } => is_live[slot as usize] = false,
                Step::RecordStream { .. } => {}
            }
            walk.steps.push(step);
        }
        let live = (0..self.slots).filter(|&slot| is_live[slot as usize]);
        live.for_each(|slot| walk.free(slot));
        walk
    }

    /// Whether all operations are on the default stream.
    #[must_use]
    pub fn is_of_one_stream(&self) -> bool {
        self.steps.iter().all(|step| match *step {
            Step::Malloc { stream, .. } | Step::RecordStream { stream, .. } => {
                stream == StreamId::DEFAULT
            }
            Step::Free { .. } => true,
        })
    }

    /// Number of allocations in one walk; each is freed once.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.mallocs
    }

    /// Slots for live blocks.
    #[must_use]
    pub fn slots(&self) -> Vec<DeviceAddr> {
        vec![DeviceAddr::NULL; self.slots as usize]
    }

    /// Runs one walk.
    ///
    /// # Errors
    /// If the allocator fails, including out of memory.
    pub fn run<A: Allocator + ?Sized>(
        &self,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
    ) -> Result<(), Error> {
        Part(&self.steps).run(allocator, slots)
    }

    /// The walk in parts of `operations` operations. The last part can be shorter.
    ///
    /// # Panics
    /// If `operations` is 0.
    pub fn parts(&self, operations: usize) -> impl Iterator<Item = Part<'_>> {
        self.steps.chunks(operations).map(Part)
    }

    /// Runs one walk and times each call. After each call, `after` receives the allocator and what the call uses from then
    /// on. Stops at the deadline. All blocks are freed in any case.
    ///
    /// # Errors
    /// As [`Walk::run`], and those of `after`.
    pub fn run_timed<A: Allocator + ?Sized>(
        &self,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
        times: &mut Times,
        until: Deadline,
        mut after: impl FnMut(&mut A, Option<Used>) -> Result<(), Error>,
    ) -> Result<Ended, Error> {
        let mut pairs = 0;
        for step in &self.steps {
            let begun = Instant::now();
            let (done, of) = match *step {
                Step::Malloc {
                    slot,
                    bytes,
                    stream,
                } => {
                    pairs += 1;
                    let placed = allocator
                        .malloc(bytes, stream)
                        .map(|addr| slots[slot as usize] = addr);
                    (placed, Some(&mut times.malloc))
                }
                Step::Free { slot } => {
                    let addr = std::mem::take(&mut slots[slot as usize]);
                    (allocator.free(addr), Some(&mut times.free))
                }
                Step::RecordStream { slot, stream } => {
                    let addr = slots[slot as usize];
                    (allocator.record_stream(addr, stream), None)
                }
            };
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if let Err(error) = done.and_then(|()| after(allocator, step.used())) {
                free_all(allocator, slots)?;
                return Err(error);
            }
            of.into_iter().for_each(|times| times.push(ns));
            if until.has_passed() && pairs < self.mallocs {
                free_all(allocator, slots)?;
                return Ok(Ended::Early { pairs });
            }
        }
        Ok(Ended::Whole)
    }
}

/// Successive operations of a walk. The parts of a walk are run in order.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a>(&'a [Step]);

impl Part<'_> {
    /// Runs the operations.
    ///
    /// # Errors
    /// As [`Walk::run`].
    pub fn run<A: Allocator + ?Sized>(
        self,
        allocator: &mut A,
        slots: &mut [DeviceAddr],
    ) -> Result<(), Error> {
        for step in self.0 {
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

    /// Runs the same mallocs and frees on the yardstick.
    pub fn run_yardstick(self, yardstick: &mut Yardstick) {
        for step in self.0 {
            match *step {
                Step::Malloc { slot, bytes, .. } => yardstick.malloc(slot as usize, bytes),
                Step::Free { slot } => yardstick.free(slot as usize),
                Step::RecordStream { .. } => {}
            }
        }
    }
}

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Complete.
    Whole,
    /// Stopped at the deadline.
    Early {
        /// Allocations made before that.
        pairs: u64,
    },
}

/// Nanoseconds of each call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Allocations.
    pub malloc: Vec<u64>,
    /// Frees.
    pub free: Vec<u64>,
}

/// Frees all blocks in the slots.
fn free_all<A: Allocator + ?Sized>(
    allocator: &mut A,
    slots: &mut [DeviceAddr],
) -> Result<(), Error> {
    let mut live = slots.iter_mut().filter(|addr| !addr.is_null());
    live.try_for_each(|addr| allocator.free(std::mem::take(addr)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coalesce_alloc::PyTorch;
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::settings::Settings;
    use coalesce_workloads::written::listed;

    use super::*;
    use crate::timing::shapes;

    #[test]
    fn a_walk_of_another_length_frees_all_blocks() {
        let shape = shapes::find("record_stream_4_streams", None);
        let whole = Walk::prepare(&*shape.unwrap().unwrap()).unwrap();
        for pairs in [1, 500, whole.pairs(), whole.pairs() + 500] {
            let walk = whole.of_pairs(pairs);
            let device = SimDevice::new(&SimConfig::with_capacity(1 << 40));
            let mut allocator = PyTorch::new(device, Settings::default());
            for walks in 1..=2 {
                walk.run(&mut allocator, &mut walk.slots()).unwrap();
                let blocks = allocator.stats().allocation.all();
                assert_eq!(blocks.allocated as u64, walks * pairs);
                assert_eq!(blocks.current, 0);
            }
        }
    }

    /// A few operations of each kind, some of them on blocks that do not exist.
    fn mixed() -> Walk {
        let on_stream_1 = Op::Malloc {
            id: 80,
            bytes: 2 << 20,
            stream: 1,
            tag: "",
        };
        let ops = vec![
            Op::malloc(70, 1 << 20),
            on_stream_1,
            Op::RecordStream { id: 70, stream: 2 },
            Op::RecordStream { id: 99, stream: 2 },
            Op::Free { id: 70 },
            Op::Free { id: 99 },
            Op::malloc(90, 3 << 20),
            Op::malloc(60, 4 << 20),
            Op::EmptyCache,
            Op::Mark { tag: "step" },
        ];
        Walk::prepare(&listed("mixed", ops)).unwrap()
    }

    /// The number of a stream.
    fn of(stream: StreamId) -> u32 {
        (0..9).find(|&n| StreamId::nth(n) == stream).unwrap()
    }

    /// The steps, for short.
    fn steps(walk: &Walk) -> String {
        let step = |step: &Step| match *step {
            Step::Malloc {
                slot,
                bytes,
                stream,
            } => format!("{slot}:{}@{} ", bytes >> 20, of(stream)),
            Step::Free { slot } => format!("-{slot} "),
            Step::RecordStream { slot, stream } => format!("{slot}@{} ", of(stream)),
        };
        walk.steps.iter().map(step).collect()
    }

    #[test]
    fn slots_are_used_again_and_what_is_left_is_freed_in_their_order() {
        let walk = mixed();
        assert_eq!(steps(&walk), "0:1@0 1:2@1 0@2 -0 0:3@0 2:4@0 -0 -1 -2 ");
        assert_eq!((walk.pairs(), walk.slots().len()), (4, 3));
        assert!(!walk.is_of_one_stream());
        assert_eq!(steps(&walk.of_pairs(1)), "0:1@0 -0 ");
        let longer = "0:1@0 1:2@1 0@2 -0 0:3@0 2:4@0 -0 -1 -2 0:1@0 1:2@1 0@2 -0 -1 ";
        assert_eq!(steps(&walk.of_pairs(6)), longer);
        assert_eq!(walk.of_pairs(6).pairs(), 6);
        assert!(walk.of_pairs(1).is_of_one_stream());
        let parts: Vec<usize> = walk.parts(4).map(|part| part.0.len()).collect();
        assert_eq!(parts, [4, 4, 1]);
    }

    fn allocator(capacity: u64) -> PyTorch<SimDevice> {
        let device = SimDevice::new(&SimConfig::with_capacity(capacity));
        PyTorch::new(device, Settings::default())
    }

    /// Without `record_stream`, a benchmark of several streams would leave out the cost of the events.
    #[test]
    fn a_block_used_on_another_stream_waits_for_an_event() {
        let walk = mixed();
        let mut allocator = allocator(1 << 30);
        walk.run(&mut allocator, &mut walk.slots()).unwrap();
        let calls = allocator.driver().counts();
        assert_eq!(calls.of(CallKind::RecordEvent), 1);
    }

    /// How a timed walk ends, the number of times, and what each call uses.
    fn timed(
        walk: &Walk,
        capacity: u64,
        limit: Option<Duration>,
        after: impl Fn(usize) -> Result<(), Error>,
    ) -> (Result<Ended, Error>, [usize; 2], String) {
        let mut allocator = allocator(capacity);
        let (mut slots, mut times) = (walk.slots(), Times::default());
        let mut all = Vec::new();
        let until = Deadline::after(limit);
        let ended = walk.run_timed(&mut allocator, &mut slots, &mut times, until, |_, used| {
            all.push(used.map_or_else(
                || "-".to_owned(),
                |used| format!("{}@{}", used.bytes >> 20, of(used.stream)),
            ));
            after(all.len())
        });
        assert_eq!(allocator.stats().allocation.all().current, 0);
        assert!(slots.iter().all(|slot| slot.is_null()));
        (ended, [times.malloc.len(), times.free.len()], all.join(" "))
    }

    #[test]
    fn a_timed_walk_tells_what_is_used_until_it_ends() {
        let walk = mixed();
        let over = Some(Duration::ZERO);
        let one = walk.of_pairs(1);
        let early = Ended::Early { pairs: 1 };
        for (walk, limit, ended, times, used) in [
            (
                &walk,
                None,
                Ended::Whole,
                [4, 4],
                "1@0 2@1 0@2 - 3@0 4@0 - - -",
            ),
            (&walk, over, early, [1, 0], "1@0"),
            // Only frees are left.
            (&one, over, Ended::Whole, [1, 1], "1@0 -"),
        ] {
            let found = timed(walk, 1 << 40, limit, |_| Ok(()));
            assert_eq!(found, (Ok(ended), times, used.to_owned()));
        }
    }

    #[test]
    fn a_timed_walk_that_fails_frees_all_blocks() {
        let walk = mixed();
        let fail = || Error::InvalidFraction(7.0);
        let third = |calls| if calls == 3 { Err(fail()) } else { Ok(()) };
        let (ended, times, used) = timed(&walk, 1 << 40, None, third);
        assert_eq!((ended, times), (Err(fail()), [2, 0]));
        assert_eq!(used, "1@0 2@1 0@2");
        let (ended, times, _) = timed(&walk, 2 << 20, None, |_| Ok(()));
        assert!(matches!(ended, Err(Error::OutOfMemory(_))), "{ended:?}");
        assert_eq!(times, [1, 0]);
    }
}
