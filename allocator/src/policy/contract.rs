//! What a policy is asked to do, and what it answers.

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};

/// Memory that a policy handed out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Where it starts: a multiple of 256.
    pub addr: DeviceAddr,
    /// All its bytes, at least those asked for.
    pub bytes: u64,
    /// The stream it was asked for on.
    pub stream: StreamId,
}

/// What a policy decides: which memory a request gets, and what becomes of it afterwards.
///
/// [`Managed`](crate::managed::Managed) makes an [`Allocator`](crate::allocator::Allocator) of it, with all that is the same for every policy: it owns the
/// device, knows the live blocks and the memory held, counts, and refuses what makes no sense.
///
/// A call that fails has changed nothing that a later call could see, but that memory may have been
/// taken from the device and be kept.
pub trait Policy: Send {
    /// Memory of at least `bytes`, more than 0 and less than 2^60, for work on `stream`.
    ///
    /// # Errors
    /// [`Refusal::OutOfMemory`] if there is none; what the original does not serve is
    /// [`Refusal::Unsupported`].
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal>;

    /// Takes back a block that it handed out, in the order of the work on the block's stream.
    ///
    /// # Errors
    /// What the device reports. The block is then offered again when the cache is emptied.
    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal>;

    /// Says that `stream`, too, works on a block: once freed, it stays out of use until that stream
    /// has done all the work it has then.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] if the policy has no such thing.
    fn record_stream(
        &mut self,
        _device: &mut dyn Driver,
        _block: Block,
        _stream: StreamId,
    ) -> Result<(), Refusal> {
        Err(Refusal::Unsupported("memory used on other streams"))
    }

    /// Returns to the device all memory that can be returned: all of it once every block is free and
    /// every stream is done, what was taken in advance included.
    ///
    /// # Errors
    /// What the device reports. What was not returned is kept.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal>;

    /// Verifies its own state, at a cost that grows with it.
    ///
    /// # Errors
    /// The first invariant found broken.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}

/// Why a policy did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no memory for it.
    OutOfMemory,
    /// The policy does not serve this at all; what it does not serve, as in "does not serve …".
    Unsupported(&'static str),
    /// The device failed, other than for lack of memory.
    Driver(DriverError),
}

/// So that lack of memory on the device is lack of memory.
impl From<DriverError> for Refusal {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::OutOfMemory => Self::OutOfMemory,
            error => Self::Driver(error),
        }
    }
}

/// Memory from the device; if there is none, once more after `make_room` has given some back.
pub(super) fn malloc_or_retry(
    device: &mut dyn Driver,
    bytes: u64,
    make_room: impl FnOnce(&mut dyn Driver) -> Result<(), Refusal>,
) -> Result<DeviceAddr, Refusal> {
    match device.malloc(bytes) {
        Err(DriverError::OutOfMemory) => {
            make_room(device)?;
            Ok(device.malloc(bytes)?)
        }
        answer => Ok(answer?),
    }
}

/// The work of a policy that knows of one stream only: fails for any other.
pub(super) fn only_default(stream: StreamId) -> Result<(), Refusal> {
    match stream {
        StreamId::DEFAULT => Ok(()),
        _ => Err(Refusal::Unsupported("work on more than one stream")),
    }
}
