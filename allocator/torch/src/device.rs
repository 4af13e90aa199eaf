//! The allocator of one device, with any policy.

use coalesce_alloc::Allocator;
use coalesce_alloc::PyTorch;
use coalesce_alloc::Violation;
use coalesce_alloc::WithHistory;
use coalesce_alloc::driver::hooks::limit::Limit;
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{DeviceAddr, Driver, StreamId};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::HistoryOptions;
use coalesce_alloc::policy::{self, BuildError};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, Snapshot};
use coalesce_alloc::stats::DeviceStats;

use crate::conf::{Choice, Conf};

/// A device with a limit, for policies that do not limit themselves.
type Limited<D> = Tap<D, Limit>;

/// The allocator of one device of several.
pub struct DeviceAllocator<D: Driver> {
    ordinal: u32,
    policy: Policy<D>,
}

enum Policy<D: Driver> {
    /// The reference, which records its own history.
    Reference(Box<PyTorch<Limited<D>>>),
    /// Another policy.
    Plain(Box<dyn Allocator<Driver = Limited<D>>>),
    /// Another policy with a history.
    WithHistory(Box<WithHistory<Box<dyn Allocator<Driver = Limited<D>>>>>),
}

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Creates an allocator for `device`, the `ordinal`-th.
    ///
    /// # Errors
    /// If the policy cannot be built, which a valid [`Conf`] rules out.
    pub fn new(ordinal: u32, device: D, conf: &Conf) -> Result<Self, BuildError> {
        let limit = Limit::new(u64::MAX, device.granularity());
        let device = Tap::over(device, limit);
        let history = conf.history.map(|max_entries| HistoryOptions {
            max_entries,
            ..HistoryOptions::default()
        });
        let policy = match &conf.policy {
            Choice::Reference(settings) => {
                let mut allocator = PyTorch::for_device(ordinal, device, (**settings).clone());
                allocator.record_history(history);
                Policy::Reference(Box::new(allocator))
            }
            Choice::Other { name, conf } => {
                let allocator = policy::build(name, device, conf)?;
                match history {
                    None => Policy::Plain(allocator),
                    Some(options) => {
                        Policy::WithHistory(Box::new(WithHistory::new(allocator, options)))
                    }
                }
            }
        };
        Ok(Self { ordinal, policy })
    }

    /// Allocates memory for work on `stream`.
    ///
    /// # Errors
    /// As [`Allocator::malloc`].
    pub fn malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, Error> {
        let answer = self.allocator_mut().malloc(bytes, stream);
        answer.map_err(|error| self.of_this_device(error))
    }

    /// Frees memory.
    ///
    /// # Errors
    /// As [`Allocator::free`].
    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.allocator_mut().free(addr)
    }

    /// Records that another stream uses an allocation.
    ///
    /// # Errors
    /// As [`Allocator::record_stream`].
    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.allocator_mut().record_stream(addr, stream)
    }

    /// Returns cached memory to the device.
    ///
    /// # Errors
    /// As [`Allocator::empty_cache`].
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.allocator_mut().empty_cache()
    }

    /// Limits reserved memory to a fraction of the device; 1 is no limit. Memory already held beyond it stays.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`] outside 0 to 1.
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.set_memory_fraction(fraction);
        }
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction));
        }
        let device = self.allocator_mut().driver_mut();
        let share = fraction * device.total_memory() as f64;
        let limit = if fraction < 1.0 {
            share as u64
        } else {
            u64::MAX
        };
        device.hook_mut().set(limit);
        Ok(())
    }

    /// Gives another device access to the memory of this one.
    ///
    /// # Errors
    /// If the device fails.
    pub fn open_to_peer(&mut self, peer: u32) -> Result<(), Error> {
        Ok(self.allocator_mut().driver_mut().open_to_peer(peer)?)
    }

    /// Returns the address and bytes of the segment of a live allocation.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn base_allocation(&self, addr: DeviceAddr) -> Result<(DeviceAddr, u64), Error> {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.base_allocation(addr);
        }
        let starts = |block: &BlockInfo| block.address == addr && block.is_allocated();
        let segments = self.allocator().segments();
        let around = segments.iter().find(|s| s.blocks.iter().any(starts));
        let base = around.map(|segment| (segment.address, segment.total_size()));
        base.ok_or(Error::InvalidPointer(addr))
    }

    /// Returns the statistics.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        self.allocator().stats()
    }

    /// Resets all peaks to the current values.
    pub fn reset_peak_stats(&mut self) {
        self.allocator_mut().reset_peak_stats();
    }

    /// Returns a snapshot, with the history if one is recorded.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = match &mut self.policy {
            Policy::Reference(allocator) => allocator.snapshot(),
            Policy::WithHistory(allocator) => allocator.snapshot(),
            Policy::Plain(allocator) => Snapshot {
                segments: allocator.segments(),
                device_traces: vec![Vec::new()],
                entry_pools: Vec::new(),
                allocator_settings: Settings::default(),
            },
        };
        for segment in &mut snapshot.segments {
            segment.device = self.ordinal;
        }
        snapshot
    }

    /// Verifies the allocator's state.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn check(&self) -> Result<(), Violation> {
        self.allocator().check()
    }

    /// Sets the device number in an error message. The allocator itself knows only one device.
    fn of_this_device(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(details) = &mut error {
            details.device = self.ordinal;
        }
        error
    }

    fn allocator(&self) -> &dyn Allocator<Driver = Limited<D>> {
        match &self.policy {
            Policy::Reference(allocator) => &**allocator,
            Policy::Plain(allocator) => &**allocator,
            Policy::WithHistory(allocator) => &**allocator,
        }
    }

    fn allocator_mut(&mut self) -> &mut dyn Allocator<Driver = Limited<D>> {
        match &mut self.policy {
            Policy::Reference(allocator) => &mut **allocator,
            Policy::Plain(allocator) => &mut **allocator,
            Policy::WithHistory(allocator) => &mut **allocator,
        }
    }
}
