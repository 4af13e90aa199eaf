//! A bounded queue that hands addresses from one thread to another, in batches. The oracle has the same queue, so
//! that both are measured alike.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use coalesce_alloc::driver::DeviceAddr;

/// Addresses that are passed on together, so that the threads rarely write to the same cache line.
const BATCH: usize = 64;
/// The capacity of the queue in addresses. A multiple of [`BATCH`].
const WINDOW: usize = 4 * BATCH;
/// How often a waiting thread looks before it lets others run, which may need its core.
const SPINS: u32 = 1000;

/// A count that one thread writes and the other reads, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicUsize);

/// The queue. The address with the number n, from 0, is in `ring[n % WINDOW]`.
///
/// Invariant: `taken` ≤ `sent` ≤ `taken` + `WINDOW`; both are multiples of `BATCH` until the queue is closed.
pub(super) struct Handover {
    ring: [AtomicU64; WINDOW],
    /// Addresses that the receiver may take.
    sent: Count,
    /// Addresses that the receiver has taken.
    taken: Count,
    /// Whether `sent` no longer changes.
    closed: AtomicBool,
}

impl Handover {
    pub(super) fn new() -> Self {
        Self {
            ring: [const { AtomicU64::new(0) }; WINDOW],
            sent: Count::default(),
            taken: Count::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// The two halves of the queue. A queue is used once.
    pub(super) fn ends(&mut self) -> (Sender<'_>, Receiver<'_>) {
        let queue = &*self;
        (Sender { queue, number: 0 }, Receiver { queue })
    }
}

/// The sending half. Dropping it closes the queue.
pub(super) struct Sender<'a> {
    queue: &'a Handover,
    /// Addresses sent so far.
    number: usize,
}

impl Sender<'_> {
    /// Sends an address. Waits while the queue is full.
    #[inline]
    pub(super) fn send(&mut self, addr: DeviceAddr) {
        if self.number.is_multiple_of(BATCH) {
            let taken = &self.queue.taken.0;
            wait_until(|| self.number - taken.load(Ordering::Acquire) <= WINDOW - BATCH);
        }
        self.queue.ring[self.number % WINDOW].store(addr.0, Ordering::Relaxed);
        self.number += 1;
        if self.number.is_multiple_of(BATCH) {
            self.queue.sent.0.store(self.number, Ordering::Release);
        }
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        self.queue.sent.0.store(self.number, Ordering::Release);
        self.queue.closed.store(true, Ordering::Release);
    }
}

/// The receiving half.
pub(super) struct Receiver<'a> {
    queue: &'a Handover,
}

impl Receiver<'_> {
    /// Calls `take` for each address in order, until the queue is closed.
    pub(super) fn receive(self, mut take: impl FnMut(DeviceAddr)) {
        let queue = self.queue;
        let sent = || queue.sent.0.load(Ordering::Acquire);
        let mut taken = 0;
        loop {
            wait_until(|| queue.closed.load(Ordering::Acquire) || sent() > taken);
            let end = sent().min(taken + BATCH);
            if end == taken {
                return;
            }
            for number in taken..end {
                take(DeviceAddr(
                    queue.ring[number % WINDOW].load(Ordering::Relaxed),
                ));
            }
            taken = end;
            queue.taken.0.store(taken, Ordering::Release);
        }
    }
}

fn wait_until(ready: impl Fn() -> bool) {
    let mut looks = 0;
    while !ready() {
        if looks < SPINS {
            looks += 1;
            spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the receiver gets when the addresses 1 to `count` are sent.
    fn received(count: u64) -> Vec<u64> {
        let mut queue = Handover::new();
        let (mut sender, receiver) = queue.ends();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| receiver.receive(|addr| received.push(addr.0)));
            (1..=count).for_each(|addr| sender.send(DeviceAddr(addr)));
            drop(sender);
        });
        received
    }

    #[test]
    fn every_address_arrives_in_order() {
        for count in [0, 1, BATCH - 1, BATCH, WINDOW, WINDOW + 1, 100 * WINDOW + 7] {
            let count = count as u64;
            assert!(received(count).into_iter().eq(1..=count), "{count}");
        }
    }
}
