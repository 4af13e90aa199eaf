//! All devices of a process, as PyTorch's Python interface sees them.
//!
//! Source: PyTorch 2.11, `NativeCachingAllocator`.

use super::DeviceCachingAllocator;
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::Error;
use crate::settings::Settings;
use crate::snapshot::Snapshot;

/// One allocator for each device, with the settings in common as long as they are changed here and not
/// at one device. The devices must not give out the same address.
#[derive(Debug)]
pub struct NativeCachingAllocator<D> {
    settings: Settings,
    devices: Vec<DeviceCachingAllocator<D>>,
}

impl<D: Driver> NativeCachingAllocator<D> {
    /// Allocators for `drivers`, which are devices 0, 1, ….
    #[must_use]
    pub fn new(drivers: impl IntoIterator<Item = D>, settings: Settings) -> Self {
        let devices = drivers
            .into_iter()
            .zip(0..)
            .map(|(driver, number)| DeviceCachingAllocator {
                device: number,
                ..DeviceCachingAllocator::new(driver, settings.clone())
            })
            .collect();
        Self { settings, devices }
    }

    /// The allocator of one device.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`].
    pub fn device(&mut self, device: usize) -> Result<&mut DeviceCachingAllocator<D>, Error> {
        self.devices
            .get_mut(device)
            .ok_or(Error::NoSuchDevice { device })
    }

    /// Memory of one device, see [`DeviceCachingAllocator::malloc`].
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`], or as there.
    pub fn malloc(
        &mut self,
        device: usize,
        bytes: u64,
        stream: StreamId,
    ) -> Result<DeviceAddr, Error> {
        self.device(device)?.malloc(bytes, stream)
    }

    /// Takes back an allocation of any device.
    ///
    /// # Errors
    /// [`Error::InvalidPointer`] if it is of none, or as [`DeviceCachingAllocator::free`].
    pub fn free(&mut self, addr: DeviceAddr) -> Result<(), Error> {
        self.owner_of(addr)?
            .map_or(Ok(()), |device| device.free(addr))
    }

    /// See [`DeviceCachingAllocator::record_stream`].
    ///
    /// # Errors
    /// [`Error::InvalidPointer`].
    pub fn record_stream(&mut self, addr: DeviceAddr, stream: StreamId) -> Result<(), Error> {
        self.owner_of(addr)?
            .map_or(Ok(()), |device| device.record_stream(addr, stream))
    }

    /// Empties the cache of every device.
    ///
    /// # Errors
    /// Of the first device that fails; the others after it are not touched.
    pub fn empty_cache(&mut self) -> Result<(), Error> {
        self.devices
            .iter_mut()
            .try_for_each(DeviceCachingAllocator::empty_cache)
    }

    /// Changes the settings of all devices.
    ///
    /// # Errors
    /// [`Error::Settings`]; what stands before the mistake is in force everywhere.
    pub fn apply_settings(&mut self, conf: &str) -> Result<(), Error> {
        let applied = self.settings.apply(conf);
        for device in &mut self.devices {
            device.use_settings(self.settings.clone());
        }
        Ok(applied?)
    }

    /// The state of all devices.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut all = Snapshot {
            segments: Vec::new(),
            device_traces: Vec::new(),
            allocator_settings: self.settings.clone(),
            external_annotations: [],
        };
        for device in &mut self.devices {
            let snapshot = device.snapshot();
            all.segments.extend(snapshot.segments);
            all.device_traces.extend(snapshot.device_traces);
        }
        all
    }

    /// The device whose allocation starts at `addr`; none for null.
    fn owner_of(
        &mut self,
        addr: DeviceAddr,
    ) -> Result<Option<&mut DeviceCachingAllocator<D>>, Error> {
        if addr.is_null() {
            return Ok(None);
        }
        let owner = self.devices.iter_mut().find(|d| d.live.contains_key(&addr));
        owner.map(Some).ok_or(Error::InvalidPointer(addr))
    }
}
