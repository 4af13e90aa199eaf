//! The allocators of all devices of the process, each behind a lock.

mod blocks;
mod hardened;
mod reference;

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{mem, panic};

use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::Listener;
use coalesce_alloc::pytorch::share::Shareable;
use coalesce_alloc::release::{Release, v2};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::Snapshot;
use coalesce_alloc::stats::DeviceStats;
use coalesce_alloc::{MempoolId, Shared, SharedGuard};

pub use self::hardened::StackSource;
use crate::conf::{Choice, Conf, ConfError, Harden};
use crate::device::DeviceAllocator;
use crate::failure::{Failure, guarded};

/// Maximum number of devices: PyTorch's `DeviceIndex` is a signed 8-bit integer.
const MOST_DEVICES: usize = 128;

/// The state of one device.
enum State<D: Driver> {
    /// Not used yet. Its cache was emptied so many times, which PyTorch counts.
    Untouched { emptied: u32 },
    /// In use.
    Ready(DeviceAllocator<D>),
    /// A panic has corrupted its allocator, for the given reason. It serves no more calls, and its memory
    /// stays allocated because the program may still use it.
    Broken(DeviceAllocator<D>, String),
}

/// All devices of the process, opened on first use.
pub struct Devices<D: Driver> {
    open: fn(u32) -> Result<D, String>,
    variable: fn(&str) -> Option<String>,
    /// The installed release of PyTorch, if it was named.
    installed: OnceLock<Release>,
    conf: OnceLock<Result<Conf, ConfError>>,
    states: [Shared<State<D>>; MOST_DEVICES],
    /// One more than the highest ordinal used so far.
    used: AtomicUsize,
    /// Makes the listener of a device's history.
    listener: OnceLock<fn(u32) -> Listener>,
    is_listening: AtomicBool,
    /// The settings strings applied at run time, in order.
    changes: Shared<Vec<String>>,
    /// Whether PyTorch uses the complete interface.
    is_complete: AtomicBool,
    /// Returns the stack of the calling thread, for the mode `harden`.
    stacks: Shared<Option<StackSource>>,
}

