//! RMM's bins: a request gets a block of the smallest bin that it fits. Larger requests go to the pool that
//! the bins take their memory from.
//!
//! The bins have blocks of 256 KiB, 512 KiB, 1 MiB, 2 MiB and 4 MiB, as in RMM's benchmarks. Each takes its
//! first 128 blocks in advance, 992 MiB in all. If the device does not have that much, every request fails
//! and nothing stays reserved. A bin that cannot grow does not pass its requests on to the pool.
//!
//! | setting | default | |
//! |---|---|---|
//! | `min_size_exponent` | 18 | binary logarithm of the smallest bin's block size |
//! | `max_size_exponent` | 22 | the same of the largest bin |
//! | `initial_pool_size`, `maximum_pool_size` | | as in the [pool](super::rmm_pool) |
//!
//! Source: librmm 26.10, `binning_memory_resource`. For the differences see
//! [`fixed_size`](super::rmm::fixed_size).

use crate::base::check::Violation;
use crate::driver::{Driver, StreamId};

use super::rmm::fixed_size::FixedSize;
use super::rmm_pool::RmmPool;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served};

/// See the [module](self).
#[derive(Debug)]
pub struct RmmBinning {
    pool: RmmPool,
    /// Smallest blocks first.
    bins: Vec<FixedSize>,
    /// Whether the initial memory of the pool and of all bins is taken.
    begun: bool,
}

impl RmmBinning {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let smallest = take_exponent(settings, "min_size_exponent", 18)?;
        let largest = take_exponent(settings, "max_size_exponent", 22)?;
        let pool = RmmPool::from_settings(settings)?;
        let bins = (smallest..=largest).map(|exponent| FixedSize::new(1 << exponent));
        Ok(Self {
            pool,
            bins: bins.collect(),
            begun: false,
        })
    }

    /// Takes the initial memory at the first request.
    fn begin(&mut self, device: &mut dyn Driver) -> Served {
        if self.begun {
            return Ok(());
        }
        let taken = self.take_first_memory(device);
        self.begun = taken.is_ok();
        if taken.is_err() {
            // Memory that cannot be returned is kept for the next attempt.
            self.return_idle_memory(device).ok();
        }
        taken
    }

    fn take_first_memory(&mut self, device: &mut dyn Driver) -> Served {
        self.pool.begin(device)?;
        let mut bins = self.bins.iter_mut();
        bins.try_for_each(|bin| bin.begin(device, &mut self.pool))
    }

    fn return_idle_memory(&mut self, device: &mut dyn Driver) -> Served {
        for bin in &mut self.bins {
            bin.return_idle_chunks(device, &mut self.pool)?;
        }
        self.pool.empty_cache(device)
    }
}

/// Returns the smallest bin with blocks of at least `bytes`.
fn bin_for(bins: &mut [FixedSize], bytes: u64) -> Option<&mut FixedSize> {
    bins.iter_mut().find(|bin| bytes <= bin.block_bytes())
}

/// Takes the binary logarithm of a block size: at least that of 256, and small enough for RMM's
/// `1 << exponent`, an `int`.
fn take_exponent(
    settings: &mut PolicySettings,
    key: &'static str,
    default: u32,
) -> Result<u32, PolicySettingsError> {
    let exponent = settings.take(key, default)?;
    if (8..31).contains(&exponent) {
        return Ok(exponent);
    }
    Err(PolicySettingsError::invalid(
        key,
        exponent,
        "not between 8 and 30",
    ))
}

impl Policy for RmmBinning {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.begin(device)?;
        match bin_for(&mut self.bins, bytes) {
            Some(bin) => bin.malloc(device, &mut self.pool, stream),
            None => self.pool.malloc(device, bytes, stream),
        }
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        match bin_for(&mut self.bins, block.bytes) {
            Some(bin) => bin.free(device, block),
            None => self.pool.free(device, block),
        }
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.return_idle_memory(device)?;
        if self.pool.is_empty() {
            self.begun = false;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.bins.iter().try_for_each(FixedSize::check)?;
        self.pool.check()
    }
}
