//! The allocators of all devices of the process, each behind a lock of its own.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_alloc::stats::DeviceStats;

use crate::conf::{Conf, ConfError};
use crate::device::DeviceAllocator;
use crate::failure::{Failure, guarded};

/// As many as PyTorch can number: its `DeviceIndex` has 8 bits with a sign.
const MOST_DEVICES: usize = 128;

/// What there is of one device.
enum State<D: Driver> {
    /// No call has named it.
    Untouched,
    /// It is in use.
    Ready(DeviceAllocator<D>),
    /// A panic has left its allocator in disorder. Nothing more is taken from it or given back to it, and
    /// what it holds stays where it is: programs may be working on it.
    Broken(DeviceAllocator<D>, String),
}

/// All devices of the process, made when they are first named.
pub struct Devices<D: Driver> {
    open: fn(u32) -> Result<D, String>,
    variable: fn(&str) -> Option<String>,
    conf: OnceLock<Result<Conf, ConfError>>,
    states: [Mutex<State<D>>; MOST_DEVICES],
    /// One more than the highest ordinal named so far.
    named: AtomicUsize,
}

impl<D: Driver + 'static> Devices<D> {
    /// No device yet. `open` makes the n-th one, or says why not; `variable` is the environment, which is
    /// read once.
    #[must_use]
    pub const fn new(
        open: fn(u32) -> Result<D, String>,
        variable: fn(&str) -> Option<String>,
    ) -> Self {
        Self {
            open,
            variable,
            conf: OnceLock::new(),
            states: [const { Mutex::new(State::Untouched) }; MOST_DEVICES],
            named: AtomicUsize::new(0),
        }
    }

    /// What the environment asks for.
    ///
    /// # Errors
    /// If it cannot be understood; no call but this one does anything then.
    pub fn conf(&self) -> Result<&Conf, Failure> {
        let conf = self.conf.get_or_init(|| Conf::from_env(self.variable));
        conf.as_ref()
            .map_err(|error| Failure::new(error.to_string()))
    }

    /// Memory of one device. Null for zero bytes.
    ///
    /// # Errors
    /// If there is none, the environment or the ordinal is wrong, or the device fails.
    pub fn malloc(
        &self,
        ordinal: i32,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DeviceAddr, Failure> {
        self.with(ordinal, |device| Ok(device.malloc(bytes, stream)?))
    }

    /// Takes memory back.
    ///
    /// # Errors
    /// If `addr` is not the start of a live allocation of that device, or the device fails.
    pub fn free(&self, ordinal: i32, addr: DeviceAddr) -> Result<(), Failure> {
        self.with(ordinal, |device| Ok(device.free(addr)?))
    }

    /// Limits the memory of one device that is held to a share of all.
    ///
    /// # Errors
    /// If the share is not one, or as [`Self::malloc`].
    pub fn set_memory_fraction(&self, ordinal: i32, fraction: f64) -> Result<(), Failure> {
        self.with(ordinal, |device| Ok(device.set_memory_fraction(fraction)?))
    }

    /// Says that a stream works on an allocation of whatever device. Memory of others is not its business,
    /// as in PyTorch.
    ///
    /// # Errors
    /// If a device fails.
    pub fn record_stream(&self, addr: DeviceAddr, stream: StreamId) -> Result<(), Failure> {
        self.owner(|device| device.record_stream(addr, stream))?;
        Ok(())
    }

    /// The segment that an allocation of whatever device is part of: where it starts, and its bytes.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub fn base_allocation(&self, addr: DeviceAddr) -> Result<(DeviceAddr, u64), Failure> {
        let base = self.owner(|device| device.base_allocation(addr))?;
        base.ok_or_else(|| Error::InvalidPointer(addr).into())
    }

    /// Empties the caches of all devices that are in use.
    ///
    /// # Errors
    /// Of the first that fails; those after it are not touched.
    pub fn empty_cache(&self) -> Result<(), Failure> {
        self.each_ready(|_, device| Ok(device.empty_cache()?))
    }

    /// What is counted of one device; zeros if nothing was asked of it yet.
    ///
    /// # Errors
    /// If the environment or the ordinal is wrong.
    pub fn stats(&self, ordinal: i32) -> Result<DeviceStats, Failure> {
        let max_split_size = self.conf()?.settings().max_split_size();
        Ok(match &*self.lock(ordinal)? {
            State::Ready(device) | State::Broken(device, _) => device.stats().clone(),
            State::Untouched => DeviceStats {
                max_split_size: max_split_size.map_or(-1, u64::cast_signed),
                ..DeviceStats::default()
            },
        })
    }

    /// Sets the peaks of one device to their current values.
    ///
    /// # Errors
    /// If the ordinal is wrong.
    pub fn reset_peak_stats(&self, ordinal: i32) -> Result<(), Failure> {
        if let State::Ready(device) = &mut *self.lock(ordinal)? {
            device.reset_peak_stats();
        }
        Ok(())
    }

    /// The state of all devices, with a history for each of the first `count`.
    ///
    /// # Errors
    /// If the environment is wrong.
    pub fn snapshot(&self, count: usize) -> Result<Snapshot, Failure> {
        let mut all = Snapshot {
            segments: Vec::new(),
            device_traces: vec![Vec::new(); count.min(MOST_DEVICES)],
            allocator_settings: self.conf()?.settings(),
            external_annotations: [],
        };
        self.each_ready(|ordinal, device| {
            let snapshot = device.snapshot();
            all.segments.extend(snapshot.segments);
            if let Some(trace) = all.device_traces.get_mut(ordinal) {
                *trace = snapshot.device_traces.into_iter().flatten().collect();
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Does something with a device, which is made if this is the first call that names it.
    fn with<T>(
        &self,
        ordinal: i32,
        work: impl FnOnce(&mut DeviceAllocator<D>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = self.lock(ordinal)?;
        if let State::Untouched = *state {
            *state = State::Ready(self.make(ordinal)?);
            drop(state);
            self.introduce(ordinal)?;
            state = self.lock(ordinal)?;
        }
        match &mut *state {
            State::Ready(device) => work(device),
            State::Broken(_, why) => Err(Failure::new(format!(
                "device {ordinal} is out of use since a bug in its allocator: {why}"
            ))),
            State::Untouched => Err(no_such(ordinal)),
        }
    }

    fn make(&self, ordinal: i32) -> Result<DeviceAllocator<D>, Failure> {
        let conf = self.conf()?;
        let number = u32::try_from(ordinal).map_err(|_| no_such(ordinal))?;
        let device = (self.open)(number)
            .map_err(|why| Failure::new(format!("cannot use device {ordinal}: {why}")))?;
        let allocator = DeviceAllocator::new(number, device, conf);
        let allocator = allocator.map_err(|error| Failure::new(error.to_string()))?;
        let named = usize::try_from(ordinal).unwrap_or(0).saturating_add(1);
        self.named.fetch_max(named, Ordering::Release);
        Ok(allocator)
    }

    /// Lets a new device and each of those in use work on each other's memory: PyTorch copies from one to
    /// the other where it can, and has no function for a pluggable allocator to be told. Only one lock is
    /// held at a time. Of two devices that are new at once, the later to be introduced finds the other.
    fn introduce(&self, newcomer: i32) -> Result<(), Failure> {
        let number = u32::try_from(newcomer).map_err(|_| no_such(newcomer))?;
        let mut others = Vec::new();
        self.each_ready(|other, device| {
            let other = u32::try_from(other).unwrap_or(number);
            if other != number {
                device.open_to_peer(number)?;
                others.push(other);
            }
            Ok(())
        })?;
        if let State::Ready(device) = &mut *self.lock(newcomer)? {
            for other in others {
                device.open_to_peer(other)?;
            }
        }
        Ok(())
    }

    /// Does something with every device in use, in order.
    fn each_ready(
        &self,
        mut work: impl FnMut(usize, &mut DeviceAllocator<D>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let named = self.named.load(Ordering::Acquire);
        for (ordinal, state) in self.states.iter().enumerate().take(named) {
            if let State::Ready(device) = &mut *recovered(state) {
                work(ordinal, device)?;
            }
        }
        Ok(())
    }

    /// What the first device says that knows the address it is asked for; nothing if none does.
    fn owner<T>(
        &self,
        mut ask: impl FnMut(&mut DeviceAllocator<D>) -> Result<T, Error>,
    ) -> Result<Option<T>, Failure> {
        let mut answer = None;
        self.each_ready(|_, device| {
            if answer.is_none() {
                match ask(device) {
                    Ok(said) => answer = Some(said),
                    Err(Error::InvalidPointer(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
        Ok(answer)
    }

    fn lock(&self, ordinal: i32) -> Result<MutexGuard<'_, State<D>>, Failure> {
        let index = usize::try_from(ordinal).map_err(|_| no_such(ordinal))?;
        let state = self.states.get(index).ok_or_else(|| no_such(ordinal))?;
        Ok(recovered(state))
    }
}

/// Locks a device. If a thread panicked while it had the lock, the device stays in use only if its
/// allocator is still consistent.
fn recovered<D: Driver + 'static>(state: &Mutex<State<D>>) -> MutexGuard<'_, State<D>> {
    state.lock().unwrap_or_else(|poisoned| {
        let mut guard = PoisonError::into_inner(poisoned);
        let verdict = guarded(|| match &*guard {
            State::Ready(device) => Ok(device.check()),
            State::Untouched | State::Broken(..) => Ok(Ok(())),
        });
        let disorder = match verdict {
            Ok(Ok(())) => None,
            Ok(Err(violation)) => Some(violation.to_string()),
            Err(failure) => Some(failure.message),
        };
        if let Some(why) = disorder {
            *guard = match mem::replace(&mut *guard, State::Untouched) {
                State::Ready(device) => State::Broken(device, why),
                other => other,
            };
        }
        state.clear_poison();
        guard
    })
}

fn no_such(ordinal: i32) -> Failure {
    Failure::new(format!("there is no device {ordinal}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use coalesce_alloc::driver::DriverError;
    use coalesce_alloc::driver::calls::CallKind;
    use coalesce_alloc::driver::sim::{SimConfig, SimDevice};
    use coalesce_alloc::driver::tap::{Hook, Tap};

    use super::*;

    const MIB: u64 = 1 << 20;
    /// A call for so much memory panics.
    const DISASTER: u64 = 66 * MIB;

    #[derive(Debug)]
    struct Panics;

    impl Hook for Panics {
        fn before(&mut self, _: CallKind, bytes: u64) -> Result<(), DriverError> {
            assert_ne!(bytes, DISASTER, "a disaster");
            Ok(())
        }
    }

    type Device = Tap<SimDevice, Panics>;

    fn open(ordinal: u32) -> Result<Device, String> {
        if ordinal >= 2 {
            return Err("there are two".to_owned());
        }
        let config = SimConfig {
            // No two devices give out the same address.
            address_base: Some(u64::from(ordinal + 1) << 40),
            ..SimConfig::with_capacity(1 << 30)
        };
        Ok(Tap::over(SimDevice::new(&config), Panics))
    }

    fn devices() -> Devices<Device> {
        Devices::new(open, |_| None)
    }

    fn malloc(devices: &Devices<Device>, bytes: u64) -> Result<DeviceAddr, Failure> {
        guarded(|| devices.malloc(0, bytes, StreamId::DEFAULT))
    }

    #[test]
    fn each_device_has_an_allocator_of_its_own_from_the_first_call_on() {
        let devices = devices();
        let untouched = devices.stats(1).unwrap();
        assert_eq!(untouched.reserved_bytes.all.current, 0);
        assert_eq!(untouched.max_split_size, -1);
        let first = devices.malloc(0, MIB, StreamId::DEFAULT).unwrap();
        let second = devices.malloc(1, 5 * MIB, StreamId::DEFAULT).unwrap();
        assert_eq!(devices.base_allocation(first), Ok((first, 2 * MIB)));
        assert_eq!(devices.base_allocation(second), Ok((second, 20 * MIB)));
        devices.record_stream(second, StreamId::nth(1)).unwrap();
        devices
            .record_stream(DeviceAddr(7), StreamId::nth(1))
            .unwrap();
        let snapshot = devices.snapshot(2).unwrap();
        let ordinals: Vec<_> = snapshot.segments.iter().map(|s| s.device).collect();
        assert_eq!((ordinals, snapshot.device_traces.len()), (vec![0, 1], 2));
        devices.free(1, second).unwrap();
        devices.empty_cache().unwrap();
        let reserved = |n| devices.stats(n).unwrap().reserved_bytes.all.current;
        assert_eq!((reserved(0), reserved(1)), (2 << 20, 0));
        assert_eq!(devices.stats(0).unwrap().reserved_bytes.all.peak, 2 << 20);
        devices.reset_peak_stats(1).unwrap();
        assert_eq!(devices.stats(1).unwrap().reserved_bytes.all.peak, 0);
    }

    #[test]
    fn what_cannot_be_is_an_error_that_says_so() {
        let devices = devices();
        let fail = |ordinal, bytes| {
            devices
                .malloc(ordinal, bytes, StreamId::DEFAULT)
                .unwrap_err()
        };
        let why = "cannot use device 2: there are two";
        assert_eq!(fail(2, 1), Failure::new(why));
        assert_eq!(fail(-1, 1), Failure::new("there is no device -1"));
        assert_eq!(fail(128, 1), Failure::new("there is no device 128"));
        let short = fail(1, 2 << 30);
        assert!(short.is_out_of_memory);
        assert!(short.message.contains("GPU 1 has"), "{}", short.message);
        let stranger = devices.free(0, DeviceAddr(512)).unwrap_err();
        assert_eq!(stranger, Failure::new("invalid device pointer: 0x200"));
        let wrong = Devices::new(open, |_| Some("policy=pytroch".to_owned()));
        assert!(malloc(&wrong, 1).unwrap_err().message.contains("pytroch"));
    }

    #[test]
    fn a_share_of_a_device_holds_for_every_policy() {
        for variable in [|_: &str| None, |_: &str| Some("policy=bfc".to_owned())] {
            let devices = Devices::new(open, variable);
            devices.set_memory_fraction(0, 0.5).unwrap();
            assert!(malloc(&devices, 600 * MIB).unwrap_err().is_out_of_memory);
            devices.set_memory_fraction(0, 1.0).unwrap();
            assert!(malloc(&devices, 600 * MIB).is_ok());
            let wrong = devices.set_memory_fraction(0, 1.5).unwrap_err();
            assert!(wrong.message.contains("invalid fraction:1.5"));
        }
    }

    #[test]
    fn after_a_panic_a_consistent_allocator_goes_on() {
        let devices = devices();
        let before = malloc(&devices, MIB).unwrap();
        let failed = malloc(&devices, DISASTER).unwrap_err();
        assert!(failed.message.contains("a disaster"), "{}", failed.message);
        let after = malloc(&devices, MIB).unwrap();
        assert_eq!(after, before.offset(MIB));
        devices.free(0, before).unwrap();
        assert_eq!(devices.stats(0).unwrap().allocation.all.current, 1);
    }

    #[test]
    fn after_a_panic_an_allocator_in_disorder_is_left_alone() {
        let devices = devices();
        let kept = malloc(&devices, MIB).unwrap();
        let why = "of two blocks at one address";
        let broken = match mem::replace(&mut *devices.lock(0).unwrap(), State::Untouched) {
            State::Ready(device) => State::Broken(device, why.to_owned()),
            other => other,
        };
        *devices.lock(0).unwrap() = broken;
        for failed in [malloc(&devices, 1).map(|_| ()), devices.free(0, kept)] {
            assert!(failed.unwrap_err().message.ends_with(why));
        }
        assert_eq!(devices.stats(0).unwrap().allocation.all.current, 1);
        devices.empty_cache().unwrap();
    }

    #[test]
    fn many_threads_get_memory_of_their_own() {
        let devices = devices();
        let work = |seed: u64| {
            let devices = &devices;
            move || {
                let mut live = Vec::new();
                for step in 0..2000_u64 {
                    let ordinal = i32::from(step % 3 == 0);
                    let bytes = (seed * 7919 + step * 104_729) % (2 * MIB) + 1;
                    if let Ok(addr) = devices.malloc(ordinal, bytes, StreamId::DEFAULT) {
                        live.push((ordinal, addr));
                    }
                    if step % 2 == 0 && !live.is_empty() {
                        let (ordinal, addr) = live.swap_remove(step as usize % live.len());
                        devices.free(ordinal, addr).unwrap();
                    }
                }
                live
            }
        };
        let live: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|seed| scope.spawn(work(seed))).collect();
            let lists = threads.into_iter().map(|thread| thread.join().unwrap());
            lists.flatten().collect()
        });
        let distinct: BTreeSet<_> = live.iter().map(|(_, addr)| *addr).collect();
        assert_eq!(distinct.len(), live.len());
        for (ordinal, addr) in live {
            devices.free(ordinal, addr).unwrap();
        }
        for ordinal in 0..2 {
            let State::Ready(device) = &*devices.lock(ordinal).unwrap() else {
                panic!("device {ordinal} is not ready")
            };
            device.check().unwrap();
            assert_eq!(device.stats().active.all.current, 0);
        }
    }
}
