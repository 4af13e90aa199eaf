//! Memory in the order of the work on streams: the pool that a device's driver keeps itself
//! (`cudaMallocAsync`, since CUDA 11.2).

use super::{DeviceAddr, DriverError, StreamId};

/// How a pool treats the memory that was given back to it. CUDA's names are in brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSettings {
    /// Bytes that it keeps when the device is idle; above that, free memory goes back to the device
    /// (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
    pub release_threshold: u64,
    /// Whether memory freed on one stream may serve another once the work before the free is over
    /// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC`).
    pub reuse_opportunistic: bool,
    /// Whether it may serve another that is made to wait for that work
    /// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`).
    pub reuse_internal_dependencies: bool,
}

/// What a pool says of itself, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolUsage {
    /// Taken from the device.
    pub reserved: u64,
    /// The most of it since the peaks were reset.
    pub reserved_peak: u64,
    /// Handed out.
    pub used: u64,
    /// The most of it since the peaks were reset.
    pub used_peak: u64,
}

/// A pool that allocates and frees as part of the work on a stream. It serves this device alone: what
/// others of the process do with theirs is not seen in it.
pub trait StreamOrdered {
    /// Takes `bytes` for the work of `stream` from here on (`cudaMallocAsync`).
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if neither the pool nor the device has so many.
    fn pool_malloc(&mut self, bytes: u64, stream: StreamId) -> Result<DeviceAddr, DriverError>;

    /// Returns an allocation of [`StreamOrdered::pool_malloc`] to the pool, after the work that `stream`
    /// has now (`cudaFreeAsync`).
    ///
    /// # Errors
    /// [`DriverError::InvalidValue`] if no live allocation of `bytes` from the pool starts at `addr`.
    fn pool_free(
        &mut self,
        addr: DeviceAddr,
        bytes: u64,
        stream: StreamId,
    ) -> Result<(), DriverError>;

    /// A stream on which no work is done: made to wait for several others, it is where memory is freed
    /// that all of them used, and none of them has to wait for another.
    ///
    /// # Errors
    /// If the device cannot make one.
    fn free_stream(&mut self) -> Result<StreamId, DriverError>;

    /// Lets it treat freed memory so from now on. It begins as CUDA has it: a threshold of 0, and both
    /// ways of reuse.
    ///
    /// # Errors
    /// If the device refuses.
    fn set_pool(&mut self, settings: PoolSettings) -> Result<(), DriverError>;

    /// Bytes that it has taken from the device.
    ///
    /// # Errors
    /// If the device does not answer.
    fn pool_reserved(&mut self) -> Result<u64, DriverError>;

    /// All that it says of itself.
    ///
    /// # Errors
    /// If the device does not answer.
    fn pool_usage(&mut self) -> Result<PoolUsage, DriverError>;

    /// Lets the peaks start again from what there is now.
    ///
    /// # Errors
    /// If the device refuses.
    fn reset_pool_peaks(&mut self) -> Result<(), DriverError>;

    /// Returns free memory to the device until at most `keep` bytes are reserved, if there is so much
    /// (`cudaMemPoolTrimTo`). Memory is free when the work before its free is over.
    ///
    /// # Errors
    /// If the device refuses.
    fn trim_pool(&mut self, keep: u64) -> Result<(), DriverError>;
}
