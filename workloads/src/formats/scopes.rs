//! The private pools of a trace while it is read.

use std::collections::BTreeMap;

use coalesce_alloc::{MempoolId, PoolCall};

use crate::budget::check_pools;

/// Checks that calls about private pools do not contradict each other.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    pools: BTreeMap<MempoolId, Use>,
    captures: u64,
}

/// The use of a private pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Requests go to it.
    Directed,
    /// It keeps its memory.
    Kept,
    /// Nobody uses it any more.
    Released,
}

impl Scopes {
    /// Fails if a call contradicts those before it.
    pub(super) fn check(&mut self, call: PoolCall) -> Result<(), String> {
        check_pools(self.pools.len())?;
        match call {
            PoolCall::Begin(pool) => match self.pools.insert(pool, Use::Directed) {
                Some(Use::Directed) => Err(format!("requests already go to pool {pool}")),
                Some(Use::Released) => Err(format!("pool {pool} was released")),
                Some(Use::Kept) | None => Ok(()),
            },
            PoolCall::End(pool) => match self.pools.insert(pool, Use::Kept) {
                Some(Use::Directed) => Ok(()),
                _ => Err(format!("no requests go to pool {pool}")),
            },
            PoolCall::Release(pool) => match self.pools.insert(pool, Use::Released) {
                Some(Use::Kept) => Ok(()),
                Some(Use::Directed) => Err(format!("requests still go to pool {pool}")),
                Some(Use::Released) => Err(format!("pool {pool} was released before")),
                None => Err(format!("no requests went to pool {pool}")),
            },
            PoolCall::Empty(pool) => match self.pools.get(&pool) {
                Some(Use::Released) => Ok(()),
                Some(_) => Err(format!("pool {pool} was not released")),
                None => Err(format!("no requests went to pool {pool}")),
            },
            PoolCall::BeginCapture => {
                self.captures += 1;
                Ok(())
            }
            PoolCall::EndCapture => {
                let left = self.captures.checked_sub(1);
                self.captures = left.ok_or("no capture is under way")?;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MOST_POOLS;
    use crate::cases;
    use crate::formats::snapshot::fixture::pool_call;

    #[test]
    fn a_pool_is_used_kept_released_and_emptied_in_this_order() {
        cases::check("src/formats/cases/scopes.txt", |calls| {
            let mut scopes = Scopes::default();
            let mut checked: Vec<_> = calls
                .split(", ")
                .map(|text| scopes.check(pool_call(text)))
                .collect();
            let last = checked.pop().unwrap();
            assert!(checked.iter().all(Result::is_ok), "{calls}");
            last.map_or_else(|error| error, |()| "nothing".to_owned())
        });
    }

    #[test]
    fn pools_have_a_limit() {
        let mut scopes = Scopes::default();
        let pools = (0..=MOST_POOLS as u64).map(|number| MempoolId(0, number));
        for pool in pools {
            assert_eq!(scopes.check(PoolCall::Begin(pool)), Ok(()));
        }
        assert!(scopes.check(PoolCall::BeginCapture).is_err());
    }
}
