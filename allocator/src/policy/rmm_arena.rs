//! RMM's arena: one device allocation, from which every stream borrows.
//!
//! Requests are rounded up to 256 bytes. The global arena serves requests of more than 1 MiB: from the
//! first superblock with a large enough free block. An idle superblock is split if at least 1 MiB is left.
//! The arena of the stream serves smaller requests by first fit. Without room, it borrows a superblock of
//! at least 1 MiB in the same way; blocks of other streams may lie in it.
//!
//! A block of more than 1 MiB is returned to the global arena after its stream is done. A smaller block is
//! returned to the arena of its stream without waiting, or otherwise to the arena that has its superblock,
//! once the stream is done. Streams keep borrowed superblocks until a request finds no room: then the
//! device is synchronized, all superblocks are returned, and the request is tried once more.
//!
//! One setting: `arena_size`, in bytes; half of the free device memory by default. It is taken at the
//! first request and rounded down to 256 bytes.
//!
//! Source: librmm 26.10, `arena_memory_resource` and its library code. Its arenas for threads with
//! per-thread default streams and its size classes, which are off by default, are left out.

use std::collections::BTreeMap;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::rmm::superblock::{SMALLEST, Superblock, Superblocks};
use super::rmm::{ALIGNMENT, block_bytes, half_of_free_memory};
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct RmmArena {
    /// Bytes of the arena; half of the free device memory if `None`.
    size: Option<u64>,
    /// The arena, once it is taken from the device.
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
    /// Takes `arena_size`.
    ///
    /// # Errors
    /// If it is invalid or less than a superblock of 1 MiB.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let key = "arena_size";
        let size = settings.take_limit(key)?;
        if let Some(bytes) = size.filter(|&bytes| bytes < SMALLEST) {
            return Err(PolicySettingsError::invalid(key, bytes, "less than 1 MiB"));
        }
        Ok(Self {
            size,
            ..Self::default()
        })
    }

    /// Takes the arena at the first request.
    fn begin(&mut self, device: &mut dyn Driver) -> Served {
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
    fn defragment(&mut self, device: &mut dyn Driver) -> Served {
        device.synchronize_device()?;
        for borrowed in self.streams.values_mut() {
            for superblock in borrowed.take_all() {
                self.global.insert_merged(superblock);
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = &Superblocks> {
        self.streams.values().chain([&self.global])
    }
}

/// Whether the global arena serves requests of this size.
fn is_global(bytes: u64) -> bool {
    bytes > SMALLEST
}

/// Removes a superblock from the global arena and takes a block of it.
fn take_superblock(global: &mut Superblocks, bytes: u64) -> Option<(Superblock, DeviceAddr)> {
    let mut superblock = global.take_superblock(bytes)?;
    let addr = superblock.take(bytes)?;
    Some((superblock, addr))
}

impl Policy for RmmArena {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.begin(device)?;
        let bytes = block_bytes(bytes);
        let addr = match self.take(bytes, stream) {
            Some(addr) => addr,
            None => {
                self.defragment(device)?;
                self.take(bytes, stream).ok_or(Refusal::OutOfMemory)?
            }
        };
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if is_global(block.bytes) {
            device.synchronize_stream(block.stream)?;
            if self.global.give_back_merged(block) {
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
            self.global.give_back_merged(block);
        }
        Ok(())
    }

    /// Returns the arena to the device if none of its blocks is in use.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
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
