//! The work of streams, and its order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use coalesce_alloc::driver::StreamId;
use coalesce_alloc::driver::contents::WORD;

use super::extents::{Content, first_other, mismatches};
use super::memory::Memory;

/// A stream of a device, by ordinal.
pub(crate) type StreamOf = (u32, StreamId);

/// Work on memory.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Write `content` to `bytes` from `addr` on.
    Fill {
        addr: u64,
        bytes: u64,
        content: Content,
    },
    /// Copy `bytes` from one place to another.
    Copy { to: u64, from: u64, bytes: u64 },
    /// Add the number of words from `addr` on that differ from those of `seed` to the word at
    /// `mismatches`.
    Check {
        addr: u64,
        words: u64,
        seed: u64,
        mismatches: u64,
    },
    /// Raise the word at `found` to the complement of the number of the first word that is not `word`.
    Find {
        addr: u64,
        words: u64,
        word: u64,
        found: u64,
    },
}

impl Work {
    /// Does the work; `None` if some memory is missing.
    fn run(self, memory: &mut Memory) -> Option<()> {
        match self {
            Self::Fill {
                addr,
                bytes,
                content,
            } => memory.fill(addr, bytes, content),
            Self::Copy { to, from, bytes } => {
                let extents = memory.extents(from, bytes)?;
                memory.write(to, &extents)
            }
            Self::Check {
                addr,
                words,
                seed,
                mismatches: counter,
            } => {
                let extents = memory.extents(addr, words.checked_mul(WORD)?)?;
                change(memory, counter, |sum| {
                    sum.wrapping_add(mismatches(&extents, seed))
                })
            }
            Self::Find {
                addr,
                words,
                word,
                found,
            } => {
                let extents = memory.extents(addr, words.checked_mul(WORD)?)?;
                let first = first_other(&extents, word);
                change(memory, found, |before| {
                    before.max(first.map_or(0, |first| !first))
                })
            }
        }
    }
}

/// Changes the word at `addr`.
fn change(memory: &mut Memory, addr: u64, changed: impl FnOnce(u64) -> u64) -> Option<()> {
    let before = <[u8; 8]>::try_from(memory.read(addr, WORD)?).ok()?;
    let bytes = Arc::from(changed(u64::from_le_bytes(before)).to_le_bytes());
    memory.fill(addr, WORD, Content::Bytes { bytes, skipped: 0 })
}

#[derive(Debug)]
enum Step {
    Work(Work),
    /// The event of this number completes here.
    Mark(u64),
    /// Later work waits for the event of this number of the other stream.
    Wait(StreamOf, u64),
}

#[derive(Debug, Default)]
struct Queue {
    steps: VecDeque<Step>,
    /// Events passed.
    passed: u64,
}

/// The pending work of streams.
#[derive(Debug, Default)]
pub(super) struct Queues {
    queues: BTreeMap<StreamOf, Queue>,
    /// Devices whose work accessed invalid memory.
    faults: BTreeSet<u32>,
}

impl Queues {
    pub(super) fn push(&mut self, stream: StreamOf, work: Work) {
        self.add(stream, Step::Work(work));
    }

    pub(super) fn mark(&mut self, stream: StreamOf, ticket: u64) {
        self.add(stream, Step::Mark(ticket));
    }

    pub(super) fn wait(&mut self, stream: StreamOf, other: StreamOf, ticket: u64) {
        self.add(stream, Step::Wait(other, ticket));
    }

    fn add(&mut self, stream: StreamOf, step: Step) {
        self.queues.entry(stream).or_default().steps.push_back(step);
    }

    pub(super) fn of_device(&self, ordinal: u32) -> Vec<StreamOf> {
        let streams = self.queues.keys().copied();
        streams.filter(|&(own, _)| own == ordinal).collect()
    }

    pub(super) fn has_work(&self, stream: StreamOf) -> bool {
        let queue = self.queues.get(&stream);
        queue.is_some_and(|queue| !queue.steps.is_empty())
    }

    /// The number of events of a stream with all earlier work done.
    pub(super) fn passed(&self, stream: StreamOf) -> u64 {
        self.queues.get(&stream).map_or(0, |queue| queue.passed)
    }

    pub(super) fn take_fault(&mut self, ordinal: u32) -> bool {
        self.faults.remove(&ordinal)
    }

    /// Does the work of a stream up to the event `ticket`, or all if it has no such event, and the
    /// work of other streams that it waits for.
    ///
    /// Chains of waiting streams may be long, so pending goals are kept in a list and not on the
    /// stack.
    pub(super) fn run(&mut self, stream: StreamOf, ticket: u64, memory: &mut Memory) {
        let mut goals = vec![(stream, ticket)];
        while let Some(&(stream, ticket)) = goals.last() {
            match self.next_of(stream, ticket) {
                None => {
                    goals.pop();
                }
                Some(Step::Wait(other, awaited)) if self.passed(other) < awaited => {
                    // Continues here once the other stream has advanced.
                    let queue = self.queues.entry(stream).or_default();
                    queue.steps.push_front(Step::Wait(other, awaited));
                    goals.push((other, awaited));
                }
                Some(Step::Wait(..)) => {}
                Some(Step::Mark(number)) => {
                    self.queues.entry(stream).or_default().passed = number;
                }
                Some(Step::Work(work)) => {
                    if work.run(memory).is_none() {
                        self.faults.insert(stream.0);
                    }
                }
            }
        }
    }

    /// The next step of a stream that has not reached its event `ticket`.
    fn next_of(&mut self, stream: StreamOf, ticket: u64) -> Option<Step> {
        let queue = self.queues.entry(stream).or_default();
        if queue.passed >= ticket {
            return None;
        }
        let step = queue.steps.pop_front();
        if step.is_none() && ticket < u64::MAX {
            // An event never recorded here is not waited for twice.
            queue.passed = ticket;
        }
        step
    }
}
