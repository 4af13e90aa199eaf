//! Best fit with coalescing: the allocator of TensorFlow, XLA and JAX.
//!
//! Memory is taken from the device in few large regions, by default in one: three quarters of the
//! device at the first request. A request gets the smallest idle chunk that is large enough, the one
//! of the lowest address among equals. What it leaves over at the high end is cut off if that is at
//! least as much as the request, or 128 MiB, and else given away with it. A chunk that is freed is
//! joined with its idle neighbours at once. Regions are kept. There is one stream.
//!
//! | knob | default | |
//! |---|---|---|
//! | `growth` | `false` | take regions as they are needed: 2 MiB, then each twice as large as the last (`allow_growth`) |
//! | `fraction` | `0.75` | of the device's memory: what is taken at first, or with `growth` at most |
//! | `limit` | | the same in bytes (`gpu_system_memory_size` of XLA, `memory_limit` of TensorFlow) |
//! | `garbage_collection` | `false` | when no memory is left, give idle regions back and try again |
//! | `fragmentation_fraction` | `0` | instead of 128 MiB: this fraction of the limit, unless it is 0 |
//!
//! The defaults are those of JAX. TensorFlow does not grow by default either, but collects garbage
//! (`TF_ENABLE_GPU_GARBAGE_COLLECTION`) and has its own rule for what it takes of the device.
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.{h,cc}` read at bd4780a, with its spatial
//! partitioning off; the binaries of JAX 0.12.0.1 (`jax-cuda13-pjrt`) and TensorFlow 2.21.0 make the
//! same decisions. Constants: chunks of 256 bytes, 128 MiB given away; first regions of 2 MiB, limits
//! rounded up to 2 MiB, nine tenths of a region that the device does not have.
//!
//! **What differs:** what the original sorts into bins by size is one ordered set here, in the same
//! order. A request that cannot be served fails at once; the original can wait 10 seconds for another
//! thread to free something. There is no timing counter that holds freed chunks back, and no alignment
//! to more than 256 bytes. Regions that touch are not joined, as over XLA's `DeviceMemAllocator`.
//! TensorFlow 2.21.0 rounds smaller regions up where JAX rounds them down, and never returns if the
//! device refuses it even the last 2304 bytes; here it is as in JAX.

pub(super) mod chunks;
pub(super) mod supply;

use std::collections::BTreeSet;

use self::chunks::{Chunks, rounded};
use self::supply::Supply;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, only_default};
use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};

/// The allocator of TensorFlow, XLA and JAX. See the [module](self).
#[derive(Debug)]
pub struct Bfc {
    supply: Supply,
    garbage_collection: bool,
    chunks: Chunks<()>,
    /// The idle chunks by bytes, then address.
    idle: BTreeSet<(u64, DeviceAddr)>,
}

impl Bfc {
    /// The policy with the settings that `conf` sets.
    ///
    /// # Errors
    /// [`PolicySettingsError`] if `conf` has a knob that does not exist, or a value that is none.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let growth = settings.take("growth", false)?;
        let supply = Supply::from_settings(settings, growth)?;
        let garbage_collection = settings.take("garbage_collection", false)?;
        Ok(Self {
            supply,
            garbage_collection,
            chunks: Chunks::default(),
            idle: BTreeSet::new(),
        })
    }

    /// Takes the idle chunk that the request gets, cut to size.
    fn take_best_fit(&mut self, request: u64) -> Option<(DeviceAddr, u64)> {
        let fitting = (request, DeviceAddr::NULL)..;
        let &(bytes, addr) = self.idle.range(fitting).next()?;
        self.idle.remove(&(bytes, addr));
        let mut taken = bytes;
        if self.supply.should_split(bytes, request) {
            let rest = self.chunks.cut(addr, request);
            self.idle.insert((bytes - request, rest));
            taken = request;
        }
        self.chunks.get_mut(addr)?.in_use = true;
        Some((addr, taken))
    }

    /// Adds a region that has room for the request.
    fn extend(&mut self, device: &mut dyn Driver, request: u64) -> Result<(), Refusal> {
        let (addr, bytes) = self.supply.take(device, request)?;
        self.chunks.add_region(addr, bytes, ());
        self.idle.insert((bytes, addr));
        Ok(())
    }

    /// Gives all idle regions back if that makes room below the limit. Whether it does.
    fn collect_garbage(&mut self, device: &mut dyn Driver, request: u64) -> Result<bool, Refusal> {
        if !self.garbage_collection {
            return Ok(false);
        }
        let regions = self.chunks.idle_regions();
        let idle: u64 = regions.iter().map(|&(_, bytes)| bytes).sum();
        let makes_room = idle > 0 && request <= self.supply.available(device) + idle;
        if makes_room {
            self.release_idle_regions(device)?;
        }
        Ok(makes_room)
    }

    fn release_idle_regions(&mut self, device: &mut dyn Driver) -> Result<(), DriverError> {
        for (addr, bytes) in self.chunks.idle_regions() {
            self.supply.give_back(device, (addr, bytes))?;
            self.chunks.remove_region(addr);
            self.idle.remove(&(bytes, addr));
        }
        Ok(())
    }
}

impl Policy for Bfc {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        only_default(stream)?;
        let request = rounded(bytes);
        let mut found = self.take_best_fit(request);
        if found.is_none() {
            match self.extend(device, request) {
                Err(Refusal::OutOfMemory) if self.collect_garbage(device, request)? => {
                    self.extend(device, request)?;
                }
                extended => extended?,
            }
            found = self.take_best_fit(request);
        }
        let (addr, bytes) = found.ok_or(Refusal::OutOfMemory)?;
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        let chunk = self.chunks.get_mut(block.addr);
        chunk.ok_or(DriverError::InvalidValue)?.in_use = false;
        let idle = &mut self.idle;
        let addr = self.chunks.coalesce(block.addr, |neighbour, chunk| {
            idle.remove(&(chunk.bytes, neighbour));
        });
        if let Some(chunk) = self.chunks.get(addr) {
            self.idle.insert((chunk.bytes, addr));
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        Ok(self.release_idle_regions(device)?)
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check()?;
        let chunks = self.chunks.iter();
        let held: u64 = chunks.map(|(_, chunk)| chunk.bytes).sum();
        ensure!(
            held == self.supply.held(),
            "{held} bytes in chunks, {} held",
            self.supply.held()
        );
        let chunks = self.chunks.iter().filter(|(_, chunk)| !chunk.in_use);
        let idle: BTreeSet<_> = chunks.map(|(addr, chunk)| (chunk.bytes, addr)).collect();
        ensure!(
            idle == self.idle,
            "idle chunks {idle:?}, listed {:?}",
            self.idle
        );
        Ok(())
    }
}
