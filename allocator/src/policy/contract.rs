//! The contract between a policy and the allocator that runs it.

use std::any::Any;

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId, VirtualMemory};
use crate::mempool::MempoolId;

/// A block that a policy hands out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Start address, a multiple of 256.
    pub addr: DeviceAddr,
    /// Size, at least the bytes requested.
    pub bytes: u64,
    /// The stream it was requested on.
    pub stream: StreamId,
    /// What the policy needs to find the block when it is freed, if the address alone is slow to look up. Nobody else reads
    /// it; 0 by default.
    pub tag: u64,
}

impl Block {
    /// A block of `bytes` at an address, for work on a stream.
    #[must_use]
    pub fn new(addr: DeviceAddr, bytes: u64, stream: StreamId) -> Self {
        Self {
            addr,
            bytes,
            stream,
            tag: 0,
        }
    }
}

/// An allocation strategy: decides which memory serves a request, and what happens to freed memory.
///
/// [`Managed`](crate::Managed) makes an [`Allocator`](crate::Allocator) of it and does everything that
/// is the same for all policies: it owns the device, tracks live blocks and reserved memory, counts, and
/// rejects invalid calls.
///
/// A failed call leaves no visible change, except that the policy may keep memory it took from the
/// device.
pub trait Policy: Send {
    /// Returns a block of at least `bytes`, more than 0 and less than 2^60, for work on `stream`.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if there is no memory for it, [`Refusal::Unsupported`] if the original
    /// does not serve such requests.
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block>;

    /// Takes back a block that the policy handed out. The free is ordered after the work already
    /// submitted to the block's stream.
    ///
    /// # Errors
    /// Errors of the device. The block is then freed again when the cache is emptied.
    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served;

    /// Records that `stream` also uses a block. Once freed, the block is not reused until that stream
    /// has completed the work submitted to it by then.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] if the policy does not support this.
    fn record_stream(
        &mut self,
        _device: &mut dyn Driver,
        _block: Block,
        _stream: StreamId,
    ) -> Served {
        Err(Refusal::Unsupported("memory used on other streams"))
    }

    /// Returns all cached memory to the device. Once every block is free and every stream is done,
    /// nothing stays reserved, not even memory that was taken in advance.
    ///
    /// # Errors
    /// Errors of the device. The policy keeps the memory that it could not return.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served;

    /// The private pools, if the policy has them. By default it has none.
    fn private_pools(&mut self) -> Option<&mut dyn PrivatePools> {
        None
    }

    /// Verifies the policy's own state, at a cost that grows with it.
    ///
    /// # Errors
    /// The first broken invariant.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }

    /// As [`Policy::check`], for a policy that keeps no list of its live blocks: verifies that they and the rest of its
    /// memory do not overlap.
    ///
    /// # Errors
    /// The first broken invariant.
    fn check_with(&self, _live: &[Block]) -> Result<(), Violation> {
        Ok(())
    }
}

/// Private pools, for CUDA graphs and `torch.cuda.MemPool`. A graph uses the addresses that it was captured with each time
/// it is launched, so the memory of a pool serves no other request until the pool is released.
pub trait PrivatePools {
    /// As [`Policy::malloc`], from a pool, which is created if it does not exist. The block is freed and recorded on
    /// streams like any other.
    ///
    /// # Errors
    /// As [`Policy::malloc`].
    fn malloc_in(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        bytes: u64,
        stream: StreamId,
    ) -> Served<Block>;

    /// Announces that a pool has no users any more. Graphs that use its memory may still be running.
    fn release_pool(&mut self, pool: MempoolId);

    /// Makes the memory of released pools available for all requests. Does nothing while a graph is captured.
    ///
    /// # Errors
    /// Errors of the device.
    fn empty_released_pools(&mut self, device: &mut dyn Driver) -> Served;

    /// Whether a live block is of a pool.
    fn owns(&self, pool: MempoolId, block: Block) -> bool;

    /// Saves that `live` are the live blocks of a pool.
    ///
    /// # Errors
    /// Errors of the device.
    fn save(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        live: &[Block],
    ) -> Served<Box<dyn Any + Send>>;

    /// Makes exactly those blocks of a pool live that were so when [`PrivatePools::save`] returned `saved`. `live` are those
    /// that are so now. They are freed for that without [`Policy::free`].
    ///
    /// # Errors
    /// Errors of the device; [`Refusal::Failed`] if the memory of the blocks is gone. Nothing has changed then.
    fn restore(
        &mut self,
        device: &mut dyn Driver,
        pool: MempoolId,
        saved: &(dyn Any + Send),
        live: &[Block],
    ) -> Served;

    /// Announces that a graph is captured from here on. Until the end of the capture, the policy must not record, query
    /// or wait for events, or wait for the device. The capture may already have begun, as far as the device is
    /// concerned.
    ///
    /// # Errors
    /// Errors of the device.
    fn begin_capture(&mut self, device: &mut dyn Driver) -> Served;

    /// Announces the end of the capture.
    fn end_capture(&mut self);
}

/// What a policy gives for a call, or why it did not serve it.
pub type Served<T = ()> = Result<T, Refusal>;

/// Why a policy did not serve a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no memory for the request.
    OutOfMemory,
    /// The policy does not serve such calls. The text completes "does not serve …".
    Unsupported(&'static str),
    /// The device failed for another reason than lack of memory.
    Driver(DriverError),
    /// The policy itself failed, as a library outside this program may. The text says how.
    Failed(String),
}

impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::OutOfMemory => Self::OutOfMemory,
            error => Self::Driver(error),
        }
    }
}

/// Takes memory from the device. If it is out of memory, tries again after `make_room`.
pub(super) fn malloc_or_retry(
    device: &mut dyn Driver,
    bytes: u64,
    make_room: impl FnOnce(&mut dyn Driver) -> Served,
) -> Served<DeviceAddr> {
    match device.malloc(bytes) {
        Err(DriverError::OutOfMemory) => {
            make_room(device)?;
            Ok(device.malloc(bytes)?)
        }
        answer => Ok(answer?),
    }
}

/// Fails for any stream but the default one, for policies that support one stream.
pub(super) fn only_default(stream: StreamId) -> Served {
    match stream {
        StreamId::DEFAULT => Ok(()),
        _ => Err(Refusal::Unsupported("work on more than one stream")),
    }
}

/// Returns the device's virtual memory, for policies that cannot do without it.
pub(super) fn memory_of(device: &mut dyn Driver) -> Served<&mut dyn VirtualMemory> {
    let without = Refusal::Unsupported("devices without virtual memory");
    device.virtual_memory().ok_or(without)
}
