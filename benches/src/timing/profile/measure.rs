//! Measures how long driver calls take.
//!
//! Each call runs alone on an idle device, because waiting for other work is not part of its cost. Like an allocator, the
//! measurement takes many pieces of one size before it returns them: the driver's work for additional memory is part of the
//! cost, and would be missed if the same piece were reused. Then the device rests, until it has cleared what was returned:
//! [`super::clearing`] measures that on its own.
//!
//! Before a call the host touches other memory, as a program does. Calls in a tight loop find all that the driver needs in the
//! processor's caches, and are up to three times as fast as those of a program. Calls that an allocator makes in a row, as to
//! create a piece of memory and map it, are made in a row.

mod pool;

use std::time::{Duration, Instant};

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, EventId, HandleKind, MemoryHandle, StreamId, VirtualMemory,
};

use crate::measure::progress::Progress;

/// Smallest and largest size to measure, as far as memory is free. Sizes double.
const SMALLEST: u64 = 2 << 20;
const LARGEST: u64 = 16 << 30;
/// Percentage of the free memory to leave unused.
const SPARED: u64 = 10;
/// Times of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    /// The call.
    pub call: CallKind,
    /// Bytes that the call concerned; 0 if none.
    pub bytes: u64,
    /// Nanoseconds of each call.
    pub ns: Vec<u64>,
}

impl Samples {
    /// Mean in nanoseconds of all but the slowest twentieth, to which an interruption of the host may belong; `None` without
    /// samples. A program's time is a sum of calls. Means can be summed; medians cannot.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let mut sorted = self.ns.clone();
        sorted.sort_unstable();
        sorted.truncate((sorted.len() - sorted.len().div_ceil(20)).max(1));
        let sum: u64 = sorted.iter().sum();
        (!sorted.is_empty()).then(|| sum as f64 / sorted.len() as f64)
    }
}

/// How often to make each call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Number of calls, if time allows.
    pub rounds: u32,
    /// Time for each size. Once it has passed and each call was made three times, no further batch is started.
    pub time: Duration,
    /// Rest for the device for each returned GiB.
    pub rest_per_gib: Duration,
    /// Bytes of host memory to touch before a call.
    pub touched: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            rounds: 30,
            time: Duration::from_millis(500),
            // An H200 clears a GiB in 3.2 ms.
            rest_per_gib: Duration::from_millis(10),
            // Most of what the second-level cache of a core holds.
            touched: 3 << 19,
        }
    }
}

impl Effort {
    /// Minimum number of rounds for a meaningful mean.
    const LEAST: u32 = 3;
    /// Factor for calls without memory, which are fast.
    const OF_EVENTS: u32 = 10;

    /// Waits until a device had time to clear so many returned bytes.
    pub fn rest(&self, bytes: u64) {
        let gib = bytes as f64 / f64::from(1 << 30);
        std::thread::sleep(self.rest_per_gib.mul_f64(gib));
    }
}

/// Times every call of `device` by `clock`, in nanoseconds since any fixed moment. Skips sizes that do not fit and calls
/// that the device does not support.
///
/// # Errors
/// Any other error of the device.
pub fn measure<D: Driver>(
    device: &mut D,
    clock: &dyn Fn(&D) -> u64,
    effort: Effort,
) -> Result<Vec<Samples>, DriverError> {
    let mut bench = Bench {
        device,
        clock,
        effort,
        is_warming_up: false,
        samples: Vec::new(),
        touched: vec![0; effort.touched],
    };
    let free = bench.device.memory_info()?.free;
    let most = free - free / 100 * SPARED;
    let sizes: Vec<u64> = (0..)
        .map(|doubled| SMALLEST << doubled)
        .take_while(|&bytes| bytes <= LARGEST.min(most))
        .collect();
    let progress = Progress::new("sizes", Some(sizes.len() as u64));
    bench.events()?;
    bench.pool()?;
    for bytes in sizes {
        bench.in_batches(bytes, most, |bench, pieces| {
            bench.allocations(bytes, pieces)
        })?;
        if bench.device.virtual_memory().is_some() {
            bench.repeat(effort, |bench| bench.reservation(bytes))?;
            bench.in_batches(bytes, most, |bench, pieces| bench.mappings(bytes, pieces))?;
        }
        bench.trims(bytes)?;
        progress.add(1, &format!("{} MiB", bytes >> 20));
    }
    Ok(bench.samples)
}

