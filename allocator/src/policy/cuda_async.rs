//! The driver's stream-ordered pool, `cudaMallocAsync`: the pool of the device, or a model of it on
//! devices without one.
//!
//! | setting | default | |
//! |---|---|---|
//! | `release_threshold` | unlimited | bytes to keep when the device is idle |
//! | `reuse_opportunistic` | `true` | reuse memory of another stream whose work is complete |
//! | `reuse_internal_dependencies` | `true` | reuse memory of another stream by waiting for its work |
//!
//! The pool is used as by PyTorch's `backend:cudaMallocAsync` (2.11):
//! - all free memory is kept, as in RMM; CUDA's default is to keep none;
//! - a block used on further streams is freed on a separate stream that waits for all of them;
//! - emptying the cache calls `cudaDeviceSynchronize` and `cudaMemPoolTrimTo` with 0.

mod arena;
mod freed;
mod marks;
mod model;
mod pool;
mod streams;

use crate::base::check::Violation;
use crate::driver::{Driver, PoolSettings, StreamId};

use self::model::Model;
use self::pool::Pool;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served};

/// Granularity of requests in bytes.
const UNIT: u64 = 512;

/// See the [module](self).
#[derive(Debug)]
pub struct CudaAsync {
    settings: PoolSettings,
    /// Chosen at the first request.
    backend: Option<Backend>,
}

#[derive(Debug)]
enum Backend {
    Pool(Pool),
    Model(Box<Model>),
}

impl Backend {
    /// The pool of the device, or the model if it has none.
    fn of(device: &mut dyn Driver, settings: PoolSettings) -> Served<Self> {
        Ok(match device.stream_ordered() {
            Some(pool) => Self::Pool(Pool::with(pool, settings)?),
            None => Self::Model(Box::new(Model::new(settings))),
        })
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Self::Pool(pool) => pool,
            Self::Model(model) => &mut **model,
        }
    }
}

impl CudaAsync {
    /// The pool with these settings.
    #[must_use]
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            backend: None,
        }
    }

    /// Takes `release_threshold` in bytes, and `reuse_opportunistic` and `reuse_internal_dependencies`,
    /// each `true` or `false`.
    ///
    /// # Errors
    /// If a value is invalid.
    pub fn from_settings(settings: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::new(PoolSettings {
            release_threshold: settings.take_bytes("release_threshold", u64::MAX)?,
            reuse_opportunistic: settings.take("reuse_opportunistic", true)?,
            reuse_internal_dependencies: settings.take("reuse_internal_dependencies", true)?,
        }))
    }
}

impl Policy for CudaAsync {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let backend = match self.backend.take() {
            Some(backend) => backend,
            None => Backend::of(device, self.settings)?,
        };
        let policy = self.backend.insert(backend).policy();
        policy.malloc(device, bytes.next_multiple_of(UNIT), stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        match &mut self.backend {
            Some(backend) => backend.policy().free(device, block),
            None => Ok(()),
        }
    }

    fn record_stream(&mut self, device: &mut dyn Driver, block: Block, stream: StreamId) -> Served {
        match &mut self.backend {
            Some(backend) => backend.policy().record_stream(device, block, stream),
            None => Ok(()),
        }
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        match &mut self.backend {
            Some(backend) => backend.policy().empty_cache(device),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), Violation> {
        match &self.backend {
            Some(Backend::Pool(pool)) => pool.check(),
            Some(Backend::Model(model)) => model.check(),
            None => Ok(()),
        }
    }
}