impl<D: Driver + 'static> Devices<D> {
    /// Creates the table. `open` opens a device by its number or returns the reason why it cannot; `variable`
    /// reads the environment, once.
    #[must_use]
    pub const fn new(
        open: fn(u32) -> Result<D, String>,
        variable: fn(&str) -> Option<String>,
    ) -> Self {
        Self {
            open,
            variable,
            installed: OnceLock::new(),
            conf: OnceLock::new(),
            states: [const { Shared::new(State::UNTOUCHED) }; MOST_DEVICES],
            used: AtomicUsize::new(0),
            listener: OnceLock::new(),
            is_listening: AtomicBool::new(false),
            changes: Shared::new(Vec::new()),
            is_complete: AtomicBool::new(false),
            stacks: Shared::new(None),
        }
    }

    /// Names the installed version of PyTorch, before any other call: the environment is read once, for
    /// [`Release::DEFAULT`] if no version was named. Returns a warning if that release is not reproduced and
    /// the nearest one is followed.
    pub fn set_installed(&self, version: &str) -> Option<String> {
        let release = version.parse().ok();
        self.installed
            .get_or_init(|| release.unwrap_or(Release::NEWEST));
        let followed = self.conf().ok()?.torch;
        let nearest = release.map_or(Release::NEWEST, Release::reproduced);
        (release != Some(nearest) && followed == nearest).then(|| {
            format!(
                "Coalesce reproduces PyTorch {} to {}, not {version}; it follows {followed}",
                Release::OLDEST,
                Release::NEWEST
            )
        })
    }

    /// Returns the settings in the environment.
    ///
    /// # Errors
    /// If they are invalid. All other calls then fail too.
    pub fn conf(&self) -> Result<&Conf, Failure> {
        let conf = self.conf.get_or_init(|| {
            let installed = self.installed.get().copied().unwrap_or_default();
            Conf::from_env(self.variable, installed)
        });
        conf.as_ref()
            .map_err(|error| Failure::new(error.to_string()))
    }

    /// Returns the settings in force; the default ones for other policies than the reference.
    ///
    /// # Errors
    /// If the environment is invalid.
    pub fn settings(&self) -> Result<Settings, Failure> {
        let mut settings = self.conf()?.settings();
        for conf in &*self.changes.lock() {
            // What precedes an error takes effect.
            let _ = settings.apply(conf);
        }
        Ok(settings)
    }

    /// Changes the settings of all devices, also of those opened later
    /// (`torch.cuda.memory._set_allocator_settings`).
    ///
    /// # Errors
    /// If they are invalid; what precedes the error takes effect, as in PyTorch.
    pub fn apply_settings(&self, conf: &str) -> Result<(), Failure> {
        self.changes.lock().push(conf.to_owned());
        let mut applied = Ok(());
        self.each_ready(|_, device| {
            applied = device.apply_settings(conf);
            Ok(())
        })?;
        Ok(applied?)
    }

    /// From now on PyTorch says which devices may access each other's memory, and the listener keeps the
    /// history. Otherwise every device in use may access the memory of every other one.
    pub fn expect_complete_interface(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Sends the history of every device to the listener that `make` creates for it.
    ///
    /// # Errors
    /// As [`Self::with`].
    pub fn listen(&self, make: fn(u32) -> Listener) -> Result<(), Failure> {
        let make = *self.listener.get_or_init(|| make);
        self.is_listening.store(true, Ordering::Release);
        self.each_ready(|ordinal, device| {
            device.listen(&|| make(u32::try_from(ordinal).unwrap_or(u32::MAX)));
            Ok(())
        })
    }

    /// Limits the reserved memory of a device to a fraction of its memory.
    ///
    /// # Errors
    /// If the fraction is not between 0 and 1, or as [`Self::with`].
    pub fn set_memory_fraction(&self, ordinal: i32, fraction: f64) -> Result<(), Failure> {
        self.with(ordinal, |device| Ok(device.set_memory_fraction(fraction)?))
    }

    /// Records that a stream uses an allocation of any device. Other addresses are ignored, as in PyTorch.
    ///
    /// # Errors
    /// If a device fails.
    pub fn record_stream(&self, addr: DeviceAddr, stream: StreamId) -> Result<(), Failure> {
        self.owner(|_, device| device.record_stream(addr, stream))?;
        Ok(())
    }

    /// Returns the address and bytes of the segment of an allocation of any device.
    ///
    /// # Errors
    /// If there is no such allocation.
    pub fn base_allocation(&self, addr: DeviceAddr) -> Result<(DeviceAddr, u64), Failure> {
        let base = self.owner(|_, device| device.base_allocation(addr))?;
        base.ok_or_else(|| self.invalid(addr, self.stack().as_ref()))
    }

    /// Returns what another process opens to use an allocation of any device.
    ///
    /// # Errors
    /// If there is no such allocation, or the device cannot share it.
    pub fn share(&self, addr: DeviceAddr) -> Result<Shareable, Failure> {
        let shareable = self.owner(|_, device| device.share(addr))?;
        shareable.ok_or_else(|| Error::InvalidPointer(addr).into())
    }

    /// Returns cached memory of all devices.
    ///
    /// # Errors
    /// If a device fails.
    pub fn empty_cache(&self) -> Result<(), Failure> {
        self.each_ready(|_, device| Ok(device.empty_cache()?))
    }

    /// Returns the cached memory of one pool of a device, or all for [`MempoolId::DEFAULT`].
    ///
    /// # Errors
    /// If the ordinal is invalid or the device fails.
    pub fn empty_cache_of(&self, ordinal: i32, pool: MempoolId) -> Result<(), Failure> {
        match &mut *self.lock(ordinal)? {
            State::Untouched { emptied } if pool == MempoolId::DEFAULT => {
                *emptied = emptied.saturating_add(1);
                Ok(())
            }
            state @ State::Ready(_) => self.run(ordinal, state, |device| match pool {
                MempoolId::DEFAULT => Ok(device.empty_cache()?),
                _ => Ok(device.pools_with(pool)?.empty_pool(pool)?),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the statistics of a device, even of one that is not used or broken.
    ///
    /// # Errors
    /// If the environment or the ordinal is invalid.
    pub fn stats(&self, ordinal: i32) -> Result<DeviceStats, Failure> {
        match &*self.lock(ordinal)? {
            State::Ready(device) | State::Broken(device, _) => Ok(device.stats()),
            State::Untouched { emptied } => {
                let max_split_size = self.conf()?.settings().max_split_size();
                Ok(DeviceStats {
                    max_split_size: max_split_size.map_or(-1, u64::cast_signed),
                    num_sync_all_streams: (*emptied).into(),
                    ..DeviceStats::default()
                })
            }
        }
    }

    /// Resets the peaks of a device to the current values.
    ///
    /// # Errors
    /// If the ordinal is invalid.
    pub fn reset_peak_stats(&self, ordinal: i32) -> Result<(), Failure> {
        let reset = |device: &mut DeviceAllocator<D>| {
            device.reset_peak_stats();
            Ok(())
        };
        self.with_used(ordinal, reset).map(|_| ())
    }

    /// Runs `work` on a device if it is in use.
    ///
    /// # Errors
    /// If the ordinal is invalid, or the error of `work`.
    pub fn with_used<T>(
        &self,
        ordinal: i32,
        work: impl FnOnce(&mut DeviceAllocator<D>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        match &mut *self.lock(ordinal)? {
            state @ State::Ready(_) => self.run(ordinal, state, work).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns a snapshot of all devices, with a history for each of the first `count`.
    ///
    /// # Errors
    /// If the environment is invalid.
    pub fn snapshot(&self, count: usize) -> Result<Snapshot, Failure> {
        let mut all = Snapshot {
            segments: Vec::new(),
            device_traces: vec![Vec::new(); count.min(MOST_DEVICES)],
            entry_pools: Vec::new(),
            allocator_settings: self.conf()?.settings(),
        };
        self.each_ready(|ordinal, device| {
            let snapshot = device.snapshot();
            all.segments.extend(snapshot.segments);
            if let Some(trace) = all.device_traces.get_mut(ordinal) {
                trace.extend(snapshot.device_traces.into_iter().flatten());
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Runs `work` on a device and opens it on first use.
    ///
    /// # Errors
    /// If the environment or the ordinal is invalid, or the device cannot be used; or the error of `work`.
    pub fn with<T>(
        &self,
        ordinal: i32,
        work: impl FnOnce(&mut DeviceAllocator<D>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut state = self.lock(ordinal)?;
        if let State::Untouched { emptied } = *state {
            let mut device = self.make(ordinal, &self.conf()?.policy)?;
            for _ in 0..emptied {
                device.allocator_mut().empty_cache()?;
            }
            *state = State::Ready(device);
            if !self.is_complete.load(Ordering::Acquire) {
                drop(state);
                self.connect_peers(ordinal)?;
                state = self.lock(ordinal)?;
            }
        }
        match &mut *state {
            state @ State::Ready(_) => self.run(ordinal, state, work),
            State::Broken(_, why) => Err(Failure::new(format!(
                "device {ordinal} is disabled because of a bug in its allocator: {why}"
            ))),
            State::Untouched { .. } => Err(no_device(ordinal)),
        }
    }

    fn make(&self, ordinal: i32, policy: &Choice) -> Result<DeviceAllocator<D>, Failure> {
        let conf = self.conf()?;
        let number = u32::try_from(ordinal).map_err(|_| no_device(ordinal))?;
        let mut device = (self.open)(number)
            .map_err(|why| Failure::new(format!("cannot use device {ordinal}: {why}")))?;
        let history = conf
            .history
            .filter(|_| !self.is_complete.load(Ordering::Acquire));
        let mut policy = Cow::Borrowed(policy);
        if let Some(unserved) = policy.unserved_by(&mut device) {
            Failure::new(format!(
                "device {ordinal} has no virtual memory, which the policy {unserved} needs: \
                 PyTorch's own rules are used instead."
            ))
            .print();
            policy = Cow::Owned(Choice::Reference(conf.settings().into()));
        }
        let mut allocator = DeviceAllocator::new(number, device, &policy, history)
            .map_err(|error| Failure::new(error.to_string()))?;
        // An older PyTorch does not announce captures, but a newer release may be followed: then the device is asked.
        if self
            .installed
            .get()
            .is_some_and(|&installed| installed < v2(13))
        {
            allocator.mark_capture_begin();
        }
        for conf in &*self.changes.lock() {
            let _ = allocator.apply_settings(conf);
        }
        if self.is_listening.load(Ordering::Acquire)
            && let Some(make) = self.listener.get()
        {
            allocator.listen(&|| make(number));
        }
        if let Some(mode) = conf.harden {
            allocator.harden(mode == Harden::Poison);
        }
        let used = usize::try_from(ordinal).unwrap_or(0).saturating_add(1);
        self.used.fetch_max(used, Ordering::Release);
        Ok(allocator)
    }

    /// Enables peer access between a new device and all devices in use. PyTorch copies directly between
    /// devices where possible, and does not tell a pluggable allocator about it. Only one lock is held at a
    /// time. If two devices are opened at once, the second one to get here finds the first.
    fn connect_peers(&self, newcomer: i32) -> Result<(), Failure> {
        let number = u32::try_from(newcomer).map_err(|_| no_device(newcomer))?;
        let mut others = Vec::new();
        self.each_ready(|other, device| {
            let other = u32::try_from(other).unwrap_or(number);
            // An allocator of special pools comes after the other of its device.
            if other != number && others.last() != Some(&other) {
                device.open_to_peer(number)?;
                others.push(other);
            }
            Ok(())
        })?;
        self.with_used(newcomer, |device| {
            for other in others {
                device.open_to_peer(other)?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Runs `work` on every allocator of every device in use, in order.
    ///
    /// # Errors
    /// The first error of `work`.
    pub fn each_ready(
        &self,
        mut work: impl FnMut(usize, &mut DeviceAllocator<D>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let used = self.used.load(Ordering::Acquire);
        for (ordinal, state) in self.states.iter().enumerate().take(used) {
            if let state @ State::Ready(_) = &mut *state.lock() {
                let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
                self.run(number, state, |device| {
                    work(ordinal, device)?;
                    device
                        .special()
                        .map_or(Ok(()), |special| work(ordinal, special))
                })?;
            }
        }
        Ok(())
    }

    /// Returns the answer of the device that knows an address, `None` if no device does.
    ///
    /// # Errors
    /// Any other error than [`Error::InvalidPointer`].
    pub fn owner<T>(
        &self,
        mut ask: impl FnMut(usize, &mut DeviceAllocator<D>) -> Result<T, Error>,
    ) -> Result<Option<T>, Failure> {
        let mut answer = None;
        self.each_ready(|ordinal, device| {
            if answer.is_none() {
                match ask(ordinal, device) {
                    Ok(value) => answer = Some(value),
                    Err(Error::InvalidPointer(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })?;
        Ok(answer)
    }

    fn lock(&self, ordinal: i32) -> Result<SharedGuard<'_, State<D>>, Failure> {
        let index = usize::try_from(ordinal).map_err(|_| no_device(ordinal))?;
        let state = self.states.get(index).ok_or_else(|| no_device(ordinal))?;
        Ok(state.lock())
    }
}

impl<D: Driver + 'static> State<D> {
    const UNTOUCHED: Self = Self::Untouched { emptied: 0 };

    /// Runs `work` on a device in use. If it panics, the device stays in use only if its allocator is
    /// consistent.
    fn run<T>(
        &mut self,
        work: impl FnOnce(&mut DeviceAllocator<D>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Self::Ready(device) = self else {
            return Err(Failure::new("the device is not in use"));
        };
        let done = panic::catch_unwind(panic::AssertUnwindSafe(|| work(&mut *device)));
        let payload = match done {
            Ok(answer) => return answer,
            Err(payload) => payload,
        };
        let corruption = match guarded(|| Ok(device.allocator().check())) {
            Ok(Ok(())) => None,
            Ok(Err(violation)) => Some(violation.to_string()),
            Err(failure) => Some(failure.message),
        };
        if let Some(why) = corruption {
            *self = match mem::replace(self, Self::UNTOUCHED) {
                Self::Ready(device) => Self::Broken(device, why),
                other => other,
            };
        }
        Err(Failure::of_panic(&*payload))
    }
}

fn no_device(ordinal: i32) -> Failure {
    Failure::new(format!("no device {ordinal}"))
}

#[cfg(test)]
mod tests;
