//! No caching: every malloc and free is a call of the driver.
//!
//! Source: `cudaMalloc` and `cudaFree`, as with `PYTORCH_NO_CUDA_MEMORY_CACHING=1`. It reserves the least
//! memory of all policies that do not share pages between blocks, and pays a driver call for each
//! operation. It has no settings.

use std::collections::HashSet;

use crate::driver::{DeviceAddr, Driver, StreamId};

use super::settings::{PolicySettings, PolicySettingsError};
use super::{Block, Policy, Served};

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Direct {
    /// Blocks that other streams use.
    shared: HashSet<DeviceAddr>,
}

impl Direct {
    /// Has no settings.
    ///
    /// # Errors
    /// None.
    pub fn from_settings(_: &mut PolicySettings) -> Result<Self, PolicySettingsError> {
        Ok(Self::default())
    }
}

impl Policy for Direct {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        let addr = device.malloc(bytes)?;
        Ok(Block::new(addr, bytes, stream))
    }

    /// Synchronizes explicitly: `cudaFree` does so itself, but drivers do not promise that.
    fn free(&mut self, device: &mut dyn Driver, block: Block) -> Served {
        if self.shared.contains(&block.addr) {
            device.synchronize_device()?;
        }
        device.free(block.addr, block.bytes)?;
        self.shared.remove(&block.addr);
        Ok(())
    }

    fn record_stream(&mut self, _: &mut dyn Driver, block: Block, _: StreamId) -> Served {
        self.shared.insert(block.addr);
        Ok(())
    }

    fn empty_cache(&mut self, _: &mut dyn Driver) -> Served {
        Ok(())
    }
}
