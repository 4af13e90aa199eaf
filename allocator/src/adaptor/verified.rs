//! An allocator whose memory is written to and looked at.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::FixedState;

use crate::allocator::{Allocator, delegate};
use crate::driver::contents::{Contents, WORD, mixed};
use crate::driver::{DeviceAddr, DriverError, StreamId};
use crate::error::Error;

/// Any allocator on a device with memory: what it hands out is used as a program uses it, and so that it
/// shows if somebody else uses it, too.
///
/// - A block is filled on its stream with a pattern of its own when it is allocated, and checked there
///   when it is freed.
/// - Every other stream that was recorded on it waits for that, then checks it and fills it once more,
///   just before it is freed. The host does not wait: an allocator that gives the memory away before such
///   a stream is done has two streams write to it.
///
/// So blocks that overlap and memory that is reused too early end in words that are not the block's, in
/// whichever of the two is checked last. The remainder of a block's bytes that makes no word of 8 is not
/// looked at.
#[derive(Debug)]
pub struct Verified<A> {
    allocator: A,
    live: HashMap<DeviceAddr, Filled, FixedState>,
    /// Blocks filled so far.
    blocks: u64,
    /// Bytes filled so far.
    bytes: u64,
    /// The checks under way, in the order in which the device was told of them.
    under_way: Vec<Corruption>,
    /// What they have found, as far as is kept.
    corruptions: Vec<Corruption>,
    /// All that they have found.
    corrupt: u64,
}

/// A live block.
#[derive(Clone, Debug)]
struct Filled {
    /// Its number, counted from 0.
    block: u64,
    words: u64,
    stream: StreamId,
    /// The other streams that work on it.
    users: Vec<StreamId>,
}

impl Filled {
    /// The seeds of blocks are nowhere near each other, or the pattern of one could be a shifted other's.
    fn seed(&self) -> u64 {
        mixed(!self.block)
    }
}

/// A block whose memory did not hold what was written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Its number among all blocks allocated, counted from 0.
    pub block: u64,
    /// Where it was.
    pub addr: DeviceAddr,
    /// Bytes that were looked at.
    pub bytes: u64,
    /// The stream that found it so: the block's own, or one recorded on it.
    pub stream: StreamId,
    /// Words of 8 bytes that were others; 0 as long as that is not known.
    pub words: u64,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block {} at {}: {} of {} words were overwritten before stream {:#x} was done with them",
            self.block,
            self.addr,
            self.words,
            self.bytes / WORD,
            self.stream.0
        )
    }
}

/// What was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verification {
    /// Blocks filled.
    pub blocks: u64,
    /// Bytes filled.
    pub bytes: u64,
    /// Checks that found other words than were written. A block can have several checks.
    pub corrupt: u64,
    /// The first of them.
    pub first: Vec<Corruption>,
}

/// How many corruptions are told one by one.
const TOLD: usize = 16;

impl<A: Allocator> Verified<A>
where
    A::Driver: Contents,
{
    /// Looks at what is allocated from now on.
    #[must_use]
    pub fn new(allocator: A) -> Self {
        Self {
            allocator,
            live: HashMap::default(),
            blocks: 0,
            bytes: 0,
            under_way: Vec::new(),
            corruptions: Vec::new(),
            corrupt: 0,
        }
    }

    /// Looks at the blocks that are live, too, and waits for all checks; what they found.
    ///
    /// # Errors
    /// If the device fails.
    pub fn verdict(&mut self) -> Result<Verification, Error> {
        let live: Vec<_> = self.live.iter().map(|(&a, f)| (a, f.clone())).collect();
        for (addr, filled) in live {
            self.check_on(filled.stream, addr, &filled)?;
        }
        self.collect()?;
        Ok(Verification {
            blocks: self.blocks,
            bytes: self.bytes,
            corrupt: self.corrupt,
            first: self.corruptions.clone(),
        })
    }

    fn collect(&mut self) -> Result<(), DriverError> {
        let found = self.allocator.driver_mut().mismatches()?;
        for (check, words) in self.under_way.drain(..).zip(found) {
            if words == 0 {
                continue;
            }
            self.corrupt += 1;
            if self.corruptions.len() < TOLD {
                self.corruptions.push(Corruption { words, ..check });
            }
        }
        Ok(())
    }

    /// Lets the block's own stream look at it, then the others.
    fn look(&mut self, addr: DeviceAddr, filled: &Filled) -> Result<(), DriverError> {
        self.check_on(filled.stream, addr, filled)?;
        for &user in &filled.users {
            self.allocator.driver_mut().follow(user, filled.stream)?;
            self.check_on(user, addr, filled)?;
            let device = self.allocator.driver_mut();
            device.fill(addr, filled.words, filled.seed(), user)?;
        }
        Ok(())
    }

    fn check_on(
        &mut self,
        stream: StreamId,
        addr: DeviceAddr,
        filled: &Filled,
    ) -> Result<(), DriverError> {
        if self.under_way.len() >= A::Driver::CHECKS {
            self.collect()?;
        }
        let device = self.allocator.driver_mut();
        device.check(addr, filled.words, filled.seed(), stream)?;
        self.under_way.push(Corruption {
            block: filled.block,
            addr,
            bytes: filled.words * WORD,
            stream,
            words: 0,
        });
        Ok(())
    }
}

impl<A: Allocator> Allocator for Verified<A>
where
    A::Driver: Contents,
{
    type Driver = A::Driver;

    fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let addr = self.allocator.malloc(bytes, stream)?;
        let filled = Filled {
            block: self.blocks,
            words: bytes / WORD,
            stream,
            users: Vec::new(),
        };
        if addr.is_null() || filled.words == 0 {
            return Ok(addr);
        }
        let device = self.allocator.driver_mut();
        if let Err(error) = device.fill(addr, filled.words, filled.seed(), stream) {
            // Nobody will know of it to free it.
            let _ = self.allocator.free(addr);
            return Err(error.into());
        }
        self.blocks += 1;
        self.bytes += filled.words * WORD;
        self.live.insert(addr, filled);
        Ok(addr)
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        if let Some(filled) = self.live.get(&addr).cloned() {
            self.look(addr, &filled)?;
            self.live.remove(&addr);
        }
        self.allocator.free(addr)
    }

    fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator.record_stream(addr, stream)?;
        if let Some(filled) = self.live.get_mut(&addr)
            && filled.stream != stream
            && !filled.users.contains(&stream)
        {
            filled.users.push(stream);
        }
        Ok(())
    }

    delegate!(self, self.allocator; empty_cache, reports);
}
