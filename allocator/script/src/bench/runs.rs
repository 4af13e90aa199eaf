//! The ways to walk a script: on one thread, on several, and with frees on another thread than the mallocs.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use coalesce_alloc::Shared;
use coalesce_alloc::driver::DeviceAddr;
use coalesce_alloc::error::Error;
use cpu_time::ThreadTime;

use super::Allocator;
use super::handover::{Handover, Receiver, Sender};
use super::walk::{Access, Live, Step, Tally, Walker};

/// The times of a run.
#[derive(Default)]
pub(super) struct RunTimes {
    pub(super) wall_ns: f64,
    pub(super) cpu_ns: f64,
    pub(super) tally: Tally,
}

impl Walker<'_> {
    /// Walks the script on one thread.
    pub(super) fn run(self, mut allocator: impl Access) -> anyhow::Result<RunTimes> {
        let mut live = self.nothing_live();
        let (started, cpu) = (Instant::now(), ThreadTime::try_now()?);
        let tally = self.walk(0, &mut live, &mut allocator)?;
        let run = RunTimes {
            wall_ns: started.elapsed().as_nanos() as f64,
            cpu_ns: cpu.try_elapsed()?.as_nanos() as f64,
            tally,
        };
        allocator.with(|allocator| free_all(allocator, &live))?;
        Ok(run)
    }

    /// Walks the script on several threads at once, on one allocator behind a lock. Thread i adds i to
    /// the script's streams. The clock starts before the first thread and stops after the last.
    pub(super) fn run_threads(
        self,
        allocator: &Shared<Allocator>,
        threads: usize,
    ) -> anyhow::Result<RunTimes> {
        let start = Barrier::new(threads + 1);
        let work = |offset: u16| -> anyhow::Result<(f64, Tally, Live)> {
            let mut live = self.nothing_live();
            start.wait();
            let cpu = ThreadTime::try_now()?;
            let tally = self.walk(offset, &mut live, &mut &*allocator)?;
            Ok((cpu.try_elapsed()?.as_nanos() as f64, tally, live))
        };
        let (elapsed, results) = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads as u16)
                .map(|offset| scope.spawn(move || work(offset)))
                .collect();
            let started = Instant::now();
            start.wait();
            let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            (started.elapsed(), results)
        });
        let mut run = RunTimes {
            wall_ns: elapsed.as_nanos() as f64,
            ..RunTimes::default()
        };
        for result in results {
            let (cpu_ns, tally, live) = match result {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            run.cpu_ns += cpu_ns;
            run.tally.allocations += tally.allocations;
            run.tally.ooms += tally.ooms;
            free_all(&mut allocator.lock(), &live)?;
        }
        Ok(run)
    }

    /// Walks the script on this thread and performs its frees on another. The clock stops after the last free.
    pub(super) fn run_freed_on_other_thread(
        self,
        allocator: &Shared<Allocator>,
    ) -> anyhow::Result<RunTimes> {
        let mut live = self.nothing_live();
        let free_all_received = |receiver: Receiver<'_>| -> anyhow::Result<f64> {
            let cpu = ThreadTime::try_now()?;
            let mut freed = Ok(());
            receiver.receive(|addr| {
                if freed.is_ok() {
                    freed = allocator.lock().free(addr);
                }
            });
            freed?;
            Ok(cpu.try_elapsed()?.as_nanos() as f64)
        };
        let (walked, received, wall_ns) = beside(free_all_received, |sender| {
            let cpu = ThreadTime::try_now()?;
            let mut access = FreedByReceiver { allocator, sender };
            let tally = self.walk(0, &mut live, &mut access)?;
            anyhow::Ok((tally, cpu.try_elapsed()?.as_nanos() as f64))
        });
        let (tally, cpu_ns) = walked?;
        let cpu_ns = cpu_ns + received?;
        free_all(&mut allocator.lock(), &live)?;
        Ok(RunTimes {
            wall_ns,
            cpu_ns,
            tally,
        })
    }

    /// Measures the walk without an allocator, in nanoseconds.
    pub(super) fn run_without_allocator(self) -> f64 {
        let started = Instant::now();
        self.walk_without_allocator(|addr| {
            black_box(addr);
        });
        started.elapsed().as_nanos() as f64
    }

    /// Measures the walk and the queue without an allocator, in nanoseconds.
    pub(super) fn run_handover_without_allocator(self) -> f64 {
        let receive = |receiver: Receiver<'_>| {
            receiver.receive(|addr| {
                black_box(addr);
            });
        };
        let walk = |mut sender: Sender<'_>| self.walk_without_allocator(|addr| sender.send(addr));
        let ((), (), wall_ns) = beside(receive, walk);
        wall_ns
    }

    fn walk_without_allocator(self, mut freed: impl FnMut(DeviceAddr)) {
        let mut live = self.nothing_live();
        for _ in 0..self.walks {
            for step in self.steps {
                match *black_box(step) {
                    Step::Malloc { id, bytes, .. } => live[id as usize] = DeviceAddr(bytes),
                    Step::Free { id } => freed(std::mem::take(&mut live[id as usize])),
                    _ => {}
                }
            }
        }
        black_box(&live);
    }
}

/// An allocator behind a lock. Frees are sent to another thread.
struct FreedByReceiver<'a> {
    allocator: &'a Shared<Allocator>,
    sender: Sender<'a>,
}

impl Access for FreedByReceiver<'_> {
    fn with<R>(&mut self, call: impl FnOnce(&mut Allocator) -> R) -> R {
        call(&mut self.allocator.lock())
    }

    fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.sender.send(addr);
        Ok(())
    }
}

/// Runs `send` on this thread and `receive` on another, with a queue between them. Returns both results and the
/// nanoseconds until both are done.
fn beside<S, R: Send>(
    receive: impl FnOnce(Receiver<'_>) -> R + Send,
    send: impl FnOnce(Sender<'_>) -> S,
) -> (S, R, f64) {
    let mut queue = Handover::new();
    let (sender, receiver) = queue.ends();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            start.wait();
            receive(receiver)
        });
        start.wait();
        let started = Instant::now();
        let sent = send(sender);
        let received = match receiving.join() {
            Ok(received) => received,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        (sent, received, started.elapsed().as_nanos() as f64)
    })
}

fn free_all(allocator: &mut Allocator, live: &Live) -> Result<(), Error> {
    live.iter().try_for_each(|&addr| allocator.free(addr))
}
