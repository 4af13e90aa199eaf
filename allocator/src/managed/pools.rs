//! Users of private pools, and which requests the pools serve, for policies that have private pools.

use std::any::Any;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use super::{Live, Managed};
use crate::checkpoint::{Checkpoint, RestoredPool};
use crate::driver::{DeviceAddr, Driver, StreamId};
use crate::error::{CheckpointError, Error, PoolError};
use crate::mempool::{MempoolId, StreamFilter};
use crate::policy::{Block, Policy, PrivatePools, Refusal};
use crate::private_pools::HasPrivatePools;

/// The requests of some streams, which a pool serves.
struct Redirection {
    pool: MempoolId,
    accepts: StreamFilter,
}

impl fmt::Debug for Redirection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redirection({})", self.pool)
    }
}

/// A private pool at one time.
struct Saved {
    live: Vec<Live>,
    /// What the policy saved.
    of_policy: Box<dyn Any + Send>,
}

/// The users of all pools.
#[derive(Debug, Default)]
pub(super) struct PoolUsers {
    /// The number of users of each pool.
    users: BTreeMap<MempoolId, u64>,
    /// The oldest first. The last one that accepts a stream applies.
    redirections: Vec<Redirection>,
    /// Captures announced by [`HasPrivatePools::begin_capture`].
    announced: u64,
    /// Whether the policy was told that a graph is captured.
    is_capturing: bool,
}

impl PoolUsers {
    /// The pool that serves requests of a stream, if it is private.
    #[inline]
    pub(super) fn pool_of(&self, stream: StreamId) -> Option<MempoolId> {
        let mut newest_first = self.redirections.iter().rev();
        let redirection = newest_first.find(|redirection| (redirection.accepts)(stream));
        redirection.map(|redirection| redirection.pool)
    }

    /// Forgets the pools without users, which were emptied unless a graph is captured. Their ids can be used again.
    pub(super) fn forget_emptied(&mut self) {
        if !self.is_capturing {
            self.users.retain(|_, users| *users > 0);
        }
    }

    /// Undoes the addition of a user.
    fn remove_user(&mut self, pool: MempoolId) {
        match self.users.get_mut(&pool) {
            Some(users) if *users > 1 => *users -= 1,
            _ => {
                self.users.remove(&pool);
            }
        }
    }

    /// Whether no graph was or is captured since the policy was told last.
    fn is_idle(&self) -> bool {
        !self.is_capturing && self.announced == 0 && self.redirections.is_empty()
    }

    /// Whether a graph may be captured: while a pool of graphs serves requests. Of other pools, only the device knows.
    fn may_capture(&self, device: &dyn Driver) -> bool {
        let captures = |redirection: &Redirection| redirection.pool.is_of_graphs();
        self.announced > 0
            || self.redirections.iter().any(captures)
            || !self.redirections.is_empty() && device.is_capturing()
    }
}

impl<D: Driver> Managed<D> {
    /// Tells the policy when the capture of a graph begins and ends.
    #[inline]
    pub(super) fn notice_capture(&mut self) -> Result<(), Error> {
        if self.pools.is_idle() {
            Ok(())
        } else {
            self.notice_change_of_capture()
        }
    }

    fn notice_change_of_capture(&mut self) -> Result<(), Error> {
        let is_capturing = self.pools.may_capture(&self.device);
        if is_capturing == self.pools.is_capturing {
            return Ok(());
        }
        if let Some(pools) = self.policy.private_pools() {
            let told = if is_capturing {
                pools.begin_capture(&mut self.device)
            } else {
                pools.end_capture();
                Ok(())
            };
            told.map_err(|refusal| self.explain(refusal, 0, StreamId::DEFAULT))?;
        }
        self.pools.is_capturing = is_capturing;
        Ok(())
    }

    /// The live blocks of a pool, by address.
    fn live_blocks_of(&mut self, pool: MempoolId) -> Result<Vec<Live>, Error> {
        if !self.pools.users.contains_key(&pool) {
            return Err(CheckpointError::NothingToSave.into());
        }
        let pools = pools_of(&mut *self.policy, self.name)?;
        let live = self.live.values().copied();
        let mut owned: Vec<Live> = live.filter(|live| pools.owns(pool, live.block)).collect();
        owned.sort_unstable_by_key(|live| live.block.addr);
        Ok(owned)
    }

    fn policy_pools(&mut self) -> Result<&mut dyn PrivatePools, Error> {
        pools_of(&mut *self.policy, self.name)
    }
}

/// The private pools of a policy of this name.
fn pools_of<'a>(
    policy: &'a mut dyn Policy,
    name: &'static str,
) -> Result<&'a mut dyn PrivatePools, Error> {
    let unsupported = Error::Unsupported {
        policy: name,
        what: "private pools",
    };
    policy.private_pools().ok_or(unsupported)
}

fn blocks(live: &[Live]) -> Vec<Block> {
    live.iter().map(|live| live.block).collect()
}

