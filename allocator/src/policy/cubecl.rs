//! The memory management of CubeCL, on which Burn runs: slices of pages, or pages for one request each.
//!
//! Source: crate cubecl-runtime 0.10.0 (tracel-ai/cubecl 7cf2037), `memory_management`, set up as the
//! CUDA backend of that version does. That is the last release with pages in several sizes; from 0.11
//! on the default moves live memory to other addresses, which no [`Policy`](super::Policy) can do.
//! - `sliced.rs`: `MemoryConfiguration::SubSlices`, the default.
//! - `exclusive.rs`: `MemoryConfiguration::ExclusivePages`, for backends that cannot slice.
//!
//! Requests are rounded up to 512 bytes, as the client does before it asks. The largest request is a
//! page of a quarter of the device. Each stream has a memory management of its own, and what another
//! stream works on stays bound until that stream is done, which is what [`StreamSafe`] does. When
//! memory is short nothing is returned to make room: the request fails.
//!
//! What differs: memory comes from `cudaMalloc`, not from the stream-ordered pool of the driver; a
//! pool may have more than 2^16 pages; there is no persistent pool, which nothing uses unless the
//! program asks for it.

mod exclusive;
mod sliced;

use super::settings::{PolicySettings, PolicySettingsError};
use super::stream_safe::StreamSafe;
use crate::driver::Driver;

/// `SubSlices`. See the [module](self).
pub type Sliced = StreamSafe<sliced::SubSlices>;

/// `ExclusivePages`. See the [module](self).
pub type Exclusive = StreamSafe<exclusive::ExclusivePages>;

impl Sliced {
    /// One setting: `max_page`, the bytes of the largest page; a quarter of the device unless given.
    ///
    /// # Errors
    /// [`PolicySettingsError`] if `conf` says something else.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(sliced::SubSlices::from_settings(settings)?).without_retry())
    }
}

impl Exclusive {
    /// Two settings: `max_page`, as for slices, and `cleanup`, after how many requests it looks for
    /// pages that are not needed any more, or 0 for never; 32 unless given.
    ///
    /// # Errors
    /// [`PolicySettingsError`] if `conf` says something else.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(exclusive::ExclusivePages::from_settings(settings)?).without_retry())
    }
}

/// What all memory is aligned to, and sizes are multiples of.
const ALIGNMENT: u64 = 512;

/// More than any page has: 2^60 bytes.
const LARGEST: u64 = 1 << 60;

/// What is said of a request that no page is large enough for.
const LARGER_THAN_A_PAGE: &str = "requests of more than its largest page";

/// Bytes of the largest page, if they are set.
#[derive(Clone, Copy, Debug)]
struct MaxPage(Option<u64>);

impl MaxPage {
    fn take(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self(settings.take_limit("max_page")?))
    }

    fn bytes(self, device: &dyn Driver) -> u64 {
        self.0.unwrap_or(device.total_memory() / 4).min(LARGEST)
    }
}
