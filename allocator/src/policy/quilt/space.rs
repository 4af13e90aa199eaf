//! The memory that serves the requests of one pool: the common memory, or that of a private pool.

use std::collections::{BTreeMap, VecDeque};

use crate::base::check::Violation;
use crate::driver::StreamId;

use super::history::History;
use super::sharing::Pending;
use super::slabs::Slabs;
use crate::policy::free_runs::FreeRuns;

/// Free memory and slabs. All other state is about the memory of all pools.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Free memory by position.
    pub(super) free: FreeRuns,
    pub(super) slabs: BTreeMap<StreamId, Slabs>,
    /// Freed small blocks that other streams still use, by the stream that requested them.
    pub(super) pending: BTreeMap<StreamId, VecDeque<Pending>>,
    pub(super) history: History,
}

impl Space {
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.free.check()?;
        self.slabs.values().try_for_each(Slabs::check)
    }
}
