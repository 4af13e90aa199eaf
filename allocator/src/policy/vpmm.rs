//! OpenVM's VPMM, the Virtual Memory Pool Manager: free pages are mapped again, at consecutive addresses, to serve
//! a request that no free region could serve alone.
//!
//! ```text
//!             hole                free region        free region
//!  ┌─────────┬──────────────────┬────────┬─────────┬────────┐
//!  │ in use  │                  │ 8 MiB  │ in use  │ 6 MiB  │
//!  └─────────┴──────────────────┴───┬────┴─────────┴───┬────┘
//!                                   └──────┐   ┌───────┘     the same physical memory, mapped a second time
//!  ┌─────────┬──────────────────┬──────────┴─┬─┴───────┐
//!  │ in use  │ 4 MiB, new pages │ 8 MiB      │ 6 MiB   │     18 MiB for the request; the old addresses are
//!  └─────────┴──────────────────┴────────────┴─────────┘     unmapped once no work uses them
//! ```
//!
//! Source: openvm-org/stark-backend at bf161ed, `crates/cuda-common/src/memory_manager` (`mod.rs`, `vm_pool.rs`) and
//! `docs/vpmm_spec.md`. Where the text and the code differ, this follows the code.
//!
//! | setting | default | original | |
//! |---|---|---|---|
//! | `page_size` | 2 MiB | `VPMM_PAGE_SIZE` | bytes of a page, a multiple of 2 MiB |
//! | `va_size` | 8 TiB | `VPMM_VA_SIZE` | bytes of addresses to reserve at a time, a multiple of `page_size`, and the largest request |
//! | `initial_pages` | 0 | `VPMM_PAGES` | pages to create in advance |
//!
//! # A request
//!
//! Requests smaller than a page go to [`cudaMallocAsync`](super::cuda_async), with the settings that CUDA's pool has
//! by default. The pool serves the others, in whole pages. It unmaps the old addresses of pages whose work is complete,
//! and takes the first of
//!
//! 1. the smallest free region of the request's stream that is large enough, the lowest among equals;
//! 2. the smallest free region of another stream, if an event says that its work is complete;
//! 3. a region in the smallest *hole*, a range of addresses without memory. All free memory counts: the pool creates
//!    only the pages that are missing, and maps them at the start of the hole. Then it maps the pages of free regions
//!    behind them: first those of the request's stream, then those of others, each in the order in which they became
//!    free. The stream waits for the work on regions of other streams; the host does not.
//!
//! The rest of a region stays free. A free records an event on the block's stream, and the freed region is merged with
//! the free regions next to it that belong to the same stream. No other stream may use a block. Pages stay with the
//! pool until the cache is emptied. So do the addresses at the end of a hole that are not needed after all, because the
//! new pages were merged with a free region before them: nothing uses these addresses.
//!
//! # Differences
//!
//! - If the device fails, the original stops the program, or loses the hole and the pages that were mapped. Here
//!   nothing is lost, and the request fails.
//! - The original reserves addresses and creates pages when the program starts. Here the first request that the pool
//!   serves does so.
//! - The original returns memory only at the end of the program. `empty_cache` does the same for all memory that is
//!   not in use.
//! - Pages are unmapped one by one, not region by region. Events are reused.

mod pool;
mod regions;
mod remap;

use crate::base::check::Violation;
use crate::driver::{Driver, GRANULARITY, PoolSettings, StreamId};

use self::pool::Pool;
use super::cuda_async::CudaAsync;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served};

/// Bytes of addresses to reserve at a time, unless set otherwise.
const VA_SIZE: u64 = 8 << 40;

/// The settings of CUDA's default pool: it keeps no free memory when the device is idle.
const CUDA_DEFAULTS: PoolSettings = PoolSettings {
    release_threshold: 0,
    reuse_opportunistic: true,
    reuse_internal_dependencies: true,
};

/// The settings of the [module](self).
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    page_size: u64,
    va_size: u64,
    initial_pages: u64,
}

impl Settings {
    fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let page_size = settings.take_bytes("page_size", GRANULARITY)?;
        if !is_multiple(page_size, GRANULARITY) {
            let why = format!("expected a multiple of {GRANULARITY} above 0");
            return Err(PolicySettingsError::invalid("page_size", page_size, why));
        }
        let va_size = settings.take_bytes("va_size", VA_SIZE)?;
        if !is_multiple(va_size, page_size) {
            let why = format!("expected a multiple of page_size, {page_size}, above 0");
            return Err(PolicySettingsError::invalid("va_size", va_size, why));
        }
        let initial_pages = settings.take("initial_pages", 0)?;
        let most = va_size / page_size;
        if initial_pages > most {
            let why = format!("expected at most {most}, the pages in va_size");
            let key = "initial_pages";
            return Err(PolicySettingsError::invalid(key, initial_pages, why));
        }
        Ok(Self {
            page_size,
            va_size,
            initial_pages,
        })
    }

    /// Whether the pool serves requests of this size.
    fn is_pooled(&self, bytes: u64) -> bool {
        bytes >= self.page_size
    }
}

fn is_multiple(bytes: u64, of: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(of)
}

/// See the [module](self).
#[derive(Debug)]
pub struct Vpmm {
    settings: Settings,
    pool: Pool,
    /// Serves requests smaller than a page.
    small: CudaAsync,
}

impl Vpmm {
    /// Takes the settings of the [module](self).
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        let settings = Settings::from_settings(settings)?;
        Ok(Self {
            settings,
            pool: Pool::new(settings),
            small: CudaAsync::new(CUDA_DEFAULTS),
        })
    }
}

impl Policy for Vpmm {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        if !self.settings.is_pooled(bytes) {
            return self.small.malloc(device, bytes, stream);
        }
        let bytes = bytes.next_multiple_of(self.settings.page_size);
        let addr = self.pool.malloc(device, bytes, stream)?;
        Ok(Block::new(addr, bytes, stream))
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.pool.has(block) {
            self.pool.free(device, block)
        } else {
            self.small.free(device, block)
        }
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        self.small.empty_cache(device)?;
        self.pool.empty(device)
    }

    fn check(&self) -> Result<(), Violation> {
        self.small.check()?;
        self.pool.check()
    }
}
