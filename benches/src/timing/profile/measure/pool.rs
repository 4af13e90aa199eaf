//! The calls to the device's own pool.

use std::collections::VecDeque;

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::driver::{
    DeviceAddr, Driver, DriverError, PoolSettings, StreamId, StreamOrdered,
};

use super::Bench;

/// Blocks to allocate.
const BLOCKS: u64 = 2000;
/// The stream of all calls.
const STREAM: StreamId = StreamId::nth(1);

impl<D: Driver> Bench<'_, D> {
    /// Calls to the device's own pool, with blocks of several sizes that are freed in another order. It caches their memory
    /// while it warms up: the cost of calls that take nothing from the device.
    pub(super) fn pool(&mut self) -> Result<(), DriverError> {
        if self.device.stream_ordered().is_none() {
            return Ok(());
        }
        for _ in 0..self.effort.rounds {
            self.time_pool(CallKind::SetPool, 0, |pool| {
                pool.set_pool(PoolSettings {
                    release_threshold: u64::MAX,
                    reuse_opportunistic: true,
                    reuse_internal_dependencies: true,
                })
            })?;
        }
        let mut live = VecDeque::new();
        for phase in [true, false] {
            self.is_warming_up = phase;
            for block in 0..BLOCKS {
                self.block_of_pool(block, &mut live)?;
            }
        }
        while let Some((addr, bytes)) = live.pop_front() {
            self.device_pool()?.pool_free(addr, bytes, STREAM)?;
        }
        self.device.synchronize_device()?;
        self.device_pool()?.trim_pool(0)
    }

    /// Allocates a block, and frees one once there are many.
    fn block_of_pool(
        &mut self,
        block: u64,
        live: &mut VecDeque<(DeviceAddr, u64)>,
    ) -> Result<(), DriverError> {
        const LIVE: usize = 64;
        // From 512 bytes to 16 MiB, in an order that does not repeat soon.
        let bytes = 512 << (block * 7 % 16);
        self.work();
        let placed = self.time_pool(CallKind::PoolMalloc, 0, |pool| {
            pool.pool_malloc(bytes, STREAM)
        });
        match placed {
            Ok(addr) => live.push_back((addr, bytes)),
            Err(DriverError::OutOfMemory) => {}
            Err(error) => return Err(error),
        }
        if live.len() > LIVE
            && let Some((addr, bytes)) = live.swap_remove_back(block as usize * 5 % LIVE)
        {
            self.work();
            self.time_pool(CallKind::PoolFree, 0, |pool| {
                pool.pool_free(addr, bytes, STREAM)
            })?;
        }
        self.time_pool(CallKind::PoolUsage, 0, |pool| pool.pool_usage())?;
        Ok(())
    }

    /// Makes the pool take and return memory of one size.
    pub(super) fn trims(&mut self, bytes: u64) -> Result<(), DriverError> {
        if self.device.stream_ordered().is_none() {
            return Ok(());
        }
        match self.device_pool()?.pool_malloc(bytes, STREAM) {
            Ok(addr) => self.device_pool()?.pool_free(addr, bytes, STREAM)?,
            Err(DriverError::OutOfMemory) => return Ok(()),
            Err(error) => return Err(error),
        }
        self.device.synchronize_device()?;
        self.work();
        self.time_pool(CallKind::TrimPool, bytes, |pool| pool.trim_pool(0))
    }

    fn device_pool(&mut self) -> Result<&mut dyn StreamOrdered, DriverError> {
        self.device
            .stream_ordered()
            .ok_or(DriverError::NotSupported)
    }

    /// [`Self::time`] for a call to the device's pool.
    fn time_pool<T>(
        &mut self,
        call: CallKind,
        bytes: u64,
        make: impl FnOnce(&mut dyn StreamOrdered) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.time(call, bytes, |device| {
            make(device.stream_ordered().ok_or(DriverError::NotSupported)?)
        })
    }
}
