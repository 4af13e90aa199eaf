//! The stream-ordered pool of a CUDA device. It is not CUDA's default pool, so its statistics exclude other
//! users and it is freed with the device.

use super::context::{PoolAttribute, Pools};
use super::streams::FREE_STREAM;
use super::symbols::Pool;
use super::{CudaDevice, size};
use crate::driver::{
    DeviceAddr, DriverError, PoolSettings, PoolUsage, Status, StreamId, StreamOrdered,
};

impl CudaDevice {
    pub(super) fn pool_calls(&self) -> Status<Pools<'_>> {
        let calls = self.pools.ok_or(DriverError::NotSupported)?;
        let context = &self.context;
        Ok(Pools { context, calls })
    }

    /// Returns the pool and creates it on first use.
    fn pool(&mut self) -> Status<Pool> {
        if let Some(pool) = self.pool {
            return Ok(pool);
        }
        let pool = self.note(self.pool_calls()?.create())?;
        self.pool = Some(pool);
        self.open_pool_to_peers()?;
        Ok(pool)
    }

    /// Gives the peers access to memory of the pool, if it exists.
    pub(super) fn open_pool_to_peers(&mut self) -> Status {
        let Some(pool) = self.pool.filter(|_| !self.peers.is_empty()) else {
            return Ok(());
        };
        self.note(self.pool_calls()?.set_access(pool, &self.peers))
    }
}

impl StreamOrdered for CudaDevice {
    fn pool_malloc(&mut self, bytes: u64, stream: StreamId) -> Status<DeviceAddr> {
        if bytes == 0 {
            return Err(DriverError::InvalidValue);
        }
        let (pool, stream) = (self.pool()?, self.stream(stream)?);
        let addr = DeviceAddr(self.note(self.pool_calls()?.malloc(pool, size(bytes)?, stream))?);
        self.held.pool_blocks.insert(addr, bytes);
        Ok(addr)
    }

    fn pool_free(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status {
        if self.held.pool_blocks.get(&addr) != Some(&bytes) {
            return Err(DriverError::InvalidValue);
        }
        let stream = self.stream(stream)?;
        self.note(self.pool_calls()?.free(addr.0, stream))?;
        self.held.pool_blocks.remove(&addr);
        Ok(())
    }

    fn free_stream(&mut self) -> Status<StreamId> {
        self.stream(FREE_STREAM)?;
        Ok(FREE_STREAM)
    }

    fn set_pool(&mut self, settings: PoolSettings) -> Status {
        use PoolAttribute as Of;
        let pool = self.pool()?;
        let PoolSettings {
            release_threshold,
            reuse_opportunistic,
            reuse_internal_dependencies,
        } = settings;
        let switches = [
            (
                Of::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                reuse_opportunistic,
            ),
            (
                Of::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                reuse_internal_dependencies,
            ),
        ];
        for (attribute, on) in switches {
            let answer = self.pool_calls()?.set_switch(pool, attribute, on);
            self.note(answer)?;
        }
        let threshold = Of::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        self.note(
            self.pool_calls()?
                .set_bytes(pool, threshold, release_threshold),
        )
    }

    fn pool_reserved(&mut self) -> Status<u64> {
        let pool = self.pool()?;
        let reserved = PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        self.note(self.pool_calls()?.bytes(pool, reserved))
    }

    fn pool_usage(&mut self) -> Status<PoolUsage> {
        let pool = self.pool()?;
        self.note(self.pool_calls()?.usage(pool))
    }

    /// CUDA accepts only 0 as a new peak.
    fn reset_pool_peaks(&mut self) -> Status {
        let pool = self.pool()?;
        let peaks = [
            PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ];
        for peak in peaks {
            let answer = self.pool_calls()?.set_bytes(pool, peak, 0);
            self.note(answer)?;
        }
        Ok(())
    }

    fn trim_pool(&mut self, keep: u64) -> Status {
        let pool = self.pool()?;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.note(self.pool_calls()?.trim(pool, keep))
    }
}
