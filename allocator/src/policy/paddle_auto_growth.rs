//! PaddlePaddle's auto growth allocator: best fit, split from the high end.
//!
//! - Sizes are multiples of the alignment. A request gets the high end of the smallest free block that is
//!   large enough, the lowest address among equals. The rest stays free, however small it is.
//! - If no block is large enough, a chunk is taken from the device: of the chunk size, or of the
//!   request's if that is larger.
//! - With a small pool, small and large requests have separate chunks with separate chunk sizes.
//! - Idle chunks are kept until memory runs out, until the next chunk is taken, or not at all, by setting.
//!
//! | setting | default | |
//! |---|---|---|
//! | `alignment_size` | 256 | alignment of sizes, a multiple of 256 bytes |
//! | `auto_growth_chunk_size` | 0 | minimum bytes of a chunk, without a small pool |
//! | `small_pool_size` | 0 | largest request of the small pool, in bytes; 0 for no small pool |
//! | `small_pool_auto_growth_chunk_size` | 0 | minimum bytes of a chunk of the small pool |
//! | `large_pool_auto_growth_chunk_size` | 0 | minimum bytes of any other chunk, with a small pool |
//! | `free_idle_chunk` | `false` | return a chunk as soon as it is idle |
//! | `free_when_no_cache_hit` | `false` | return idle chunks before taking another |
//!
//! [`AutoGrowth`] serves one stream. As in Paddle, [`StreamSafe`] above it adds further streams and
//! `record_stream`.
//!
//! Source: PaddlePaddle 3.3.1 (`7688495`), `paddle/phi/core/memory/allocation`:
//! `auto_growth_best_fit_allocator.{h,cc}`, and `allocator_facade.cc` for its configuration on a GPU.
//!
//! Differences:
//! - Sizes are in bytes; Paddle's flags are in MiB.
//! - The flags that take memory in advance are left out (`FLAGS_{small,large}_pool_pre_alloc_in_mb`), and
//!   so is the padding that some devices other than GPUs need.
//! - A freed block waits for the work that other streams have at the free; in Paddle, for the work they
//!   had at `record_stream`.
//! - Paddle waits for other threads to free memory before a request fails
//!   (`FLAGS_gpu_allocator_retry_time`). Here there are none.
//! - If the device fails to take a chunk back, Paddle ends with an error. Here the chunk is kept.

use crate::base::check::Violation;
use crate::driver::{DeviceAddr, Driver, StreamId};

use super::pieces::Pieces;
use super::settings::{PolicySettings, PolicySettingsError};
use super::stream_safe::StreamSafe;
use super::{Block, Policy, Served, malloc_or_retry, only_default};

/// Default alignment of sizes in bytes (`FLAGS_alignment_size`). Addresses are multiples of it, so every
/// alignment must be, too.
const ALIGNMENT: u64 = 256;
/// Upper limit of all settings, in bytes.
const LARGEST: u64 = 1 << 60;

/// The pool that a chunk belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Pool {
    Small,
    Large,
}

/// Paddle's allocator of one stream.
#[derive(Clone, Debug)]
pub struct AutoGrowth {
    /// Alignment of sizes, in bytes.
    alignment: u64,
    /// Largest request of the small pool, in bytes; 0 for no small pool.
    small_pool_size: u64,
    /// Minimum bytes of a chunk of the small pool, a multiple of the alignment.
    small_chunk_size: u64,
    /// Minimum bytes of any other chunk, a multiple of the alignment.
    large_chunk_size: u64,
    /// Whether a chunk is returned as soon as it is idle.
    free_idle_chunk: bool,
    /// Whether idle chunks are returned before another is taken.
    free_when_no_cache_hit: bool,
    /// All blocks, with rank 0: the address decides among equals.
    blocks: Pieces<Pool>,
}

impl AutoGrowth {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
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

    /// Splits the last `size` bytes off a block in use of `bytes`, and frees the front.
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
    ) -> Served<(DeviceAddr, u64)> {
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

/// Paddle's allocator of a device: [`AutoGrowth`] for each stream.
pub type PaddleAutoGrowth = StreamSafe<AutoGrowth>;

impl PaddleAutoGrowth {
    /// Takes Paddle's flags as settings.
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::over(AutoGrowth::from_settings(settings)?))
    }
}

impl Policy for AutoGrowth {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        let size = bytes.next_multiple_of(self.alignment);
        let pool = self.pool_of(size);
        let (addr, bytes) = match self.blocks.take_best_fit(pool, size) {
            Some(found) => found,
            None => self.grow(device, size, pool)?,
        };
        Ok(Block::new(
            self.take_high_end(addr, bytes, size),
            size,
            stream,
        ))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.free_idle_chunk
            && let Some((chunk, bytes)) = self.blocks.would_be_idle_without(block.addr)
        {
            // The block is in use until the device has the chunk, so a failure changes nothing.
            device.free(chunk, bytes)?;
            self.blocks.remove(chunk);
        } else {
            self.blocks.free(block.addr);
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        for (chunk, bytes) in self.blocks.idle_allocations() {
            device.free(chunk, bytes)?;
            self.blocks.remove(chunk);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Violation> {
        self.blocks.check(self.alignment)
    }
}

/// Takes a setting in bytes.
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
    fn the_chunk_size_without_a_small_pool_is_ignored_with_one() {
        let chunk_sizes = |conf| {
            let made = PolicySettings::read(conf, AutoGrowth::from_settings).unwrap();
            (made.small_chunk_size, made.large_chunk_size)
        };
        assert_eq!(chunk_sizes("auto_growth_chunk_size:1000"), (0, 1024));
        let two = "auto_growth_chunk_size:1000,small_pool_size:512";
        assert_eq!(chunk_sizes(two), (0, 0));
    }
}
