//! RMM's pool: memory is taken from the device in large chunks and kept, unless a limit requires otherwise.
//!
//! A request is rounded up to 256 bytes and served by best fit, as described in [`stream_ordered`]. If no
//! list can serve it, the pool grows: by its own size, or by the request if that is larger; under a limit,
//! by half of what the limit leaves, or by the request. If the device refuses, the growth is halved down to
//! the request. If the limit leaves too little, idle device allocations are returned in address order until
//! it leaves enough.
//!
//! | setting | default | |
//! |---|---|---|
//! | `initial_pool_size` | half of the free device memory | bytes that the first request takes |
//! | `maximum_pool_size` | none | the most bytes to reserve |
//!
//! Both are multiples of 256. RMM's C++ has no default for the initial size; this is the one of its Python.
//!
//! Source: librmm 26.10, `pool_memory_resource` and its library code. Difference: an error of the device
//! other than lack of memory is reported; the growth is not halved.
//!
//! [`stream_ordered`]: super::rmm::stream_ordered

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::rmm::free_list::{CoalescingFreeList, FreeBlock};
use super::rmm::stream_ordered::StreamOrdered;
use super::rmm::{ALIGNMENT, block_bytes, half_of_free_memory};
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal, Served};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct RmmPool {
    /// Bytes that the first request takes; half of the free device memory if `None`.
    initial: Option<u64>,
    /// The most bytes to reserve.
    maximum: Option<u64>,
    /// Whether the initial memory is taken.
    begun: bool,
    /// Bytes of the device allocations by address.
    chunks: BTreeMap<DeviceAddr, u64>,
    /// Bytes of all chunks.
    bytes: u64,
    free: StreamOrdered<CoalescingFreeList>,
}

