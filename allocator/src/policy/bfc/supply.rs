//! How much memory is taken from the device, and how large a block may be in excess of its request.
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.cc`: the constructor, `Extend`,
//! `ShouldSplitChunk`; and `CreateBFCAllocator`, which rounds the limit up to 2 MiB.

use std::str::FromStr;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, DriverError, Status};
use crate::policy::settings::{PolicySettings, PolicySettingsError};
use crate::policy::{Refusal, Served};

/// Size and alignment of chunks are multiples of this many bytes (`kMinAllocationSize`).
pub(in crate::policy) const GRANULE: u64 = 256;

/// Rounds a request up to whole granules.
pub(in crate::policy) fn rounded(bytes: u64) -> u64 {
    bytes.next_multiple_of(GRANULE)
}

/// First region of a pool that grows, and the granularity of limits: 2 MiB.
const MIN_REGION: u64 = 2 << 20;

/// Default bound of a block's excess over its request: 128 MiB.
const MAX_INTERNAL_FRAGMENTATION: u64 = 128 << 20;

/// Factor by which a region shrinks after the device refuses it. The original computes in single
/// precision.
const BACKPEDAL_FACTOR: f32 = 0.9;

/// A fraction from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Fraction(f64);

impl Fraction {
    fn of(self, bytes: u64) -> u64 {
        (self.0 * bytes as f64) as u64
    }
}

impl FromStr for Fraction {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fraction = text.parse().map_err(|_| "not a number")?;
        if (0.0..=1.0).contains(&fraction) {
            Ok(Self(fraction))
        } else {
            Err("not between 0 and 1")
        }
    }
}

/// The settings that bound the memory.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Settings {
    growth: bool,
    /// The most bytes to reserve.
    limit: Option<u64>,
    /// The same as a fraction of device memory, if there is no `limit`.
    fraction: Fraction,
    /// Bound of a block's excess over its request, as a fraction of the limit; 0 for the default.
    fragmentation_fraction: Fraction,
}

/// The bounds in bytes, once the device is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limits {
    /// The most bytes of all regions together.
    total: u64,
    /// A block's excess over its request stays below this.
    internal_fragmentation: u64,
    /// Bytes of the next region, if there is room.
    next_region: u64,
}

/// The memory taken from the device, and the size of the next region.
#[derive(Debug)]
pub(in crate::policy) struct Supply {
    settings: Settings,
    /// Set at the first request.
    limits: Option<Limits>,
    /// Bytes of all regions.
    held: u64,
}

impl Supply {
    /// Takes its settings: `growth`, `limit`, `fraction`, `fragmentation_fraction`.
    pub(in crate::policy) fn from_settings(
        settings: &mut PolicySettings,
        growth: bool,
    ) -> Result<Self, PolicySettingsError> {
        Ok(Self {
            settings: Settings {
                growth,
                limit: settings.take_limit("limit")?,
                fraction: settings.take("fraction", Fraction(0.75))?,
                fragmentation_fraction: settings.take("fragmentation_fraction", Fraction(0.0))?,
            },
            limits: None,
            held: 0,
        })
    }

    fn limits(&mut self, device: &dyn Driver) -> &mut Limits {
        let settings = self.settings;
        self.limits.get_or_insert_with(|| {
            let of_device = || settings.fraction.of(device.total_memory());
            let total = settings
                .limit
                .unwrap_or_else(of_device)
                .div_ceil(MIN_REGION)
                .saturating_mul(MIN_REGION);
            Limits {
                total,
                internal_fragmentation: match settings.fragmentation_fraction {
                    Fraction(0.0) => MAX_INTERNAL_FRAGMENTATION,
                    // At least 1, so that an exact fit is not split.
                    fraction => fraction.of(total).max(1),
                },
                next_region: if settings.growth {
                    MIN_REGION.min(total)
                } else {
                    total
                },
            }
        })
    }

    /// Returns the bytes that can still be taken.
    pub(in crate::policy) fn available(&mut self, device: &dyn Driver) -> u64 {
        let held = self.held;
        self.limits(device).total.saturating_sub(held)
    }

    /// Whether the rest of a chunk is split off: if it is at least as large as the request or as the bound
    /// of the excess.
    pub(in crate::policy) fn should_split(&self, chunk: u64, request: u64) -> bool {
        let slack = self.limits.map_or(MAX_INTERNAL_FRAGMENTATION, |limits| {
            limits.internal_fragmentation
        });
        chunk >= 2 * request || chunk - request >= slack
    }

    /// Takes a region of at least `request` bytes: twice the last one, doubled until the request fits,
    /// but at most what the limit leaves. If the device refuses, tries nine tenths of the size, again and
    /// again.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if the limit or the device has no room for the request.
    pub(in crate::policy) fn take(
        &mut self,
        device: &mut dyn Driver,
        request: u64,
    ) -> Served<(DeviceAddr, u64)> {
        let available = self.available(device);
        if request > available {
            return Err(Refusal::OutOfMemory);
        }
        let limits = self.limits(device);
        let fits = limits.next_region >= request;
        while limits.next_region < request {
            limits.next_region = doubled(limits.next_region);
        }
        let mut bytes = limits.next_region.min(available);
        let addr = loop {
            match device.malloc(bytes) {
                Err(DriverError::OutOfMemory) => {}
                taken => break taken?,
            }
            bytes = backpedalled(bytes);
            if bytes < request {
                return Err(Refusal::OutOfMemory);
            }
        };
        if fits {
            let limits = self.limits(device);
            limits.next_region = doubled(limits.next_region);
        }
        self.held += bytes;
        Ok((addr, bytes))
    }

    /// Returns a region to the device.
    ///
    /// # Errors
    /// Errors of the device.
    pub(in crate::policy) fn give_back(
        &mut self,
        device: &mut dyn Driver,
        (addr, bytes): (DeviceAddr, u64),
    ) -> Status {
        device.free(addr, bytes)?;
        self.held -= bytes;
        Ok(())
    }

    /// Verifies that so many bytes are reserved.
    pub(in crate::policy) fn check(&self, bytes: u64) -> Result<(), Violation> {
        let held = self.held;
        ensure!(bytes == held, "{bytes} bytes in chunks, {held} reserved");
        Ok(())
    }
}

/// Twice as many bytes, saturating.
fn doubled(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// The size to try after the device has refused `bytes`: always smaller.
fn backpedalled(bytes: u64) -> u64 {
    let fewer = (bytes as f32 * BACKPEDAL_FACTOR) as u64;
    (fewer - fewer % GRANULE).min(bytes - GRANULE)
}
