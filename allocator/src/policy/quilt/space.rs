//! The memory that serves the requests of one pool: the common memory, or that of a private pool.

use std::collections::{BTreeMap, VecDeque};

use crate::base::check::Violation;
use crate::policy::free_runs::FreeRuns;

use super::sharing::Pending;
use super::slabs::Slabs;
use super::streams::StreamNumber;

/// Free memory and slabs. All other state is about the memory of all pools.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Free memory by position.
    pub(super) free: FreeRuns,
    /// By the number of the stream.
    pub(super) slabs: Vec<Slabs>,
    /// Freed small blocks that other streams still use, by the number of the stream that requested them.
    pub(super) pending: BTreeMap<u16, VecDeque<Pending>>,
}

impl Space {
    /// The slabs of a stream.
    pub(super) fn slabs_of(&mut self, stream: StreamNumber) -> &mut Slabs {
        let index = stream.index();
        if index >= self.slabs.len() {
            self.slabs.resize_with(index + 1, Slabs::default);
        }
        &mut self.slabs[index]
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.free.check()?;
        self.slabs.iter().try_for_each(Slabs::check)
    }
}
