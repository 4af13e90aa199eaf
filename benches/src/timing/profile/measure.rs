//! How long the calls of a device take.
//!
//! Each call is made alone, on a device that has nothing else to do: what it waits for when there is
//! work is not its own cost. Memory of one size is taken again and again and kept, and given back when there
//! is enough of it, as allocators do: what the driver has to set up for more memory is part of what a call
//! costs, and would not be seen if the same piece came back each time. Then the device is left alone for a
//! while. A driver clears memory that was given back, and who asks for it earlier waits for that; the
//! profile does not charge this.

use std::time::{Duration, Instant};

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, EventId, HandleKind, MemoryHandle, PoolSettings, StreamId,
    StreamOrdered, VirtualMemory,
};

use crate::measure::progress::Progress;
use crate::measure::statistics;

/// The sizes, as far as there is memory: 2 MiB to 16 GiB, each twice the one before.
const SMALLEST: u64 = 2 << 20;
const LARGEST: u64 = 16 << 30;
/// What is left to the device of its free memory, in percent.
const SPARED: u64 = 10;

/// Times of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    /// The call.
    pub call: CallKind,
    /// How much memory it was about; 0 if about none.
    pub bytes: u64,
    /// Nanoseconds of each.
    pub ns: Vec<u64>,
}

impl Samples {
    /// The median, in nanoseconds; none of none.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let floats: Vec<f64> = self.ns.iter().map(|&ns| ns as f64).collect();
        statistics::median(&floats)
    }
}

/// How often each call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// So often, if there is time.
    pub rounds: u32,
    /// After so long no further lot of a size is begun, if each call was made three times.
    pub time: Duration,
    /// How long the device is left alone for each GiB that was given back.
    pub rest_per_gib: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            rounds: 30,
            time: Duration::from_millis(500),
            // An H200 clears a GiB in 3.2 ms.
            rest_per_gib: Duration::from_millis(10),
        }
    }
}

impl Effort {
    /// The least number of rounds: a median of fewer says nothing.
    const LEAST: u32 = 3;
    /// Calls that take no memory are quick and can be made more often.
    const OF_EVENTS: u32 = 10;
}

/// Times every call that `device` has, by `clock`, which tells nanoseconds from a moment of its own.
///
/// # Errors
/// What the device reports, except that it has not the memory or cannot do something at all: that is left
/// out.
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
    };
    let free = bench.device.memory_info()?.free;
    let most = free - free / 100 * SPARED;
    let sizes: Vec<u64> = (0..)
        .map(|doubled| SMALLEST << doubled)
        .take_while(|&bytes| bytes <= LARGEST.min(most))
        .collect();
    let progress = Progress::new("sizes", Some(sizes.len() as u64));
    bench.events()?;
    for bytes in sizes {
        bench.in_lots(bytes, most, |bench, pieces| {
            bench.allocations(bytes, pieces)
        })?;
        if bench.device.virtual_memory().is_some() {
            bench.repeat(effort, |bench| bench.reservation(bytes))?;
            bench.in_lots(bytes, most, |bench, pieces| bench.mappings(bytes, pieces))?;
        }
        bench.pooled(bytes)?;
        progress.add(1, &format!("{} MiB", bytes >> 20));
    }
    Ok(bench.samples)
}

struct Bench<'a, D> {
    device: &'a mut D,
    clock: &'a dyn Fn(&D) -> u64,
    effort: Effort,
    /// Whether what is done now is not noted.
    is_warming_up: bool,
    samples: Vec<Samples>,
}

