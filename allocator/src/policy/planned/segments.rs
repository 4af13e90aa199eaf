//! A small caching allocator for what no plan covers: best fit in segments, on one stream.
//!
//! Source: the rules of PyTorch's caching allocator without its settings, of which STAlloc (commit
//! 3a9f97f, `CUDACachingAllocator.cpp`) has a copy for the same purpose. Requests are rounded up to
//! 512 bytes. Those of up to 1 MiB share segments of 2 MiB; those of less than 10 MiB get segments of
//! 20 MiB; all others get one of their own size, rounded up to 2 MiB. When the device refuses, all
//! segments without a block go back to it; PyTorch tries first with those that are large enough alone.

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, DriverError, StreamId};
use crate::policy::knobs::{KnobError, Knobs};
use crate::policy::pieces::Pieces;
use crate::policy::{Block, Policy, Refusal};

use super::UNIT;

const SMALL_LIMIT: u64 = 1 << 20;
const SMALL_SEGMENT: u64 = 2 << 20;
const LARGE_SEGMENT: u64 = 20 << 20;
/// From here on a request has a segment of its own.
const OWN_SEGMENT_FROM: u64 = 10 << 20;
const SEGMENT_UNIT: u64 = 2 << 20;

/// Small requests and all others do not share segments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pool {
    Small,
    Large,
}

impl Pool {
    fn of(bytes: u64) -> Self {
        if bytes <= SMALL_LIMIT {
            Self::Small
        } else {
            Self::Large
        }
    }

    fn segment_bytes(self, bytes: u64) -> u64 {
        match self {
            Self::Small => SMALL_SEGMENT,
            Self::Large if bytes < OWN_SEGMENT_FROM => LARGE_SEGMENT,
            Self::Large => bytes.next_multiple_of(SEGMENT_UNIT),
        }
    }

    /// Whether a block is cut when so much is left of it.
    fn cuts_off(self, rest: u64) -> bool {
        match self {
            Self::Small => rest >= UNIT,
            Self::Large => rest > SMALL_LIMIT,
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Segments {
    pieces: Pieces<Pool>,
}

impl Segments {
    /// Has no settings.
    ///
    /// # Errors
    /// If there are any.
    pub fn from_conf(conf: &str) -> Result<Self, KnobError> {
        Knobs::parse(conf)?.finish()?;
        Ok(Self::default())
    }

    /// Takes a segment from the device, to which it gives back what it caches if it must.
    fn grow(
        &mut self,
        device: &mut dyn Driver,
        pool: Pool,
        bytes: u64,
    ) -> Result<(DeviceAddr, u64), Refusal> {
        let bytes = pool.segment_bytes(bytes);
        let addr = match device.malloc(bytes) {
            Err(DriverError::OutOfMemory) => {
                self.empty_cache(device)?;
                device.malloc(bytes)?
            }
            answer => answer?,
        };
        self.pieces.add(addr, bytes, pool, 0);
        Ok((addr, bytes))
    }
}

impl Policy for Segments {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let bytes = bytes.next_multiple_of(UNIT);
        let pool = Pool::of(bytes);
        let (addr, found) = match self.pieces.take_best_fit(pool, bytes) {
            Some(found) => found,
            None => self.grow(device, pool, bytes)?,
        };
        let is_cut = pool.cuts_off(found - bytes);
        if is_cut {
            let rest = self.pieces.cut(addr, bytes, 0);
            self.pieces.free(rest);
        }
        Ok(Block {
            addr,
            bytes: if is_cut { bytes } else { found },
            stream,
        })
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        self.pieces.free(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        for (segment, _) in self.pieces.idle_allocations() {
            device.free(segment)?;
            self.pieces.remove(segment);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.pieces.check()
    }
}
