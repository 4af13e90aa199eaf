//! The allocator of one device, with any policy.

mod hardened;
mod malloc;
mod pools;
mod retired;
mod special;

use std::collections::HashSet;

use coalesce_alloc::driver::hooks::limit::Limit;
use coalesce_alloc::driver::tap::Tap;
use coalesce_alloc::driver::{DeviceAddr, Driver, DriverError, HandleKind, SharedPage};
use coalesce_alloc::error::Error;
use coalesce_alloc::history::{HistoryOptions, Listener};
use coalesce_alloc::pytorch::ExpandableSegmentSize;
use coalesce_alloc::pytorch::share::Shareable;
use coalesce_alloc::registry::{self, BuildError, POLICIES};
use coalesce_alloc::settings::Settings;
use coalesce_alloc::snapshot::{BlockInfo, SegmentInfo, Snapshot};
use coalesce_alloc::{Allocator, MempoolId, PyTorch, WithHistory};

pub use self::malloc::Malloc;
use self::retired::Retired;
use crate::conf::Choice;
use crate::hardened::{Hardened, Stack};
use crate::opened::OpenedPages;

/// A device with a limit, for policies that do not limit themselves.
type Limited<D> = Tap<D, Limit>;

/// The allocator of one device of several.
pub struct DeviceAllocator<D: Driver> {
    ordinal: u32,
    policy: Policy<D>,
    /// What the mode `harden` knows, if it is on.
    hardened: Option<Hardened>,
    /// Whether it ever had a private pool.
    had_pools: bool,
    /// The reference, for the pools that another policy does not serve.
    special: Option<Box<Self>>,
    /// These pools.
    special_pools: HashSet<MempoolId>,
    /// The policy that this one replaced.
    retired: Option<Box<Retired<D>>>,
    /// The devices that may use its memory.
    peers: Vec<u32>,
}

enum Policy<D: Driver> {
    /// The reference, which records its own history.
    Reference(Box<PyTorch<Limited<D>>>),
    /// Another policy.
    Other {
        name: &'static str,
        allocator: Box<WithHistory<Box<dyn Allocator<Driver = Limited<D>>>>>,
    },
}

