//! Verifies the contents of allocated memory.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::FixedState;

use crate::allocator::{Allocator, delegate};
use crate::driver::contents::{Contents, WORD, mixed};
use crate::driver::{DeviceAddr, Status, StreamId};
use crate::error::Error;

/// Wraps any allocator on a device with real memory and uses the allocations as a program does, so that
/// use by anyone else shows.
///
/// - When a block is allocated, its stream fills it with a unique pattern. When it is freed, its stream
///   checks the pattern.
/// - Just before the free, every other recorded stream waits for that check, checks the pattern itself
///   and fills the block again. The host does not wait: if an allocator reuses the memory before such a
///   stream has finished, two streams write to it.
///
/// Overlapping blocks and memory reused too early therefore show as foreign words in whichever block is
/// checked last. A remainder of less than 8 bytes is not checked.
#[derive(Debug)]
pub struct Verified<A> {
    allocator: A,
    live: HashMap<DeviceAddr, Filled, FixedState>,
    /// Blocks filled so far.
    blocks: u64,
    /// Bytes filled so far.
    bytes: u64,
    /// The checks under way, in submission order.
    under_way: Vec<Corruption>,
    /// The first corruptions found.
    corruptions: Vec<Corruption>,
    /// Number of corruptions found.
    corrupt: u64,
}

/// An allocated block.
#[derive(Clone, Debug)]
struct Filled {
    /// Its number, counted from 0.
    block: u64,
    words: u64,
    stream: StreamId,
    /// The other streams that use it.
    users: Vec<StreamId>,
}

impl Filled {
    /// Seeds are far apart, so that no pattern is a shifted copy of another.
    fn seed(&self) -> u64 {
        mixed(!self.block)
    }
}

/// A block whose contents changed unexpectedly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Its number among all blocks allocated, counted from 0.
    pub block: u64,
    /// Its address.
    pub addr: DeviceAddr,
    /// Bytes checked.
    pub bytes: u64,
    /// The stream that found the corruption: the block's own, or one recorded on it.
    pub stream: StreamId,
    /// Number of changed words of 8 bytes; 0 until known.
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

/// The result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verification {
    /// Blocks filled.
    pub blocks: u64,
    /// Bytes filled.
    pub bytes: u64,
    /// Checks that found foreign words. A block can have several checks.
    pub corrupt: u64,
    /// The first corruptions.
    pub first: Vec<Corruption>,
}

/// The number of corruptions listed individually.
const MAX_LISTED: usize = 16;

impl<A: Allocator> Verified<A>
where
    A::Driver: Contents,
{
    /// Verifies allocations from now on.
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

    /// Checks the live blocks too, waits for all checks and returns the result.
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

    fn collect(&mut self) -> Status {
        let found = self.allocator.driver_mut().mismatches()?;
        for (check, words) in self.under_way.drain(..).zip(found) {
            if words == 0 {
                continue;
            }
            self.corrupt += 1;
            if self.corruptions.len() < MAX_LISTED {
                self.corruptions.push(Corruption { words, ..check });
            }
        }
        Ok(())
    }

    /// Checks the block on its own stream, then on the others.
    fn check_all(&mut self, addr: DeviceAddr, filled: &Filled) -> Status {
        self.check_on(filled.stream, addr, filled)?;
        for &user in &filled.users {
            self.allocator.driver_mut().follow(user, filled.stream)?;
            self.check_on(user, addr, filled)?;
            let device = self.allocator.driver_mut();
            device.fill(addr, filled.words, filled.seed(), user)?;
        }
        Ok(())
    }

    fn check_on(&mut self, stream: StreamId, addr: DeviceAddr, filled: &Filled) -> Status {
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
            // The caller does not get this address and cannot free it.
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
            self.check_all(addr, &filled)?;
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

    delegate!(self, self.allocator; empty_cache, private_pools, set_memory_limit, reports);
}
