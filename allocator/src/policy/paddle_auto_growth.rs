//! PaddlePaddle's auto growth allocator: best fit, cutting from the high end.
//!
//! - Sizes are multiples of the alignment. The request gets the high end of the smallest free block
//!   that is large enough, the lowest address among equals; the rest, however little, stays free.
//! - Where no block is large enough, a chunk is taken from the device: of the chunk size, or larger
//!   if the request is.
//! - With a small pool, requests up to its size and larger ones have chunks of their own, and a chunk
//!   size each.
//! - Idle chunks are kept until memory runs out; or, if so set, until the next chunk is taken, or not
//!   at all.
//!
//! This is the allocator of one stream. Several streams, and `record_stream`, are the work of the
//! layer above it, in Paddle as here: [`StreamSafe`].
//!
//! Source: PaddlePaddle 3.3.1 (`7688495`), in `paddle/phi/core/memory/allocation`:
//! `auto_growth_best_fit_allocator.{h,cc}`, and for how it is set up on a GPU `allocator_facade.cc`.
//!
//! What differs:
//! - Sizes are in bytes where Paddle's flags are in MiB.
//! - The flags that take memory before the first request are left out
//!   (`FLAGS_{small,large}_pool_pre_alloc_in_mb`), as is the padding of requests that some devices
//!   other than GPUs ask for.
//! - A freed block that another stream worked on waits for the work that stream has then; in Paddle,
//!   for the work it had when it was recorded.
//! - Before it gives up for lack of memory, Paddle waits for other threads to free some
//!   (`FLAGS_gpu_allocator_retry_time`). There are no others here.
//! - Where the device refuses to take a chunk back, Paddle ends with an error. Here the chunk stays.

use crate::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::pieces::Pieces;
use super::settings::{PolicySettings, PolicySettingsError};
use super::stream_safe::StreamSafe;
use super::{Block, Policy, Refusal, malloc_or_retry, only_default};

/// What sizes are multiples of unless set otherwise (`FLAGS_alignment_size`), in bytes. Settings are
/// multiples of it, because addresses have to be.
const ALIGNMENT: u64 = 256;
/// No setting is larger, in bytes.
const LARGEST: u64 = 1 << 60;

/// What chunks are taken for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pool {
    Small,
    Large,
}

/// Paddle's allocator of one stream.
#[derive(Clone, Debug)]
pub struct AutoGrowth {
    /// What sizes are multiples of, in bytes.
    alignment: u64,
    /// Requests of at most this many bytes are small; 0 if all are large.
    small_pool_size: u64,
    /// Least bytes of a chunk for small requests; a multiple of the alignment.
    small_chunk_size: u64,
    /// Least bytes of any other chunk; a multiple of the alignment.
    large_chunk_size: u64,
    /// Whether a chunk is given back as soon as it is idle.
    free_idle_chunk: bool,
    /// Whether idle chunks are given back before another is taken.
    free_when_no_cache_hit: bool,
    /// All blocks. None ranks above another: among equals the address decides.
    blocks: Pieces<Pool>,
}

