//! How a request for pinned memory is rounded, and its size class.
//!
//! A request is rounded up to a power of two, unless it exceeds `pinned_max_round_threshold_mb` or
//! `pinned_max_cached_size_mb`, both from 2.13 on.

use crate::error::Error;
use crate::settings::Settings;

/// The number of size classes.
pub(super) const CLASSES: usize = 64;

/// Blocks larger than 2^(k-1) bytes and at most 2^k bytes, where k is the number of the class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SizeClass(u32);

impl SizeClass {
    /// The class of a block.
    pub(super) fn of(bytes: u64) -> Self {
        let above = bytes.checked_next_power_of_two();
        Self(above.map_or(u64::BITS - 1, u64::trailing_zeros))
    }

    /// The rounded size of a request, and its class.
    ///
    /// # Errors
    /// If it has no class, because it exceeds 2^63 bytes.
    pub(super) fn of_request(bytes: u64, settings: &Settings) -> Result<(u64, Self), Error> {
        let rounded = bytes.checked_next_power_of_two();
        let rounded = rounded.ok_or(Error::Unsupported {
            policy: "pinned host memory",
            what: "requests of more than 2^63 bytes",
        })?;
        let class = Self(rounded.trailing_zeros());
        if is_rounded(bytes, settings) {
            Ok((rounded, class))
        } else {
            Ok((bytes, class))
        }
    }

    /// The place of the class in lists of all classes.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Whether a request is rounded up to a power of two.
fn is_rounded(bytes: u64, settings: &Settings) -> bool {
    let rounded = settings.pinned.max_round_threshold;
    rounded.is_none_or(|most| bytes <= most) && is_cached(bytes, settings)
}

/// Whether a block is kept when it becomes free.
pub(super) fn is_cached(bytes: u64, settings: &Settings) -> bool {
    let cached = settings.pinned.max_cached_size;
    cached.is_none_or(|most| bytes <= most)
}
