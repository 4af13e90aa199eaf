//! The limit on reserved memory.
//!
//! Source: PyTorch 2.11, `setMemoryFraction`.

use super::{PyTorch, Request};
use crate::driver::Driver;
use crate::error::Error;

/// The limit in bytes that a fraction of device memory means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fraction {
    /// Of the memory that the device has when the fraction is set, rounded down. A fraction of 1 is a
    /// limit, too. Until 2.9.
    OfMemoryWhenSet,
    /// Of the memory that the device had at the start, rounded down. A fraction of 1 is no limit. 2.10
    /// to 2.12 (pytorch#161035).
    OfMemoryAtStart,
    /// As before, rounded to the nearest. From 2.13 on.
    Rounded,
}

/// How a fraction outside 0 to 1 is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InvalidFraction {
    /// As a failed assertion. Until 2.7.
    Asserted,
    /// As an invalid argument. From 2.8 on.
    Checked,
}

impl Fraction {
    /// The limit of a process whose settings name this fraction.
    pub(super) fn at_start(self, fraction: f64, total_memory: u64) -> Option<u64> {
        (fraction < 1.0).then(|| self.bytes(fraction, total_memory))
    }

    fn bytes(self, fraction: f64, total_memory: u64) -> u64 {
        let bytes = fraction * total_memory as f64;
        match self {
            Self::OfMemoryWhenSet | Self::OfMemoryAtStart => bytes as u64,
            Self::Rounded => bytes.round() as u64,
        }
    }
}

impl<D: Driver> PyTorch<D> {
    /// Limits reserved memory to a fraction of the device memory; 1 means no limit, except in old releases.
    /// Memory already reserved beyond the limit is kept.
    ///
    /// # Errors
    /// [`Error::InvalidFraction`] outside 0 to 1; until 2.7 [`Error::InvalidFractionAsserted`].
    pub fn set_memory_fraction(&mut self, fraction: f64) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(match self.rules.invalid_fraction {
                InvalidFraction::Asserted => Error::InvalidFractionAsserted(fraction),
                InvalidFraction::Checked => Error::InvalidFraction(fraction),
            });
        }
        let rule = self.rules.fraction;
        self.limit = match rule {
            Fraction::OfMemoryWhenSet => Some(rule.bytes(fraction, self.driver.total_memory())),
            Fraction::OfMemoryAtStart | Fraction::Rounded => {
                rule.at_start(fraction, self.total_memory)
            }
        };
        Ok(())
    }

    /// Sets the limit that a fraction which allows exactly so many bytes would set; without bytes, or with as many as the
    /// device has, the limit of the fraction 1.
    pub(super) fn limit_to(&mut self, bytes: Option<u64>) {
        let total = self.driver.total_memory();
        let of_device = match self.rules.fraction {
            Fraction::OfMemoryWhenSet => Some(total),
            Fraction::OfMemoryAtStart | Fraction::Rounded => None,
        };
        self.limit = bytes.filter(|&bytes| bytes < total).or(of_device);
    }

    /// The limit as a fraction of device memory; 1 without a limit.
    #[must_use]
    pub fn memory_fraction(&self) -> f64 {
        self.limit.map_or(1.0, |limit| {
            limit as f64 / (self.total_memory as f64).max(1.0)
        })
    }

    /// Refuses a request under `throw_on_cudamalloc_oom` if its segment would exceed the fraction of memory
    /// in the settings. A limit set later at run time does not matter. From 2.12 on (pytorch#179473).
    pub(super) fn ensure_not_rejected(&mut self, request: &Request) -> Result<(), Error> {
        if !self.settings.throw_on_cudamalloc_oom {
            return Ok(());
        }
        let fraction = self.settings.per_process_memory_fraction;
        let limit = (fraction * self.total_memory as f64) as u64;
        if self.reserved.saturating_add(request.segment_size) <= limit {
            return Ok(());
        }
        self.stats.num_oom_rejections += 1;
        Err(Error::Rejected {
            requested: request.bytes,
        })
    }

    /// Whether a segment of this size exceeds the limit. As in PyTorch, expandable segments are checked
    /// with the same size, whatever they would map: they may exceed the limit, or be refused although
    /// they fit.
    pub(super) fn would_exceed_limit(&self, segment_size: u64) -> bool {
        self.limit
            .is_some_and(|limit| self.reserved.saturating_add(segment_size) > limit)
    }
}