impl<D: Driver> Bench<'_, D> {
    /// Does something several times, and once before: there the driver sets up what it keeps. What there is
    /// no memory for, or what the device cannot do, is left out.
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

    /// Makes a call and notes how long it took, if it went well.
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
            self.note(call, bytes, ns);
        }
        Ok(answer)
    }

    fn note(&mut self, call: CallKind, bytes: u64, ns: u64) {
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

    /// [`Self::time`] of a call for virtual memory.
    fn time_mapped<T>(
        &mut self,
        call: CallKind,
        bytes: u64,
        make: impl FnOnce(&mut dyn VirtualMemory) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.time(call, bytes, |device| make(mapper(device)?))
    }

    /// Lets `lot` take as many pieces of `bytes` as it is told and give them back, until there were enough;
    /// it says how many it had. No lot is more than `most` bytes. After each the device is left alone until
    /// it has cleared them.
    fn in_lots(
        &mut self,
        bytes: u64,
        most: u64,
        lot: impl Fn(&mut Self, u64) -> Result<u64, DriverError>,
    ) -> Result<(), DriverError> {
        let begun = Instant::now();
        let rounds = u64::from(self.effort.rounds);
        let mut done = 0;
        while done < rounds
            && (done < u64::from(Effort::LEAST) || begun.elapsed() < self.effort.time)
        {
            let taken = lot(self, (rounds - done).min(most / bytes))?;
            if taken == 0 {
                break;
            }
            done += taken;
            self.device.synchronize_device()?;
            let gib = (taken * bytes) as f64 / f64::from(1 << 30);
            std::thread::sleep(self.effort.rest_per_gib.mul_f64(gib));
        }
        Ok(())
    }

    fn allocations(&mut self, bytes: u64, pieces: u64) -> Result<u64, DriverError> {
        let mut held = Vec::new();
        let mut taken = Ok(());
        while taken.is_ok() && (held.len() as u64) < pieces {
            let addr = self.time(CallKind::Malloc, bytes, |device| device.malloc(bytes));
            taken = addr.map(|addr| held.push(addr));
        }
        for &addr in &held {
            self.time(CallKind::Free, bytes, |device| device.free(addr, bytes))?;
        }
        unless_full(taken)?;
        Ok(held.len() as u64)
    }

    /// One range of addresses, filled piece by piece as an expandable segment is, and back.
    fn mappings(&mut self, bytes: u64, pieces: u64) -> Result<u64, DriverError> {
        let whole = bytes * pieces;
        let range = mapper(self.device)?.reserve(whole)?;
        let at = |number: usize| range.offset(bytes * number as u64);
        let mut held = Vec::new();
        let mut taken = Ok(());
        while taken.is_ok() && (held.len() as u64) < pieces {
            let piece = self.map_piece(at(held.len()), bytes);
            taken = piece.map(|handle| held.push(handle));
        }
        for (number, &handle) in held.iter().enumerate() {
            self.unmap_piece(at(number), bytes)?;
            self.release(handle, bytes)?;
        }
        mapper(self.device)?.free_address(range, whole)?;
        unless_full(taken)?;
        Ok(held.len() as u64)
    }

    /// Memory behind `bytes` from `addr` on, or nothing.
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
        let range = self.time_mapped(CallKind::Reserve, bytes, |memory| memory.reserve(bytes))?;
        self.time_mapped(CallKind::FreeAddress, bytes, |memory| {
            memory.free_address(range, bytes)
        })
    }

    /// Memory of the device's own pool, which has it from the first round on: what a call costs that takes
    /// nothing from the device.
    fn pooled(&mut self, bytes: u64) -> Result<(), DriverError> {
        if self.device.stream_ordered().is_none() {
            return Ok(());
        }
        self.time_pool(CallKind::SetPool, 0, |pool| {
            pool.set_pool(PoolSettings {
                release_threshold: u64::MAX,
                reuse_opportunistic: true,
                reuse_internal_dependencies: true,
            })
        })?;
        let stream = StreamId::nth(1);
        let used = self.repeat(self.effort, |bench| {
            let addr = bench.time_pool(CallKind::PoolMalloc, bytes, |pool| {
                pool.pool_malloc(bytes, stream)
            })?;
            bench.time_pool(CallKind::PoolFree, bytes, |pool| {
                pool.pool_free(addr, bytes, stream)
            })?;
            bench.time_pool(CallKind::PoolUsage, 0, |pool| pool.pool_usage())?;
            bench.device.synchronize_device()
        });
        self.time_pool(CallKind::TrimPool, bytes, |pool| pool.trim_pool(0))?;
        used
    }

    /// [`Self::time`] of a call to the device's pool.
    fn time_pool<T>(
        &mut self,
        call: CallKind,
        bytes: u64,
        make: impl FnOnce(&mut dyn StreamOrdered) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.time(call, bytes, |device| {
            make(device.stream_ordered().ok_or(DriverError::NotSupported)?)
        })
    }

    /// The calls that are about no memory.
    fn events(&mut self) -> Result<(), DriverError> {
        let effort = self.effort;
        let rounds = effort.rounds.saturating_mul(Effort::OF_EVENTS);
        let often = Effort { rounds, ..effort };
        let stream = StreamId::nth(1);
        // An event lives as long as the device: few are made.
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
        self.time(CallKind::MemoryInfo, 0, Driver::memory_info)?;
        Ok(())
    }
}

/// A lot that finds no memory for its last piece is a smaller one; what the device cannot do is left out.
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
    };

    fn sim(capacity: u64, costs: Costs) -> SimDevice {
        SimDevice::new(&SimConfig {
            costs,
            ..SimConfig::with_capacity(capacity)
        })
    }

    /// On a device whose calls cost what a profile says, that profile comes out, to the nanosecond.
    #[test]
    fn what_calls_cost_is_what_is_measured() {
        let published = Profile::load("published", std::path::Path::new("")).unwrap();
        let mut device = sim(20 << 30, published.costs.clone());
        let samples = measure(&mut device, &SimDevice::elapsed_ns, QUICK).unwrap();
        for kind in CallKind::ALL {
            let of_kind: Vec<&Samples> = samples.iter().filter(|s| s.call == kind).collect();
            let Some(fit) = line(&of_kind) else {
                // The simulated device has no pool of its own.
                assert!(
                    kind.name().contains("pool"),
                    "{} was not measured",
                    kind.name()
                );
                continue;
            };
            let (measured, charged) = (fit.cost, published.costs.of(kind));
            // A call that takes no time at all counts as one nanosecond.
            assert!(measured.ns.abs_diff(charged.ns) <= 1, "{}", kind.name());
            assert_eq!(measured.ns_per_mib, charged.ns_per_mib, "{}", kind.name());
        }
        let sizes = samples.iter().filter(|s| s.call == CallKind::Malloc);
        let sizes: Vec<u64> = sizes.map(|s| s.bytes).collect();
        assert_eq!((sizes.len(), sizes.last()), (14, Some(&LARGEST)));
        assert!(samples.iter().all(|s| s.ns.len() >= 5), "each so often");
    }

    /// Fails every call of one kind.
    struct Never(CallKind);

    impl Hook for Never {
        fn before(&mut self, kind: CallKind, _: u64) -> Result<(), DriverError> {
            match kind == self.0 {
                true => Err(DriverError::InvalidValue),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn all_memory_is_given_back_whatever_fails() {
        const CAPACITY: u64 = 64 << 20;
        let clock = |_: &Tap<SimDevice, Never>| 0;
        for kind in [CallKind::Create, CallKind::Map, CallKind::SetAccess] {
            let mut device = Tap::over(sim(CAPACITY, Costs::default()), Never(kind));
            let failed = measure(&mut device, &clock, QUICK);
            assert_eq!(failed, Err(DriverError::InvalidValue), "{}", kind.name());
            assert_eq!(device.memory_info().map(|info| info.free), Ok(CAPACITY));
        }
    }
}
