//! How much memory is taken from the device at a time and in all, and how much of it may be given
//! away in addition to what was asked for.
//!
//! Source: openxla/xla, `xla/tsl/framework/bfc_allocator.cc`: the constructor, `Extend`,
//! `ShouldSplitChunk`; and `CreateBFCAllocator` for the limit, which it rounds up to 2 MiB.

use std::str::FromStr;

use super::chunks::GRANULE;
use crate::driver::{DeviceAddr, Driver, DriverError};
use crate::policy::Refusal;
use crate::policy::settings::{PolicySettings, PolicySettingsError};

/// The smallest first region of a pool that grows, and what limits are rounded up to: 2 MiB.
const MIN_REGION: u64 = 2 << 20;

/// Fewer bytes than these may be given away, unless a knob says otherwise: 128 MiB.
const MAX_INTERNAL_FRAGMENTATION: u64 = 128 << 20;

/// What is asked for when the device has less, as a part of what was asked for before. The original
/// computes it in single precision.
const BACKPEDAL_FACTOR: f32 = 0.9;

/// A part of a whole, from 0 to 1.
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

/// The settings of this file.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Settings {
    growth: bool,
    /// Bytes to use at most.
    limit: Option<u64>,
    /// The same, if there is no `limit`, as a fraction of the device's memory.
    fraction: Fraction,
    /// Bytes that may be given away, as a fraction of the limit; 0: the default.
    fragmentation_fraction: Fraction,
}

/// What follows from the settings once the device is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limits {
    /// Bytes of all regions together at most.
    total: u64,
    /// Bytes that may be given away: fewer than these.
    internal_fragmentation: u64,
    /// Bytes of the next region, if there is room for them.
    next_region: u64,
}

/// What has been taken from the device, and what comes next.
#[derive(Debug)]
pub(in crate::policy) struct Supply {
    settings: Settings,
    /// Set when memory is first asked for.
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
            let total = settings.limit.unwrap_or_else(of_device);
            let total = total.div_ceil(MIN_REGION).saturating_mul(MIN_REGION);
            Limits {
                total,
                internal_fragmentation: match settings.fragmentation_fraction {
                    Fraction(0.0) => MAX_INTERNAL_FRAGMENTATION,
                    // Of less than a byte nothing is left: an exact fit is not cut.
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

    /// Bytes that may still be taken.
    pub(in crate::policy) fn available(&mut self, device: &dyn Driver) -> u64 {
        let held = self.held;
        self.limits(device).total.saturating_sub(held)
    }

    /// Whether what `request` bytes leave over of a chunk is cut off: if it is at least as much as
    /// the request, or more than may be given away.
    pub(in crate::policy) fn should_split(&self, chunk: u64, request: u64) -> bool {
        let slack = self.limits.map_or(MAX_INTERNAL_FRAGMENTATION, |limits| {
            limits.internal_fragmentation
        });
        chunk >= 2 * request || chunk - request >= slack
    }

    /// Takes a region of at least `request` bytes: as large as the last one doubled, doubled on
    /// until the request fits, but no more than is left of the limit. While the device does not
    /// have so much, it is asked for nine tenths of it.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if the limit or the device has no room for the request.
    pub(in crate::policy) fn take(
        &mut self,
        device: &mut dyn Driver,
        request: u64,
    ) -> Result<(DeviceAddr, u64), Refusal> {
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

    /// Gives a region back.
    ///
    /// # Errors
    /// If the device does not take it.
    pub(in crate::policy) fn give_back(
        &mut self,
        device: &mut dyn Driver,
        (addr, bytes): (DeviceAddr, u64),
    ) -> Result<(), DriverError> {
        device.free(addr, bytes)?;
        self.held -= bytes;
        Ok(())
    }

    /// Bytes of all regions.
    pub(in crate::policy) fn held(&self) -> u64 {
        self.held
    }
}

/// Twice as many bytes, as far as they can be counted.
fn doubled(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// What is asked for next when the device has refused `bytes`: always fewer.
fn backpedalled(bytes: u64) -> u64 {
    let fewer = (bytes as f32 * BACKPEDAL_FACTOR) as u64;
    (fewer - fewer % GRANULE).min(bytes - GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::sim::{SimConfig, SimDevice};

    const MIB: u64 = 1 << 20;

    fn supply(conf: &str, growth: bool) -> Result<Supply, PolicySettingsError> {
        PolicySettings::read(conf, |settings| Supply::from_settings(settings, growth))
    }

    /// Bytes of the regions taken for these requests.
    fn regions(supply: &mut Supply, capacity: u64, requests: &[u64]) -> Vec<Result<u64, Refusal>> {
        let mut device = SimDevice::new(&SimConfig::with_capacity(capacity));
        let take = |&request| supply.take(&mut device, request).map(|(_, bytes)| bytes);
        requests.iter().map(take).collect()
    }

    #[test]
    fn regions_double_until_the_limit() {
        let mut supply = supply("limit:100MiB", true).unwrap();
        assert_eq!(
            regions(&mut supply, 1 << 30, &[256, 256, 50 * MIB, 256, MIB]),
            [2, 4, 64, 30, 0].map(|mib| match mib {
                0 => Err(Refusal::OutOfMemory),
                _ => Ok(mib * MIB),
            })
        );
    }

    #[test]
    fn without_growth_all_is_taken_at_once() {
        let mut supply = supply("fraction:0.3", false).unwrap();
        assert_eq!(regions(&mut supply, 100 * MIB, &[256]), [Ok(30 * MIB)]);
    }

    #[test]
    fn a_full_device_is_asked_for_less_until_the_request_does_not_fit() {
        let mut supply = supply("limit:100MiB", false).unwrap();
        let once = 100 * MIB / 10 * 9;
        assert_eq!(regions(&mut supply, 90 * MIB, &[80 * MIB]), [Ok(once)]);
        let full = regions(&mut supply, 0, &[256]);
        assert_eq!(full, [Err(Refusal::OutOfMemory)]);
    }

    #[test]
    fn a_fraction_is_one() {
        for wrong in ["fraction:1.5", "fraction:nan", "fragmentation_fraction:-1"] {
            assert!(supply(wrong, false).is_err(), "{wrong}");
        }
    }
}
