//! The stream-ordered memory pool of a device (`cudaMallocAsync`, since CUDA 11.2).

use super::{DeviceAddr, Status, StreamId};

/// The settings of a pool. CUDA's names are in brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSettings {
    /// Bytes the pool keeps when the device is idle. Free memory beyond that returns to the device
    /// (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
    pub release_threshold: u64,
    /// Whether another stream may reuse freed memory once the work before the free is complete
    /// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC`).
    pub reuse_opportunistic: bool,
    /// Whether another stream may reuse freed memory by waiting for that work
    /// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`).
    pub reuse_internal_dependencies: bool,
}

/// The usage of a pool, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Reserved from the device.
    pub reserved: u64,
    /// Peak of `reserved` since the last reset.
    pub reserved_peak: u64,
    /// Allocated.
    pub used: u64,
    /// Peak of `used` since the last reset.
    pub used_peak: u64,
}

/// A pool that allocates and frees in the order of the work on a stream. Other users of the device in this
/// process do not share it.
pub trait StreamOrdered {
    /// Allocates `bytes` for later work on `stream` (`cudaMallocAsync`).
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`](super::DriverError::OutOfMemory) if neither the pool nor the device has enough.
    fn pool_malloc(&mut self, bytes: u64, stream: StreamId) -> Status<DeviceAddr>;

    /// Returns an allocation of [`StreamOrdered::pool_malloc`] to the pool, after the work that `stream`
    /// has now (`cudaFreeAsync`).
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`](super::DriverError::InvalidValue) if no live allocation of `bytes` from the pool
    /// starts at `addr`.
    fn pool_free(&mut self, addr: DeviceAddr, bytes: u64, stream: StreamId) -> Status;

    /// Returns a stream that carries no other work. Memory used on several streams is freed on it after it
    /// has waited for all of them, so that none of them waits for another.
    ///
    /// # Errors
    /// If the device cannot create one.
    fn free_stream(&mut self) -> Status<StreamId>;

    /// Changes the settings. CUDA's defaults are a threshold of 0 and both kinds of reuse.
    ///
    /// # Errors
    /// If the device refuses.
    fn set_pool(&mut self, settings: PoolSettings) -> Status;

    /// Returns the bytes reserved from the device.
    ///
    /// # Errors
    /// If the device does not answer.
    fn pool_reserved(&mut self) -> Status<u64>;

    /// Returns the usage of the pool.
    ///
    /// # Errors
    /// If the device does not answer.
    fn pool_usage(&mut self) -> Status<PoolUsage>;

    /// Resets the peaks to the current values.
    ///
    /// # Errors
    /// If the device refuses.
    fn reset_pool_peaks(&mut self) -> Status;

    /// Returns free memory to the device until at most `keep` bytes are reserved (`cudaMemPoolTrimTo`).
    /// Memory is free once the work before its free is complete.
    ///
    /// # Errors
    /// If the device refuses.
    fn trim_pool(&mut self, keep: u64) -> Status;
}