struct Bench<'a, D> {
    device: &'a mut D,
    clock: &'a dyn Fn(&D) -> u64,
    effort: Effort,
    /// Whether times are discarded.
    is_warming_up: bool,
    samples: Vec<Samples>,
    /// Other memory of the host.
    touched: Vec<u8>,
}

impl<D: Driver> Bench<'_, D> {
    /// Repeats `round`, after one run to warm up the driver. Skips it if memory is short or the device does not support it.
    fn repeat(
        &mut self,
        effort: Effort,
        round: impl Fn(&mut Self) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        self.is_warming_up = true;
        let warm = round(self);
        self.is_warming_up = false;
        match warm {
            Err(DriverError::OutOfMemory | DriverError::NotSupported) => return Ok(()),
            other => other?,
        }
        let begun = Instant::now();
        for done in 0..effort.rounds {
            if done >= Effort::LEAST && begun.elapsed() >= effort.time {
                break;
            }
            round(self)?;
        }
        Ok(())
    }

    /// Makes a call and records its time if it succeeds.
    fn time<T>(
        &mut self,
        call: CallKind,
        bytes: u64,
        make: impl FnOnce(&mut D) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let begun = (self.clock)(self.device);
        let answer = make(self.device)?;
        let ns = (self.clock)(self.device).saturating_sub(begun);
        if !self.is_warming_up {
            self.record(call, bytes, ns);
        }
        Ok(answer)
    }

    /// Touches every cache line of the other memory, as a program does between two calls.
    fn work(&mut self) {
        const LINE: usize = 64;
        for byte in self.touched.iter_mut().step_by(LINE) {
            *byte = byte.wrapping_add(1);
        }
        std::hint::black_box(&self.touched);
    }

    fn record(&mut self, call: CallKind, bytes: u64, ns: u64) {
        let mut samples = self.samples.iter_mut();
        match samples.find(|samples| samples.call == call && samples.bytes == bytes) {
            Some(samples) => samples.ns.push(ns),
            None => self.samples.push(Samples {
                call,
                bytes,
                ns: vec![ns],
            }),
        }
    }

    /// [`Self::time`] for a call on virtual memory.
    fn time_mapped<T>(
        &mut self,
        call: CallKind,
        bytes: u64,
        make: impl FnOnce(&mut dyn VirtualMemory) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.time(call, bytes, |device| make(mapper(device)?))
    }

    /// Calls `batch` until it has handled enough pieces of `bytes`. It takes and returns at most the given number of
    /// pieces, and returns how many it took. A batch takes at most `most` bytes. After each the device rests, to clear them.
    fn in_batches(
        &mut self,
        bytes: u64,
        most: u64,
        batch: impl Fn(&mut Self, u64) -> Result<u64, DriverError>,
    ) -> Result<(), DriverError> {
        let begun = Instant::now();
        let rounds = u64::from(self.effort.rounds);
        let mut done = 0;
        while done < rounds
            && (done < u64::from(Effort::LEAST) || begun.elapsed() < self.effort.time)
        {
            let taken = batch(self, (rounds - done).min(most / bytes))?;
            if taken == 0 {
                break;
            }
            done += taken;
            self.device.synchronize_device()?;
            self.effort.rest(taken * bytes);
        }
        Ok(())
    }

    fn allocations(&mut self, bytes: u64, pieces: u64) -> Result<u64, DriverError> {
        let mut held = Vec::new();
        let mut taken = Ok(());
        while taken.is_ok() && (held.len() as u64) < pieces {
            self.work();
            let addr = self.time(CallKind::Malloc, bytes, |device| device.malloc(bytes));
            taken = addr.map(|addr| held.push(addr));
        }
        for &addr in &held {
            self.work();
            self.time(CallKind::Free, bytes, |device| device.free(addr, bytes))?;
        }
        unless_full(taken)?;
        Ok(held.len() as u64)
    }

    /// Maps an address range piece by piece, as an expandable segment does, and unmaps it.
    fn mappings(&mut self, bytes: u64, pieces: u64) -> Result<u64, DriverError> {
        let whole = bytes * pieces;
        let range = mapper(self.device)?.reserve(whole)?;
        let at = |number: usize| range.offset(bytes * number as u64);
        let mut held = Vec::new();
        let mut taken = Ok(());
        while taken.is_ok() && (held.len() as u64) < pieces {
            self.work();
            let piece = self.map_piece(at(held.len()), bytes);
            taken = piece.map(|handle| held.push(handle));
        }
        for (number, &handle) in held.iter().enumerate() {
            self.work();
            self.unmap_piece(at(number), bytes)?;
            self.release(handle, bytes)?;
        }
        mapper(self.device)?.free_address(range, whole)?;
        unless_full(taken)?;
        Ok(held.len() as u64)
    }

    /// Creates and maps memory for `bytes` at `addr`; on an error undoes it.
    fn map_piece(&mut self, addr: DeviceAddr, bytes: u64) -> Result<MemoryHandle, DriverError> {
        let handle = self.time_mapped(CallKind::Create, bytes, |memory| {
            memory.create(bytes, HandleKind::FileDescriptor)
        })?;
        let mapped = self.time_mapped(CallKind::Map, bytes, |memory| {
            memory.map(addr, bytes, handle)
        });
        let open = mapped.and_then(|()| {
            let open = self.time_mapped(CallKind::SetAccess, bytes, |memory| {
                memory.set_access(addr, bytes)
            });
            open.or_else(|error| self.unmap_piece(addr, bytes).and(Err(error)))
        });
        match open {
            Ok(()) => Ok(handle),
            Err(error) => self.release(handle, bytes).and(Err(error)),
        }
    }

    fn unmap_piece(&mut self, addr: DeviceAddr, bytes: u64) -> Result<(), DriverError> {
        self.time_mapped(CallKind::Unmap, bytes, |memory| memory.unmap(addr, bytes))
    }

    fn release(&mut self, handle: MemoryHandle, bytes: u64) -> Result<(), DriverError> {
        self.time_mapped(CallKind::Release, bytes, |memory| {
            memory.release(handle, bytes)
        })
    }

    fn reservation(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.work();
        let range = self.time_mapped(CallKind::Reserve, bytes, |memory| memory.reserve(bytes))?;
        self.time_mapped(CallKind::FreeAddress, bytes, |memory| {
            memory.free_address(range, bytes)
        })
    }

    /// Calls without memory.
    fn events(&mut self) -> Result<(), DriverError> {
        let effort = self.effort;
        let rounds = effort.rounds.saturating_mul(Effort::OF_EVENTS);
        let often = Effort { rounds, ..effort };
        let stream = StreamId::nth(1);
        // Events live as long as the device, so only few are created.
        let mut events = Vec::new();
        for _ in 0..=effort.rounds {
            let event = self.time(CallKind::CreateEvent, 0, Driver::create_event)?;
            events.push(event);
        }
        let Some(&event) = events.first() else {
            return Ok(());
        };
        self.repeat(often, |bench| bench.uses_of(event, stream))
    }

    fn uses_of(&mut self, event: EventId, stream: StreamId) -> Result<(), DriverError> {
        self.work();
        self.time(CallKind::RecordEvent, 0, |device| {
            device.record_event(event, stream)
        })?;
        self.time(CallKind::WaitEvent, 0, |device| {
            device.wait_event(StreamId::DEFAULT, event)
        })?;
        self.time(CallKind::QueryEvent, 0, |device| {
            device.event_is_complete(event)
        })?;
        self.device.synchronize_device()?;
        self.time(CallKind::SynchronizeEvent, 0, |device| {
            device.synchronize_event(event)
        })?;
        self.time(CallKind::SynchronizeStream, 0, |device| {
            device.synchronize_stream(stream)
        })?;
        self.time(CallKind::SynchronizeDevice, 0, Driver::synchronize_device)?;
        self.work();
        self.time(CallKind::MemoryInfo, 0, Driver::memory_info)?;
        Ok(())
    }
}

