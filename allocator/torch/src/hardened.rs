//! The mode `harden`, for programs that free or use memory wrongly: who allocated and freed it, and whether freed memory was
//! written.
//!
//! It stands beside the allocator and changes none of its decisions. It is no adaptor around it, because PyTorch also makes
//! requests in parts and restores checkpoints of pools, which bypass [`Allocator`]. Whether a pointer is valid is the allocator's
//! answer; [`Hardened`] only explains it.
//!
//! Freed memory is poisoned ([`Poison`]) on the stream of its block, and checked when it is
//! allocated again, before it is returned to the device, and at the end. So a program whose other streams use memory
//! without `record_stream` reads NaN, which is a mistake of the program. These blocks are not poisoned, because somebody may
//! use them rightly after the free: those that a stream was recorded on, and those allocated while a private pool is used, which
//! belong to a graph. While a graph is captured nothing is poisoned or checked.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use coalesce_alloc::Allocator;
use coalesce_alloc::driver::contents::WORD;
use coalesce_alloc::driver::poison::Poison;
use coalesce_alloc::driver::{DeviceAddr, Driver, DriverError, Status, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::printable::printable_lines;

use crate::failure::Failure;

/// The Python frames of a call, innermost first, one a line.
pub type Stack = Arc<str>;

/// Freed blocks that are remembered besides those that are poisoned.
const MOST_FREED: usize = 1 << 16;
/// Checks after which the device is waited for.
const MOST_CHECKS: usize = 1024;
/// Reports of changed memory that are printed.
const MOST_REPORTS: usize = 16;

/// An allocation, or one that was.
#[derive(Debug)]
struct Block {
    addr: DeviceAddr,
    /// Requested bytes.
    bytes: u64,
    stream: StreamId,
    allocated: Stack,
    /// Empty until it is freed.
    freed: Stack,
    /// Whether nobody may use its memory once it is freed.
    is_poisoned_by_free: bool,
}

/// A part of a freed block whose addresses were not allocated again.
#[derive(Clone, Debug)]
struct Rest {
    /// Whole words, as many as were requested.
    bytes: u64,
    block: Arc<Block>,
    /// Whether its memory is filled with poison.
    is_poisoned: bool,
}

/// The blocks of a device. See the [module](self).
#[derive(Debug)]
pub struct Hardened {
    /// Whether freed memory is poisoned.
    poisons: bool,
    live: HashMap<DeviceAddr, Block>,
    /// By address; they do not overlap.
    freed: BTreeMap<DeviceAddr, Rest>,
    /// The checks under way: the first address, whose it was, and the request that the memory serves now, if any.
    checks: Vec<(DeviceAddr, Arc<Block>, Option<Stack>)>,
    /// Calls that returned memory to the device, as far as they were noticed.
    returned: i64,
    /// Private pools in use for requests.
    pools: usize,
    reports: usize,
}

impl Hardened {
    /// Keeps track of a device that is not used yet.
    #[must_use]
    pub fn new(poisons: bool) -> Self {
        Self {
            poisons,
            live: HashMap::new(),
            freed: BTreeMap::new(),
            checks: Vec::new(),
            returned: 0,
            pools: 0,
            reports: 0,
        }
    }

    /// Notes that requests are served from a private pool from now on, or no longer.
    pub fn note_pool(&mut self, is_begun: bool) {
        self.pools = if is_begun {
            self.pools + 1
        } else {
            self.pools.saturating_sub(1)
        };
    }

    /// Notes that another stream uses an allocation.
    pub fn note_stream(&mut self, addr: DeviceAddr) {
        if let Some(block) = self.live.get_mut(&addr) {
            block.is_poisoned_by_free = false;
        }
    }

    /// Notes an allocation, and checks the freed memory that it takes.
    pub fn note_malloc<A: Allocator + ?Sized>(
        &mut self,
        allocator: &mut A,
        (addr, bytes): (DeviceAddr, u64),
        stream: StreamId,
        stack: &Stack,
    ) {
        if addr.is_null() {
            return;
        }
        self.forget_returned(allocator);
        let is_calm = self.is_calm(allocator);
        for (addr, rest) in self.take(addr, bytes.next_multiple_of(WORD)) {
            if rest.is_poisoned && is_calm {
                self.check(allocator.driver_mut(), addr, &rest, stream, Some(stack));
            }
        }
        let block = Block {
            addr,
            bytes,
            stream,
            allocated: Arc::clone(stack),
            freed: Stack::from(""),
            is_poisoned_by_free: self.pools == 0,
        };
        self.live.insert(addr, block);
        if self.checks.len() >= MOST_CHECKS && is_calm {
            self.report(allocator.driver_mut());
        }
    }

    /// Frees an allocation.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn free<A: Allocator + ?Sized>(
        &mut self,
        allocator: &mut A,
        addr: DeviceAddr,
        stack: &Stack,
    ) -> Result<(), Error> {
        let block = self.live.get(&addr).filter(|it| it.is_poisoned_by_free);
        let block = block.filter(|_| self.is_calm(allocator));
        let poisoned = block.map(|block| {
            let (bytes, stream) = (whole_words(block.bytes), block.stream);
            let poison = |device: &mut dyn Poison| device.poison(addr, bytes, stream);
            with_poison(allocator.driver_mut(), poison)
        });
        let is_poisoned = poisoned.is_some_and(|done| self.succeeds(done).is_some());
        allocator.free(addr)?;
        if let Some(mut block) = self.live.remove(&addr) {
            block.freed = Arc::clone(stack);
            let rest = Rest {
                bytes: whole_words(block.bytes),
                block: Arc::new(block),
                is_poisoned,
            };
            self.freed.insert(addr, rest);
        }
        if self.freed.len() > MOST_FREED {
            self.freed.retain(|_, rest| rest.is_poisoned);
        }
        self.forget_returned(allocator);
        Ok(())
    }

    /// Checks all freed memory, after the work of all streams. Then it counts as not poisoned any more.
    pub fn check_all<A: Allocator + ?Sized>(&mut self, allocator: &mut A) {
        self.forget_returned(allocator);
        let all = self.freed.iter().filter(|(_, rest)| rest.is_poisoned);
        let all: Vec<(DeviceAddr, Rest)> = all.map(|(&at, rest)| (at, rest.clone())).collect();
        if all.is_empty() && self.checks.is_empty() || !self.is_calm(allocator) {
            return;
        }
        let device = allocator.driver_mut();
        let waited = device.synchronize_device();
        if self.succeeds(waited).is_none() {
            return;
        }
        for (addr, rest) in all {
            self.check(device, addr, &rest, StreamId::DEFAULT, None);
            if self.checks.len() >= MOST_CHECKS {
                self.report(device);
            }
        }
        self.report(device);
        self.forget_poison();
    }

    /// What is known about an address that is not the start of an allocation, if anything.
    #[must_use]
    pub fn explain(&self, addr: DeviceAddr, used: &Stack) -> Option<String> {
        let around =
            |block: &&Block| block.addr <= addr && addr.offset_from(block.addr) < block.bytes;
        let what = |&Block {
                        addr: start, bytes, ..
                    }: &Block| match addr.offset_from(start) {
            0 => format!("an allocation of {bytes} bytes"),
            byte => format!("byte {byte} of an allocation of {bytes} bytes at {start}"),
        };
        if let Some(block) = self.live.values().find(around) {
            let said = format!("{}, which is in use", what(block));
            let stacks = [("used", used), ("allocated", &block.allocated)];
            return Some(told(&said, stacks));
        }
        let (_, rest) = self.freed.range(..=addr).next_back()?;
        let block = Some(&*rest.block).filter(around)?;
        let said = format!("{}, which was freed before", what(block));
        let [allocated, freed] = [("allocated", &block.allocated), ("freed", &block.freed)];
        Some(told(&said, [("used", used), allocated, freed]))
    }

    /// Whether work can be submitted: nothing is being captured.
    fn is_calm<A: Allocator + ?Sized>(&self, allocator: &A) -> bool {
        self.poisons && self.pools == 0 && !allocator.driver().is_capturing()
    }

    /// Removes the rests of freed blocks in a range, and cuts those that reach beyond it.
    fn take(&mut self, addr: DeviceAddr, bytes: u64) -> Vec<(DeviceAddr, Rest)> {
        let end = addr.offset(bytes);
        for at in [addr, end] {
            let before = self.freed.range_mut(..at).next_back();
            if let Some((&start, rest)) = before
                && rest.bytes > at.offset_from(start)
            {
                let behind = Rest {
                    bytes: rest.bytes - at.offset_from(start),
                    ..rest.clone()
                };
                rest.bytes = at.offset_from(start);
                self.freed.insert(at, behind);
            }
        }
        let taken: Vec<DeviceAddr> = self.freed.range(addr..end).map(|(&at, _)| at).collect();
        let rests = taken.into_iter();
        rests
            .filter_map(|at| self.freed.remove_entry(&at))
            .collect()
    }

    fn check(
        &mut self,
        device: &mut dyn Driver,
        addr: DeviceAddr,
        rest: &Rest,
        stream: StreamId,
        reused: Option<&Stack>,
    ) {
        let words = rest.bytes / WORD;
        let check = |device: &mut dyn Poison| device.check_poison(addr, words, stream);
        let submitted = with_poison(device, check);
        if self.succeeds(submitted).is_some() {
            let check = (addr, Arc::clone(&rest.block), reused.cloned());
            self.checks.push(check);
        }
    }

    /// Waits for the checks, and prints what they found.
    fn report(&mut self, device: &mut dyn Driver) {
        let checks = std::mem::take(&mut self.checks);
        let found = with_poison(device, |device| device.changes());
        let found = self.succeeds(found).unwrap_or_default();
        for ((addr, block, reused), word) in checks.into_iter().zip(found) {
            let Some(word) = word.filter(|_| self.reports < MOST_REPORTS) else {
                continue;
            };
            self.reports += 1;
            let byte = addr.offset(word * WORD).offset_from(block.addr);
            let Block { addr, bytes, .. } = *block;
            let said = format!(
                "memory was written after it was freed: first within 8 bytes from byte {byte} of {bytes} bytes at {addr}"
            );
            let mut stacks = vec![("allocated", &block.allocated), ("freed", &block.freed)];
            stacks.extend(reused.as_ref().map(|reused| ("allocated again", reused)));
            Failure::new(told(&said, stacks)).print();
            if self.reports == MOST_REPORTS {
                Failure::new("further changes of freed memory are not reported").print();
            }
        }
    }

    /// Without a device that does what this mode needs, freed memory is no longer poisoned.
    fn succeeds<T>(&mut self, done: Status<T>) -> Option<T> {
        let failed = |error| {
            Failure::new(format!("freed memory is no longer poisoned: {error}")).print();
            self.poisons = false;
            self.checks.clear();
            self.forget_poison();
        };
        done.map_err(failed).ok()
    }

    /// Memory that was returned to the device may have other contents when it comes back.
    fn forget_returned<A: Allocator + ?Sized>(&mut self, allocator: &A) {
        let returned = allocator.stats().num_device_free;
        if returned != self.returned {
            self.returned = returned;
            self.forget_poison();
        }
    }

    fn forget_poison(&mut self) {
        for rest in self.freed.values_mut() {
            rest.is_poisoned = false;
        }
    }
}

/// The bytes of the whole words in so many bytes.
fn whole_words(bytes: u64) -> u64 {
    bytes / WORD * WORD
}

/// Calls a device that can poison its memory.
fn with_poison<T>(
    device: &mut dyn Driver,
    call: impl FnOnce(&mut dyn Poison) -> Status<T>,
) -> Status<T> {
    let poison = device.poison();
    call(poison.ok_or(DriverError::NotSupported)?)
}

/// A sentence, and the stacks that belong to it.
pub fn told<'a>(sentence: &str, stacks: impl IntoIterator<Item = (&'a str, &'a Stack)>) -> String {
    let mut text = sentence.to_owned();
    for (what, stack) in stacks {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {what} here:");
        let unknown = "(no Python frame: a thread of PyTorch)";
        let frames = if stack.is_empty() { unknown } else { stack };
        for frame in printable_lines(frames).lines() {
            let _ = write!(text, "\n    {frame}");
        }
    }
    text
}