impl RmmPool {
    /// Takes `initial_pool_size` and `maximum_pool_size`, both in bytes.
    ///
    /// # Errors
    /// If a value is not a multiple of 256, or the initial size exceeds the maximum.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let (first, most) = ("initial_pool_size", "maximum_pool_size");
        let initial = take_aligned(settings, first)?;
        let maximum = take_aligned(settings, most)?;
        if let (Some(initial), Some(maximum)) = (initial, maximum)
            && initial > maximum
        {
            return Err(PolicySettingsError::invalid(
                first,
                initial,
                format!("more than the maximum of {maximum}"),
            ));
        }
        Ok(Self {
            initial,
            maximum,
            ..Self::default()
        })
    }

    /// Whether nothing is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Takes the initial memory at the first request.
    pub(super) fn begin(&mut self, device: &mut dyn Driver) -> Served {
        if self.begun {
            return Ok(());
        }
        let initial = match self.initial {
            Some(bytes) => bytes,
            None => half_of_free_memory(device)?,
        };
        if self.maximum.is_some_and(|maximum| initial > maximum) {
            return Err(Refusal::Unsupported("an initial pool beyond the maximum"));
        }
        if initial > 0 {
            let seat = self.free.seat(device, StreamId::DEFAULT)?;
            let chunk = self.take_chunk(device, initial, initial)?;
            self.free.insert(seat, chunk);
        }
        self.begun = true;
        Ok(())
    }

    /// Takes `wanted` bytes from the device, halved down to `needed` until it can serve them.
    fn take_chunk(
        &mut self,
        device: &mut dyn Driver,
        mut wanted: u64,
        needed: u64,
    ) -> Served<FreeBlock> {
        loop {
            match device.malloc(wanted).map_err(Refusal::from) {
                Ok(addr) => {
                    self.chunks.insert(addr, wanted);
                    self.bytes += wanted;
                    return Ok(FreeBlock {
                        addr,
                        bytes: wanted,
                        is_head: true,
                    });
                }
                Err(Refusal::OutOfMemory) if wanted > needed => wanted = needed.max(wanted / 2),
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Grows for a request that no list can serve. All free memory is in one list then.
    fn grow(&mut self, device: &mut dyn Driver, request: u64) -> Served<FreeBlock> {
        if self.growth(request).is_none() {
            self.reclaim(device, request)?;
        }
        let wanted = self.growth(request).ok_or(Refusal::OutOfMemory)?;
        self.take_chunk(device, wanted, request)
    }

    /// Returns the bytes to grow by for a request, `None` if the limit forbids it.
    ///
    /// The remainder under the limit is rounded up, and half of it need not be a multiple of 256, so the
    /// pool can exceed the limit by less than 256 bytes.
    fn growth(&self, request: u64) -> Option<u64> {
        let Some(maximum) = self.maximum else {
            return Some(self.bytes.max(request));
        };
        let left = maximum
            .saturating_sub(self.bytes)
            .checked_next_multiple_of(ALIGNMENT)?;
        (request <= left).then(|| request.max(left / 2))
    }

    /// Returns idle chunks until a request fits the limit.
    fn reclaim(&mut self, device: &mut dyn Driver, request: u64) -> Served {
        let Some(maximum) = self.maximum.filter(|&maximum| request <= maximum) else {
            return Ok(());
        };
        for chunk in self.idle_chunks() {
            // Above the limit, the difference wraps around in RMM.
            if maximum.wrapping_sub(self.bytes) >= request {
                break;
            }
            self.return_chunk(device, chunk)?;
        }
        Ok(())
    }

    fn idle_chunks(&self) -> Vec<DeviceAddr> {
        let is_idle = |chunk: &Range<DeviceAddr>| {
            let free = self
                .free
                .lists()
                .flat_map(|list| list.inside(chunk.clone()));
            free.map(|block| block.bytes).sum::<u64>() == chunk.end.offset_from(chunk.start)
        };
        let chunks = self.chunks.iter();
        chunks
            .map(|(&addr, &bytes)| addr..addr.offset(bytes))
            .filter(is_idle)
            .map(|chunk| chunk.start)
            .collect()
    }

    /// Returns an idle chunk to the device.
    fn return_chunk(&mut self, device: &mut dyn Driver, addr: DeviceAddr) -> Served {
        let Some(&bytes) = self.chunks.get(&addr) else {
            return Ok(());
        };
        device.free(addr, bytes)?;
        self.chunks.remove(&addr);
        let range = addr..addr.offset(bytes);
        for list in self.free.lists_mut() {
            list.remove_inside(&range);
        }
        self.bytes -= bytes;
        Ok(())
    }
}

/// Takes a setting in bytes, a multiple of 256.
fn take_aligned(
    settings: &mut PolicySettings,
    key: &'static str,
) -> Result<Option<u64>, PolicySettingsError> {
    match settings.take_limit(key)? {
        Some(bytes) if !bytes.is_multiple_of(ALIGNMENT) => Err(PolicySettingsError::invalid(
            key,
            bytes,
            "not a multiple of 256",
        )),
        bytes => Ok(bytes),
    }
}

impl Policy for RmmPool {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        self.begin(device)?;
        let bytes = block_bytes(bytes);
        let seat = self.free.seat(device, stream)?;
        let addr = match self.free.take(device, seat, bytes)? {
            Some(addr) => addr,
            None => {
                let chunk = self.grow(device, bytes)?;
                if let Some(rest) = chunk.rest_after(bytes) {
                    self.free.insert(seat, rest);
                }
                chunk.addr
            }
        };
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        let freed = FreeBlock {
            addr: block.addr,
            bytes: block.bytes,
            is_head: self.chunks.contains_key(&block.addr),
        };
        self.free.give_back(device, block.stream, freed)
    }

    /// Returns the idle chunks.
    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        let idle = self.idle_chunks();
        if !idle.is_empty() {
            self.free.synchronize(device)?;
        }
        for chunk in idle {
            self.return_chunk(device, chunk)?;
        }
        if self.is_empty() {
            self.free.forget();
            self.begun = false;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        let sum: u64 = self.chunks.values().sum();
        ensure!(
            sum == self.bytes,
            "a pool of {} bytes has chunks of {sum}",
            self.bytes
        );
        self.free.lists().try_for_each(CoalescingFreeList::check)?;
        for list in self.free.lists() {
            for block in list.inside(DeviceAddr::NULL..DeviceAddr(u64::MAX)) {
                let chunk = self.chunks.range(..=block.addr).next_back();
                let inside = chunk.is_some_and(|(addr, &bytes)| {
                    block.addr.offset_from(*addr) + block.bytes <= bytes
                });
                ensure!(inside, "free block {} is in no chunk", block.addr);
                ensure!(
                    block.is_head == self.chunks.contains_key(&block.addr),
                    "free block {} is wrongly marked as the start of a chunk, or not marked",
                    block.addr
                );
            }
        }
        Ok(())
    }
}
