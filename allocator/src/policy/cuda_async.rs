//! The driver's stream-ordered pool, `cudaMallocAsync`: the device's own, or a model of it where
//! the device has none.
//!
//! As PyTorch's `backend:cudaMallocAsync` (2.11) uses it:
//! - free memory is kept whatever there is of it, where CUDA's default is to keep none: so does RMM;
//! - a block that further streams were recorded on is freed on a stream of its own, made to wait for them
//!   all;
//! - emptying the cache is `cudaDeviceSynchronize` and `cudaMemPoolTrimTo` 0.

mod model;
mod pool;

use crate::check::Violation;
use crate::driver::{Driver, PoolSettings, StreamId};

use self::model::Model;
use self::pool::Pool;
use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Refusal};

/// What requests are rounded up to, in bytes.
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
    Model(Model),
}

impl Backend {
    /// The pool of a device that has one.
    fn of(device: &mut dyn Driver, settings: PoolSettings) -> Result<Self, Refusal> {
        Ok(match device.stream_ordered() {
            Some(pool) => Self::Pool(Pool::with(pool, settings)?),
            None => Self::Model(Model::new(settings)),
        })
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Self::Pool(pool) => pool,
            Self::Model(model) => model,
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
    fn malloc(
        &mut self,
        device: &mut dyn Driver,
        bytes: u64,
        stream: StreamId,
    ) -> Result<Block, Refusal> {
        let backend = match self.backend.take() {
            Some(backend) => backend,
            None => Backend::of(device, self.settings)?,
        };
        let policy = self.backend.insert(backend).policy();
        policy.malloc(device, bytes.next_multiple_of(UNIT), stream)
    }

    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Result<(), Refusal> {
        match &mut self.backend {
            Some(backend) => backend.policy().free(device, block),
            None => Ok(()),
        }
    }

    fn record_stream(
        &mut self,
        device: &mut dyn Driver,
        block: Block,
        stream: StreamId,
    ) -> Result<(), Refusal> {
        match &mut self.backend {
            Some(backend) => backend.policy().record_stream(device, block, stream),
            None => Ok(()),
        }
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Result<(), Refusal> {
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
