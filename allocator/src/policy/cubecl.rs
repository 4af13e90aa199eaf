//! The memory management of CubeCL, the runtime of Burn: slices of pages, or a page for each request.
//!
//! Source: crate cubecl-runtime 0.10.0 (tracel-ai/cubecl 7cf2037), `memory_management`, configured as the
//! CUDA backend of that version does. It is the last release with pages in several sizes: from 0.11 on the
//! default moves live memory to other addresses, which a [`Policy`](super::Policy) cannot do.
//! - `sliced.rs`: `MemoryConfiguration::SubSlices`, the default.
//! - `exclusive.rs`: `MemoryConfiguration::ExclusivePages`, for backends that cannot slice.
//!
//! Requests are rounded up to 512 bytes, as CubeCL's client does. The largest request is a page of a
//! quarter of the device. Each stream has its own memory management, and memory that another stream uses
//! stays bound until that stream is done, as in [`StreamSafe`]. When memory is short, nothing is returned
//! to make room: the request fails.
//!
//! | setting | default | |
//! |---|---|---|
//! | `max_page` | a quarter of the device | bytes of the largest page |
//! | `cleanup` | 32 | exclusive pages only: requests between two looks for unused pages; 0 for never |
//!
//! Differences: memory comes from `cudaMalloc`, not from the driver's stream-ordered pool. A pool can have
//! more than 2^16 pages. The persistent pool, which only programs that ask for it use, is left out.

mod exclusive;
mod sliced;

use super::settings::{PolicySettings, PolicySettingsError};
use super::stream_safe::StreamSafe;
use crate::driver::{DeviceAddr, Driver, Status};

/// `SubSlices`. See the [module](self).
pub type Sliced = StreamSafe<sliced::SubSlices>;

/// `ExclusivePages`. See the [module](self).
pub type Exclusive = StreamSafe<exclusive::ExclusivePages>;

impl Sliced {
    /// Takes `max_page`.
    ///
    /// # Errors
    /// If the value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(sliced::SubSlices::from_settings(settings)?).without_retry())
    }
}

impl Exclusive {
    /// Takes `max_page` and `cleanup`.
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(exclusive::ExclusivePages::from_settings(settings)?).without_retry())
    }
}

/// Alignment of addresses and sizes, in bytes.
const ALIGNMENT: u64 = 512;

/// Upper limit of a page: 2^60 bytes.
const LARGEST: u64 = 1 << 60;

/// Why a request larger than the largest page is refused.
const LARGER_THAN_A_PAGE: &str = "requests of more than its largest page";

/// The setting `max_page`: bytes of the largest page.
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

/// Returns the pages whose address and bytes `surplus` gives. A page that the device does not take back is kept.
fn return_pages<P>(
    pages: &mut Vec<P>,
    device: &mut dyn Driver,
    mut surplus: impl FnMut(&mut P) -> Option<(DeviceAddr, u64)>,
) -> Status {
    let mut outcome = Ok(());
    pages.retain_mut(|page| {
        let freed = surplus(page).map(|(addr, bytes)| device.free(addr, bytes));
        if let Some(Err(error)) = &freed {
            outcome = Err(error.clone());
        }
        freed != Some(Ok(()))
    });
    outcome
}
