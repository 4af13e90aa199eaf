//! Garbage collection: returns cached segments that have been free for long, before memory runs out and
//! all of them must be returned.
//!
//! A block's age is the number of searches in its pool since it became free. Only the default large
//! pool is collected.
//!
//! Source: PyTorch 2.11, `garbage_collect_cached_blocks`.

use super::{BlockId, PyTorch};
use crate::driver::Driver;
use crate::error::Error;

impl<D: Driver> PyTorch<D> {
    /// Whether garbage collection is on: it needs a threshold and a limit.
    #[inline]
    pub(super) fn collects_garbage(&self) -> bool {
        self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0
    }

    /// Returns segments of at least average age until reserved memory is down to the threshold or no
    /// candidate remains. A pass always completes, even if it has returned enough.
    pub(super) fn collect_garbage(&mut self) -> Result<(), Error> {
        let Some(limit) = self.limit.filter(|_| self.collects_garbage()) else {
            return Ok(());
        };
        let threshold = (self.settings.garbage_collection_threshold * limit as f64) as u64;
        let target = self.reserved.saturating_sub(threshold);
        let mut reclaimed = 0;
        // Unsplit blocks of expandable segments count towards the average but are never returned here.
        let (mut count, mut ages) = (0_u64, 0_u64);
        for id in self.unsplit_large_blocks() {
            count += 1;
            ages += self.pools.age(&self.blocks[id]);
        }
        let mut progress = true;
        while reclaimed < target && progress && count > 0 {
            let average = ages as f64 / count as f64;
            progress = false;
            for id in self.unsplit_large_blocks() {
                let block = &self.blocks[id];
                let age = self.pools.age(block);
                if !block.is_expandable() && age as f64 >= average {
                    reclaimed += block.size;
                    count -= 1;
                    ages -= age;
                    progress = true;
                    self.release_block(id)?;
                }
            }
        }
        Ok(())
    }

    fn unsplit_large_blocks(&self) -> Vec<BlockId> {
        let large = self.pools.free(&self.blocks, self.large);
        large.filter(|&id| !self.blocks[id].is_split()).collect()
    }
}
