//! Best fit with coalescing: the allocator of TensorFlow, XLA and JAX.
//!
//! Memory is taken from the device in few large regions, by default in one: three quarters of the device
//! at the first request. A request gets the smallest idle chunk that is large enough, the lowest address
//! among equals. The rest, at the high end, is split off if it is at least as large as the request or
//! 128 MiB; otherwise it is part of the block. A freed chunk is merged with its idle neighbours at once.
//! Regions are kept. It supports one stream.
//!
//! | setting | default | |
//! |---|---|---|
//! | `growth` | `false` | take regions as needed: 2 MiB, then each twice as large as the last (`allow_growth`) |
//! | `fraction` | `0.75` | fraction of device memory to take at first, or with `growth` at most |
//! | `limit` | | the same in bytes (`gpu_system_memory_size` of XLA, `memory_limit` of TensorFlow) |
//! | `garbage_collection` | `false` | return idle regions and try again before a request fails |
//! | `fragmentation_fraction` | `0` | replaces the 128 MiB: fraction of the limit; 0 for 128 MiB |
//!
//! The defaults are those of JAX. TensorFlow does not grow by default either, but it collects garbage
//! (`TF_ENABLE_GPU_GARBAGE_COLLECTION`) and has its own rule for the share of device memory.
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.{h,cc}` at bd4780a, without spatial
//! partitioning. The binaries of JAX 0.12.0.1 (`jax-cuda13-pjrt`) and TensorFlow 2.21.0 make the same
//! decisions. Constants: chunks of 256 bytes, at most 128 MiB of internal fragmentation, a first region
//! of 2 MiB, limits rounded up to 2 MiB, nine tenths of the size after the device refuses a region.
//!
//! Differences:
//! - The original sorts idle chunks into bins by size. Here one ordered set gives the same order.
//! - A request that cannot be served fails at once. The original can wait 10 seconds for other threads.
//! - There is no timing counter that delays the reuse of freed chunks, and no alignment above 256 bytes.
//! - Regions that touch are not merged, as over XLA's `DeviceMemAllocator`.
//! - TensorFlow 2.21.0 rounds smaller regions up where JAX rounds them down, and never returns if the
//!   device refuses even the last 2304 bytes. Here it is as in JAX.

pub(super) mod supply;

use self::supply::{GRANULE, Supply, rounded};
use super::pieces::Pieces;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served, only_default};
use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, Status, StreamId};

/// The allocator of TensorFlow, XLA and JAX. See the [module](self).
#[derive(Debug)]
pub struct Bfc {
    supply: Supply,
    garbage_collection: bool,
    chunks: Pieces<()>,
}

impl Bfc {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let growth = settings.take("growth", false)?;
        let supply = Supply::from_settings(settings, growth)?;
        let garbage_collection = settings.take("garbage_collection", false)?;
        Ok(Self {
            supply,
            garbage_collection,
            chunks: Pieces::default(),
        })
    }

    /// Takes the best fit for a request, split to size.
    fn take_best_fit(&mut self, request: u64) -> Option<(DeviceAddr, u64)> {
        let (addr, bytes) = self.chunks.take_best_fit((), request)?;
        if !self.supply.should_split(bytes, request) {
            return Some((addr, bytes));
        }
        let rest = self.chunks.cut(addr, request, 0);
        self.chunks.free(rest);
        Some((addr, request))
    }

    /// Takes a region from the device that has room for the request.
    fn extend(&mut self, device: &mut dyn Driver, request: u64) -> Served {
        let (addr, bytes) = self.supply.take(device, request)?;
        self.chunks.add(addr, bytes, (), 0);
        self.chunks.free(addr);
        Ok(())
    }

    /// Returns all idle regions if that makes room below the limit. Returns whether it does.
    fn collect_garbage(&mut self, device: &mut dyn Driver, request: u64) -> Served<bool> {
        if !self.garbage_collection {
            return Ok(false);
        }
        let regions = self.chunks.idle_allocations();
        let idle: u64 = regions.iter().map(|&(_, bytes)| bytes).sum();
        let makes_room = idle > 0 && request <= self.supply.available(device) + idle;
        if makes_room {
            self.release_idle_regions(device)?;
        }
        Ok(makes_room)
    }

    /// Returns the idle regions by address.
    fn release_idle_regions(&mut self, device: &mut dyn Driver) -> Status {
        let mut idle = self.chunks.idle_allocations();
        idle.sort_unstable();
        for region in idle {
            self.supply.give_back(device, region)?;
            self.chunks.remove(region.0);
        }
        Ok(())
    }
}

impl Policy for Bfc {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
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
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, _device: &mut dyn Driver, block: Block) -> Served {
        self.chunks.free(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        Ok(self.release_idle_regions(device)?)
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check(GRANULE)?;
        self.supply.check(self.chunks.bytes())
    }
}