/// Ignores that memory is exhausted, which makes a batch smaller, and unsupported calls.
fn unless_full(taken: Result<(), DriverError>) -> Result<(), DriverError> {
    taken.or_else(|error| match error {
        DriverError::OutOfMemory | DriverError::NotSupported => Ok(()),
        error => Err(error),
    })
}

fn mapper<D: Driver>(device: &mut D) -> Result<&mut dyn VirtualMemory, DriverError> {
    device.virtual_memory().ok_or(DriverError::NotSupported)
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::driver::hooks::cost::Costs;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::driver::tap::{Hook, Tap};

    use super::super::fit::line;
    use super::*;
    use crate::measure::profile::Profile;

    const QUICK: Effort = Effort {
        rounds: 5,
        time: Duration::from_secs(60),
        rest_per_gib: Duration::ZERO,
        touched: 0,
    };

    fn sim(capacity: u64, costs: Costs) -> SimDevice {
        SimDevice::new(&SimConfig {
            costs,
            ..SimConfig::with_capacity(capacity)
        })
    }

    /// On a simulated device the measured profile equals the charged one, to the nanosecond.
    #[test]
    fn measured_costs_equal_the_charged_costs() {
        let published = Profile::load("published", std::path::Path::new("")).unwrap();
        let mut device = sim(20 << 30, published.costs.clone());
        let samples = measure(&mut device, &SimDevice::elapsed_ns, QUICK).unwrap();
        for kind in CallKind::ALL {
            let of_kind: Vec<&Samples> = samples.iter().filter(|s| s.call == kind).collect();
            let Some(fit) = line(&of_kind) else {
                // The simulated device has no pool.
                assert!(
                    kind.name().contains("pool"),
                    "{} was not measured",
                    kind.name()
                );
                continue;
            };
            let (measured, charged) = (fit.cost, published.costs.of(kind));
            // The fit counts a call that takes no time as one nanosecond.
            assert!(measured.ns.abs_diff(charged.ns) <= 1, "{}", kind.name());
            assert_eq!(measured.ns_per_mib, charged.ns_per_mib, "{}", kind.name());
        }
        let sizes: Vec<u64> = samples
            .iter()
            .filter(|s| s.call == CallKind::Malloc)
            .map(|s| s.bytes)
            .collect();
        assert_eq!((sizes.len(), sizes.last()), (14, Some(&LARGEST)));
        let is_complete = samples.iter().all(|s| s.ns.len() >= 5);
        assert!(is_complete, "every call is made in every round");
    }

    /// Fails every call of one kind.
    struct Failing(CallKind);

    impl Hook for Failing {
        fn before(&mut self, kind: CallKind, _: u64) -> Result<(), DriverError> {
            if kind == self.0 {
                return Err(DriverError::InvalidValue);
            }
            Ok(())
        }
    }

    #[test]
    fn all_memory_is_returned_whatever_fails() {
        const CAPACITY: u64 = 64 << 20;
        let clock = |_: &Tap<SimDevice, Failing>| 0;
        for kind in [CallKind::Create, CallKind::Map, CallKind::SetAccess] {
            let mut device = Tap::over(sim(CAPACITY, Costs::default()), Failing(kind));
            let failed = measure(&mut device, &clock, QUICK);
            assert_eq!(failed, Err(DriverError::InvalidValue), "{}", kind.name());
            assert_eq!(device.memory_info().map(|info| info.free), Ok(CAPACITY));
        }
    }
}