impl<D: Driver + 'static> DeviceAllocator<D> {
    /// Creates an allocator for `device`, the `ordinal`-th, that keeps a history of so many entries.
    ///
    /// # Errors
    /// If the policy cannot be built, which a valid [`Conf`](crate::conf::Conf) rules out.
    pub fn new(
        ordinal: u32,
        device: D,
        policy: &Choice,
        history: Option<usize>,
    ) -> Result<Self, BuildError> {
        let limit = Limit::new(u64::MAX, device.granularity());
        let device = Tap::over(device, limit);
        let history = history.map(|max_entries| HistoryOptions {
            max_entries,
            ..HistoryOptions::default()
        });
        let policy = match policy {
            Choice::Reference(settings) => {
                let mut allocator = PyTorch::for_device(ordinal, device, (**settings).clone());
                allocator.record_history(history);
                Policy::Reference(Box::new(allocator))
            }
            Choice::Other { name, conf } => {
                let allocator = registry::build(name, device, conf)?;
                let mut allocator = WithHistory::new(allocator);
                allocator.record_history(history);
                let info = POLICIES.iter().find(|info| info.name == name);
                Policy::Other {
                    name: info.map_or("the policy", |info| info.name),
                    allocator: Box::new(allocator),
                }
            }
        };
        Ok(Self {
            ordinal,
            policy,
            hardened: None,
            had_pools: false,
            special: None,
            special_pools: HashSet::new(),
            retired: None,
            peers: Vec::new(),
        })
    }

    /// Takes the place of a policy that failed, with its limit.
    ///
    /// # Errors
    /// If the driver cannot give the peers of the device access to its memory.
    pub fn instead_of(&mut self, failed: Self) -> Result<(), Error> {
        let _ = self.set_memory_fraction(failed.memory_fraction());
        let peers = failed.peers.clone();
        self.retired = Some(Box::new(Retired::new(failed)));
        peers
            .into_iter()
            .try_for_each(|peer| self.open_to_peer(peer))
    }

    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        match self.policy {
            Policy::Reference(_) => "pytorch",
            Policy::Other { name, .. } => name,
        }
    }

    /// Whether it ever had a private pool, whose memory a graph may use.
    #[must_use]
    pub fn had_pools(&self) -> bool {
        self.had_pools
    }

    /// Frees a live allocation, also one of the policy that this one replaced. With the stack of the call, what the mode
    /// `harden` knows is kept.
    ///
    /// # Errors
    /// As [`Allocator::free`]; [`Error::VirtualMemory`] if the device does not take back memory of the other policy.
    pub fn free(&mut self, addr: DeviceAddr, stack: Option<&Stack>) -> Result<(), Error> {
        if let (Some((hardened, allocator)), Some(stack)) = (self.hardened(), stack) {
            return hardened.free(allocator, addr, stack);
        }
        let freed = self.allocator_mut().free(addr);
        match (freed, &mut self.special, &mut self.retired) {
            (Err(Error::InvalidPointer(_)), Some(special), _) => special.free(addr, stack),
            (Err(Error::InvalidPointer(_)), None, Some(retired)) => retired.free(addr),
            (freed, ..) => freed,
        }
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
        if let Some(special) = &mut self.special {
            special.allocator_mut().driver_mut().hook_mut().set(limit);
        }
        Ok(())
    }

    /// Returns the limit as a fraction of the device's memory; 1 without a limit.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.memory_fraction();
        }
        let device = self.allocator().driver();
        let share = device.hook().bytes() as f64 / device.total_memory().max(1) as f64;
        share.min(1.0)
    }

    /// Gives another device access to the memory of this one.
    ///
    /// # Errors
    /// If the device fails.
    pub fn open_to_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.allocator_mut().driver_mut().open_to_peer(peer)?;
        self.peers.push(peer);
        let special = self.special.as_mut();
        special.map_or(Ok(()), |special| special.open_to_peer(peer))
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

    /// Returns what another process opens to use a live allocation. Policies that map memory share all mappings that contain
    /// a part of it.
    ///
    /// # Errors
    /// As [`PyTorch::share`].
    pub fn share(&mut self, addr: DeviceAddr) -> Result<Shareable, Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.share(addr);
        }
        let bytes = self.block_size(addr)?;
        let device = self.allocator_mut().driver_mut();
        let Some((start, mappings)) = device.hook().held().mappings_around(addr, bytes) else {
            let (start, _) = self.base_allocation(addr)?;
            return Ok(Shareable::Segment { start });
        };
        let memory = device.virtual_memory();
        let memory = memory.ok_or(Error::VirtualMemory(DriverError::NotSupported))?;
        let pages = mappings.iter().map(|mapping| {
            let handle = memory.export(mapping.handle, HandleKind::FileDescriptor)?;
            let bytes = mapping.bytes;
            Ok(SharedPage { bytes, handle })
        });
        let pages = pages.collect::<Result<_, _>>();
        let pages = pages.map_err(Error::VirtualMemory)?;
        Ok(Shareable::Pages { start, pages })
    }

    /// Opens pages of another process. No limit counts them.
    ///
    /// # Errors
    /// As [`OpenedPages::open`].
    pub fn open_pages(&mut self, pages: &[SharedPage]) -> Result<OpenedPages, Error> {
        let device = self.allocator_mut().driver_mut().driver_mut();
        OpenedPages::open(device, pages).map_err(Error::VirtualMemory)
    }

    /// Closes pages of another process.
    ///
    /// # Errors
    /// As [`OpenedPages::close`].
    pub fn close_pages(&mut self, pages: OpenedPages) -> Result<(), Error> {
        let device = self.allocator_mut().driver_mut().driver_mut();
        pages.close(device).map_err(Error::VirtualMemory)
    }

    /// Returns the sizes of the expandable segments; none for other policies than the reference.
    #[must_use]
    pub fn expandable_segment_sizes(&self) -> Vec<ExpandableSegmentSize> {
        match &self.policy {
            Policy::Reference(allocator) => allocator.expandable_segment_sizes().collect(),
            Policy::Other { .. } => Vec::new(),
        }
    }

    /// Returns the bytes of the largest free block, or of the free device memory if that is more.
    ///
    /// # Errors
    /// If the device fails.
    pub fn largest_free(&mut self) -> Result<u64, Error> {
        if let Policy::Reference(allocator) = &mut self.policy {
            return allocator.largest_free();
        }
        let device = self.allocator_mut().driver_mut().memory_info()?.free;
        let segments = self.allocator().segments();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let free = blocks.filter(|block| !block.is_active());
        Ok(free.map(|block| block.size).fold(device, u64::max))
    }

    /// Returns the bytes of the block of a live allocation.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if `addr` is not the start of a live allocation.
    pub fn block_size(&self, addr: DeviceAddr) -> Result<u64, Error> {
        if let Policy::Reference(allocator) = &self.policy {
            return allocator.block_size(addr);
        }
        let segments = self.allocator().segments();
        let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let block = blocks.find(|block| block.address == addr && block.is_allocated());
        block
            .map(|block| block.size)
            .ok_or(Error::InvalidPointer(addr))
    }

    /// Changes the settings (`torch.cuda.memory._set_allocator_settings`). Other policies than the reference
    /// ignore them.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn apply_settings(&mut self, conf: &str) -> Result<(), Error> {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.apply_settings(conf),
            Policy::Other { .. } => Ok(()),
        }
    }

    /// Returns the settings of the reference, `None` for other policies.
    #[must_use]
    pub fn settings(&self) -> Option<&Settings> {
        match &self.policy {
            Policy::Reference(allocator) => Some(allocator.settings()),
            Policy::Other { .. } => None,
        }
    }

    /// Sends each entry of the history to a listener that `make` creates, from now on.
    pub fn listen(&mut self, make: &dyn Fn() -> Listener) {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.listen(Some(make())),
            Policy::Other { allocator, .. } => allocator.listen(Some(make())),
        }
        if let Some(special) = &mut self.special {
            special.listen(make);
        }
    }

    /// Sets all totals and counters to zero.
    pub fn reset_accumulated_stats(&mut self) {
        match &mut self.policy {
            Policy::Reference(allocator) => allocator.reset_accumulated_stats(),
            Policy::Other { allocator, .. } => allocator.reset_accumulated_stats(),
        }
        if let Some(special) = &mut self.special {
            special.reset_accumulated_stats();
        }
    }

    /// Returns the segments of a private pool, or all for [`MempoolId::DEFAULT`]. The reference adds the entry to
    /// its history that PyTorch adds. The segments of other policies belong to no private pool: several pools may have
    /// blocks in one segment.
    pub fn observed_segments(&mut self, pool: MempoolId) -> Vec<SegmentInfo> {
        let mut segments = match &mut self.policy {
            Policy::Reference(allocator) => return allocator.observed_segments(pool),
            Policy::Other { allocator, .. } => allocator.segments(),
        };
        segments.retain(|segment| pool == MempoolId::DEFAULT || segment.pool == pool);
        let special = self.special.as_mut();
        segments.extend(
            special
                .into_iter()
                .flat_map(|it| it.observed_segments(pool)),
        );
        segments
    }

    /// Returns a snapshot, with the history if one is recorded.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = match &mut self.policy {
            Policy::Reference(allocator) => allocator.snapshot(),
            Policy::Other { allocator, .. } => allocator.snapshot(),
        };
        for segment in &mut snapshot.segments {
            segment.device = self.ordinal;
        }
        snapshot
    }

    /// Sets the device number in an error message: the allocator itself knows only one device. Other policies than the
    /// reference do not know the limit either.
    fn of_this_device(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory(details) = &mut error {
            details.device = self.ordinal;
            let limit = self.allocator().driver().hook().bytes();
            if matches!(self.policy, Policy::Other { .. }) && limit < u64::MAX {
                details.limit = Some(limit);
            }
        }
        error
    }

    /// Returns the allocator, for what all policies serve alike. Memory is requested with [`Self::malloc`].
    #[must_use]
    pub fn allocator(&self) -> &dyn Allocator<Driver = Limited<D>> {
        match &self.policy {
            Policy::Reference(allocator) => &**allocator,
            Policy::Other { allocator, .. } => &**allocator,
        }
    }

    /// As [`Self::allocator`], mutable.
    pub fn allocator_mut(&mut self) -> &mut dyn Allocator<Driver = Limited<D>> {
        match &mut self.policy {
            Policy::Reference(allocator) => &mut **allocator,
            Policy::Other { allocator, .. } => &mut **allocator,
        }
    }
}