impl<D: Driver> HasPrivatePools for Managed<D> {
    fn create_or_use_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        self.policy_pools()?;
        match self.pools.users.get_mut(&pool) {
            Some(0) => return Err(PoolError::Released(pool).into()),
            Some(users) => *users += 1,
            None => {
                self.pools.users.insert(pool, 1);
            }
        }
        Ok(())
    }

    fn begin_allocate_to_pool(
        &mut self,
        pool: MempoolId,
        accepts: StreamFilter,
    ) -> Result<(), Error> {
        self.create_or_use_pool(pool)?;
        let mut active = self.pools.redirections.iter();
        if active.any(|redirection| redirection.pool == pool) {
            return Err(PoolError::AlreadyRecording.into());
        }
        self.pools.redirections.push(Redirection { pool, accepts });
        let noticed = self.notice_capture();
        if noticed.is_err() {
            self.pools.redirections.pop();
            self.pools.remove_user(pool);
        }
        noticed
    }

    fn end_allocate_to_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        let redirections = &mut self.pools.redirections;
        let index = redirections.iter().position(|active| active.pool == pool);
        redirections.remove(index.ok_or(PoolError::NotRecording)?);
        self.notice_capture()
    }

    fn release_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        let users = self
            .pools
            .users
            .get_mut(&pool)
            .ok_or(PoolError::Unknown(pool))?;
        *users = users.checked_sub(1).ok_or(PoolError::Released(pool))?;
        if *users == 0 {
            self.policy_pools()?.release_pool(pool);
        }
        Ok(())
    }

    fn pool_use_count(&mut self, pool: MempoolId) -> Result<u64, Error> {
        let users = self.pools.users.get(&pool);
        users.copied().ok_or(PoolError::Unknown(pool).into())
    }

    fn empty_pool(&mut self, pool: MempoolId) -> Result<(), Error> {
        if self.pools.users.get(&pool) != Some(&0) {
            return Ok(());
        }
        self.notice_capture()?;
        let emptied = match self.policy.private_pools() {
            Some(pools) => pools.empty_released_pools(&mut self.device),
            None => Ok(()),
        };
        self.count_held();
        emptied.map_err(|refusal: Refusal| self.explain(refusal, 0, StreamId::DEFAULT))?;
        if !self.pools.is_capturing {
            self.pools.users.remove(&pool);
        }
        Ok(())
    }

    fn checkpoint_pool(&mut self, pool: MempoolId) -> Result<Checkpoint, Error> {
        if self.pools.users.get(&pool) == Some(&0) {
            return Err(CheckpointError::Released.into());
        }
        let live = self.live_blocks_of(pool)?;
        let saved = match self.policy.private_pools() {
            Some(pools) => pools.save(&mut self.device, pool, &blocks(&live)),
            None => return Err(CheckpointError::NothingToSave.into()),
        };
        let of_policy = saved.map_err(|refusal| self.explain(refusal, 0, StreamId::DEFAULT))?;
        Ok(Checkpoint::new(pool, Saved { live, of_policy }))
    }

    fn restore_pool(&mut self, checkpoint: &Checkpoint) -> Result<RestoredPool, Error> {
        let (pool, saved) = (checkpoint.pool(), checkpoint.saved::<Saved>()?);
        match self.pools.users.get(&pool) {
            Some(0) => return Err(CheckpointError::Released.into()),
            Some(_) => {}
            None => return Err(CheckpointError::NothingToRestore.into()),
        }
        let freed = self.live_blocks_of(pool)?;
        let restored = match self.policy.private_pools() {
            Some(pools) => {
                let now = blocks(&freed);
                pools.restore(&mut self.device, pool, &*saved.of_policy, &now)
            }
            None => return Err(CheckpointError::NothingToRestore.into()),
        };
        restored.map_err(|refusal| self.explain(refusal, 0, StreamId::DEFAULT))?;
        for live in &freed {
            self.live.remove(&live.block.addr);
            self.count_free(*live);
        }
        for live in &saved.live {
            self.live.insert(live.block.addr, *live);
            self.count_allocation(live.block, live.requested);
        }
        let addresses = |blocks: &[Live]| blocks.iter().map(|live| live.block.addr).collect();
        Ok(RestoredPool {
            freed: addresses(&freed),
            allocated: addresses(&saved.live),
        })
    }

    fn pool_live_allocations_are(
        &mut self,
        pool: MempoolId,
        expected: &HashSet<DeviceAddr>,
    ) -> Result<bool, Error> {
        let live = self.live_blocks_of(pool)?;
        let live = live.iter().map(|live| live.block.addr);
        Ok(live.collect::<HashSet<_>>() == *expected)
    }

    fn begin_capture(&mut self) -> Result<(), Error> {
        self.pools.announced += 1;
        let noticed = self.notice_capture();
        if noticed.is_err() {
            self.pools.announced -= 1;
        }
        noticed
    }

    fn end_capture(&mut self) -> Result<(), Error> {
        let left = self.pools.announced.checked_sub(1);
        self.pools.announced = left.ok_or(PoolError::NoCapture)?;
        self.notice_capture()
    }
}
