//! RMM's arena: one allocation of the device, from which every stream borrows.
//!
//! Requests are rounded up to 256 bytes. One of more than 1 MiB is served from the global arena: the
//! first superblock with a free block that is large enough, cut down if it is idle and at least 1 MiB
//! is left over. Others are served from the arena of their stream, by first fit, which borrows such a
//! superblock of at least 1 MiB when it has no room; blocks of other streams may lie in it.
//!
//! A block of more than 1 MiB goes back to the global arena after its stream is done. One of at most
//! 1 MiB goes back to the arena of its stream, without waiting, or else to wherever its superblock is,
//! once the stream is done. Streams keep what they have borrowed until a request finds no room: then
//! the device is waited for, all superblocks go back, and the request is tried once more.
//!
//! Setting, by RMM's name: `arena_size`, half of the memory the device has left by default, taken when
//! the first request comes and rounded down to 256 bytes. RMM's arenas of threads, for per-thread
//! default streams, do not exist here; its size classes, off as shipped, neither.
//!
//! Source: librmm 26.10, `arena_memory_resource` and its library code.

use std::collections::BTreeMap;

use crate::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::rmm::superblock::{SMALLEST, Superblock, Superblocks};
use super::rmm::{ALIGNMENT, block_bytes, half_of_free_memory};
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal};

/// See the [module](self).
#[derive(Debug)]
pub struct RmmArena {
    /// Bytes of the arena; half of what the device has if `None`.
    size: Option<u64>,
    /// What was taken from the device.
    region: Option<Region>,
    global: Superblocks,
    streams: BTreeMap<StreamId, Superblocks>,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    addr: DeviceAddr,
    bytes: u64,
}

impl RmmArena {
    /// Makes one with the setting `arena_size`.
    ///
    /// # Errors
    /// If there is another setting, or the arena has no room for a superblock of 1 MiB.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let key = "arena_size";
        let size = settings.take_limit(key)?;
        if let Some(bytes) = size.filter(|&bytes| bytes < SMALLEST) {
            return Err(PolicySettingsError::invalid(key, bytes, "less than 1 MiB"));
        }
        Ok(Self {
            size,
            region: None,
            global: Superblocks::default(),
            streams: BTreeMap::new(),
        })
    }

    /// Takes the arena, if that was not done yet.
    fn begin(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        if self.region.is_some() {
            return Ok(());
        }
        let bytes = match self.size {
            Some(bytes) => bytes - bytes % ALIGNMENT,
            None => half_of_free_memory(device)?,
        };
        if bytes < SMALLEST {
            return Err(Refusal::OutOfMemory);
        }
        let addr = device.malloc(bytes)?;
        self.region = Some(Region { addr, bytes });
        self.global.insert(Superblock::new(addr, bytes));
        Ok(())
    }

    fn take(&mut self, bytes: u64, stream: StreamId) -> Option<DeviceAddr> {
        if is_global(bytes) {
            return take_superblock(&mut self.global, bytes).map(|(superblock, addr)| {
                self.global.insert(superblock);
                addr
            });
        }
        let own = self.streams.entry(stream).or_default();
        own.take(bytes).or_else(|| {
            let (superblock, addr) = take_superblock(&mut self.global, bytes)?;
            own.insert(superblock);
            Some(addr)
        })
    }

    /// Returns all superblocks to the global arena.
    fn defragment(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        device.synchronize_device()?;
        for borrowed in self.streams.values_mut() {
            for superblock in borrowed.take_all() {
                self.global.insert_joined(superblock);
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Superblocks> {
        self.streams.values().chain([&self.global])
    }
}

/// Whether the global arena serves requests of this size itself.
fn is_global(bytes: u64) -> bool {
    bytes > SMALLEST
}

/// A superblock of the global arena, and a block that was cut from it.
fn take_superblock(global: &mut Superblocks, bytes: u64) -> Option<(Superblock, DeviceAddr)> {
    let mut superblock = global.take_superblock(bytes)?;
    let addr = superblock.take(bytes)?;
    Some((superblock, addr))
}

impl Policy for RmmArena {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        self.begin(device)?;
        let bytes = block_bytes(bytes);
        let addr = match self.take(bytes, stream) {
            Some(addr) => addr,
            None => {
                self.defragment(device)?;
                self.take(bytes, stream).ok_or(Refusal::OutOfMemory)?
            }
        };
        Ok(Block {
            addr,
            bytes,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        if is_global(block.bytes) {
            device.synchronize_stream(block.stream)?;
            if self.global.give_back_joined(block) {
                return Ok(());
            }
        }
        let own = self.streams.entry(block.stream).or_default();
        if own.give_back(block) {
            return Ok(());
        }
        device.synchronize_stream(block.stream)?;
        let mut streams = self.streams.values_mut();
        if !streams.any(|borrowed| borrowed.give_back(block)) {
            self.global.give_back_joined(block);
        }
        Ok(())
    }

    /// Returns the arena if no block of it is in use.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        let free: u64 = self.all().map(Superblocks::free_bytes).sum();
        let Some(region) = self.region.filter(|region| region.bytes == free) else {
            return Ok(());
        };
        device.synchronize_device()?;
        device.free(region.addr, region.bytes)?;
        self.region = None;
        self.global = Superblocks::default();
        self.streams.clear();
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.all().try_for_each(Superblocks::check)?;
        let held = self.region.map_or(0, |region| region.bytes);
        let bytes: u64 = self.all().map(Superblocks::bytes).sum();
        ensure!(
            bytes == held,
            "superblocks of {bytes} bytes in an arena of {held}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::calls::CallKind;
    use crate::driver::sim::{SimConfig, SimDevice};

    #[test]
    fn memory_that_other_streams_can_get_was_waited_for() {
        let mut device = SimDevice::new(&SimConfig::default());
        let mut arena = PolicySettings::read("arena_size:4MiB", RmmArena::from_settings).unwrap();
        let waits = |device: &SimDevice| {
            let count = |kind| device.counts().of(kind);
            let stream = count(CallKind::SynchronizeStream);
            (stream, count(CallKind::SynchronizeDevice))
        };
        let on = StreamId::nth(1);
        let small = arena.malloc(&mut device, 1000, on).unwrap();
        let other = arena.malloc(&mut device, 1000, on).unwrap();
        let large = arena.malloc(&mut device, 2 << 20, on).unwrap();
        assert_eq!(waits(&device), (0, 0));

        arena.free(&mut device, small).unwrap();
        assert_eq!(waits(&device), (0, 0), "only its stream can get it");
        arena.free(&mut device, large).unwrap();
        assert_eq!(waits(&device), (1, 0));

        let too_large = arena.malloc(&mut device, 4 << 20, on);
        assert_eq!(too_large, Err(Refusal::OutOfMemory));
        assert_eq!(waits(&device), (1, 1), "superblocks went back");
        arena.free(&mut device, other).unwrap();
        assert_eq!(waits(&device), (2, 1), "its superblock is anyone's now");
        arena.check().unwrap();
    }
}