impl AutoGrowth {
    /// An allocator with Paddle's flags as settings; sizes in bytes, 0 or off unless given:
    /// - `alignment_size`: what sizes are multiples of; 256 unless given;
    /// - `auto_growth_chunk_size`: least bytes of a chunk, where there is no small pool;
    /// - `small_pool_size`: requests up to this size have chunks of their own;
    /// - `small_pool_auto_growth_chunk_size`, `large_pool_auto_growth_chunk_size`: least bytes of a
    ///   chunk, where there is a small pool;
    /// - `free_idle_chunk`: give a chunk back as soon as it is idle;
    /// - `free_when_no_cache_hit`: give idle chunks back before taking another.
    ///
    /// # Errors
    /// If a knob is unknown or its value is not of its kind.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let alignment = take_alignment(settings)?;
        let chunk_size = take_size(settings, "auto_growth_chunk_size", 0)?;
        let small_pool_size = take_size(settings, "small_pool_size", 0)?;
        let small_chunk_size = take_size(settings, "small_pool_auto_growth_chunk_size", 0)?;
        let large_chunk_size = take_size(settings, "large_pool_auto_growth_chunk_size", 0)?;
        let free_idle_chunk = settings.take("free_idle_chunk", false)?;
        let free_when_no_cache_hit = settings.take("free_when_no_cache_hit", false)?;
        let large_chunk_size = match small_pool_size {
            0 => chunk_size,
            _ => large_chunk_size,
        };
        Ok(Self {
            alignment,
            small_pool_size,
            small_chunk_size: small_chunk_size.next_multiple_of(alignment),
            large_chunk_size: large_chunk_size.next_multiple_of(alignment),
            free_idle_chunk,
            free_when_no_cache_hit,
            blocks: Pieces::default(),
        })
    }

    fn pool_of(&self, size: u64) -> Pool {
        if size <= self.small_pool_size {
            Pool::Small
        } else {
            Pool::Large
        }
    }

    /// Hands out the last `size` of the `bytes` that a block in use has.
    fn take_high_end(&mut self, addr: DeviceAddr, bytes: u64, size: u64) -> DeviceAddr {
        if bytes == size {
            return addr;
        }
        let high = self.blocks.cut(addr, bytes - size, 0);
        self.blocks.free(addr);
        high
    }

    /// Takes a chunk for a request of `size` bytes.
    fn grow(
        &mut self,
        device: &mut dyn Driver,
        size: u64,
        pool: Pool,
    ) -> Result<(DeviceAddr, u64), Refusal> {
        let bytes = size.max(match pool {
            Pool::Small => self.small_chunk_size,
            Pool::Large => self.large_chunk_size,
        });
        let chunk = if self.free_when_no_cache_hit {
            self.empty_cache(device)?;
            device.malloc(bytes)?
        } else {
            malloc_or_retry(device, bytes, |device| self.empty_cache(device))?
        };
        self.blocks.add(chunk, bytes, pool, 0);
        Ok((chunk, bytes))
    }
}

impl StreamSafe<AutoGrowth> {
    /// Paddle's allocator of a device, with the settings of [`AutoGrowth::from_settings`].
    ///
    /// # Errors
    /// As there.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(AutoGrowth::from_settings(settings)?))
    }
}

impl Policy for AutoGrowth {
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        only_default(stream)?;
        let size = bytes.next_multiple_of(self.alignment);
        let pool = self.pool_of(size);
        let (addr, bytes) = match self.blocks.take_best_fit(pool, size) {
            Some(found) => found,
            None => self.grow(device, size, pool)?,
        };
        Ok(Block {
            addr: self.take_high_end(addr, bytes, size),
            bytes: size,
            stream,
        })
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        if self.free_idle_chunk
            && let Some((chunk, bytes)) = self.blocks.would_be_idle_without(block.addr)
        {
            // Given back while the block still counts as in use: if that fails, nothing has changed.
            device.free(chunk, bytes)?;
            self.blocks.remove(chunk);
        } else {
            self.blocks.free(block.addr);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
        for (chunk, bytes) in self.blocks.idle_allocations() {
            device.free(chunk, bytes)?;
            self.blocks.remove(chunk);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.blocks.check()
    }
}

/// A knob for a size.
fn take_size(
    settings: &mut PolicySettings,
    key: &'static str,
    default: u64,
) -> Result<u64, PolicySettingsError> {
    match settings.take_bytes(key, default)? {
        bytes if bytes <= LARGEST => Ok(bytes),
        bytes => Err(PolicySettingsError::invalid(
            key,
            bytes,
            "more than 2^60 bytes",
        )),
    }
}

fn take_alignment(settings: &mut PolicySettings) -> Result<u64, PolicySettingsError> {
    let key = "alignment_size";
    match take_size(settings, key, ALIGNMENT)? {
        bytes if bytes > 0 && bytes.is_multiple_of(ALIGNMENT) => Ok(bytes),
        bytes => Err(PolicySettingsError::invalid(
            key,
            bytes,
            "not a multiple of 256 bytes",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_size_of_the_one_pool_does_not_count_for_two() {
        let chunk_sizes = |conf| {
            let made = PolicySettings::read(conf, AutoGrowth::from_settings).unwrap();
            (made.small_chunk_size, made.large_chunk_size)
        };
        assert_eq!(chunk_sizes("auto_growth_chunk_size:1000"), (0, 1024));
        let two = "auto_growth_chunk_size:1000,small_pool_size:512";
        assert_eq!(chunk_sizes(two), (0, 0));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        for (conf, said) in [
            ("alignment_size:0", "not a multiple of 256 bytes"),
            ("alignment_size:384", "not a multiple of 256 bytes"),
            ("small_pool_size:2097152TiB", "more than 2^60 bytes"),
        ] {
            let error = PolicySettings::read(conf, AutoGrowth::from_settings)
                .unwrap_err()
                .to_string();
            assert!(error.contains(said), "no '{said}' in: {error}");
        }
    }
}
