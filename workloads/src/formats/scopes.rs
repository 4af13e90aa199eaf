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
    use PoolCall::{Begin, BeginCapture, Empty, End, EndCapture, Release};

    use super::*;
    use crate::budget::MOST_POOLS;

    const ONE: MempoolId = MempoolId(0, 1);
    const TWO: MempoolId = MempoolId(0, 2);

    /// The error of the last call; none of the others fails.
    fn last(calls: &[PoolCall]) -> Option<String> {
        let mut scopes = Scopes::default();
        let (last, before) = calls.split_last().unwrap();
        for &call in before {
            assert_eq!(scopes.check(call), Ok(()), "{call:?}");
        }
        scopes.check(*last).err()
    }

    #[test]
    fn a_pool_is_used_kept_released_and_emptied_in_this_order() {
        assert_eq!(
            last(&[
                Begin(ONE),
                Begin(TWO),
                End(ONE),
                Begin(ONE),
                End(ONE),
                End(TWO)
            ]),
            None
        );
        assert_eq!(
            last(&[Begin(ONE), End(ONE), Release(ONE), Empty(ONE), Empty(ONE)]),
            None
        );
        let (used, kept) = ([Begin(TWO), Begin(ONE)], [Begin(ONE), End(ONE)]);
        let released = [Begin(ONE), End(ONE), Release(ONE)];
        for (before, call, expected) in [
            (&[][..], End(ONE), "no requests go to pool 0:1"),
            (&[], Release(ONE), "no requests went to pool 0:1"),
            (&[], Empty(ONE), "no requests went to pool 0:1"),
            (&used, Begin(ONE), "requests already go to pool 0:1"),
            (&used, Release(ONE), "requests still go to pool 0:1"),
            (&used, Empty(ONE), "pool 0:1 was not released"),
            (&kept, End(ONE), "no requests go to pool 0:1"),
            (&kept, Empty(ONE), "pool 0:1 was not released"),
            (&released, Begin(ONE), "pool 0:1 was released"),
            (&released, End(ONE), "no requests go to pool 0:1"),
            (&released, Release(ONE), "pool 0:1 was released before"),
            (&released, Empty(TWO), "no requests went to pool 0:2"),
        ] {
            let calls = [before, &[call]].concat();
            let found = last(&calls).unwrap();
            assert_eq!(
                found.replace("(0, 1)", "0:1").replace("(0, 2)", "0:2"),
                expected,
                "{calls:?}"
            );
        }
    }

    #[test]
    fn captures_end_as_often_as_they_begin() {
        assert_eq!(
            last(&[BeginCapture, BeginCapture, EndCapture, EndCapture]),
            None
        );
        let expected = Some("no capture is under way".to_owned());
        assert_eq!(last(&[EndCapture]), expected);
        assert_eq!(last(&[BeginCapture, EndCapture, EndCapture]), expected);
    }

    #[test]
    fn pools_have_a_limit() {
        let mut scopes = Scopes::default();
        let pools = (0..=MOST_POOLS as u64).map(|number| MempoolId(0, number));
        for pool in pools {
            assert_eq!(scopes.check(Begin(pool)), Ok(()));
        }
        assert!(scopes.check(BeginCapture).is_err());
    }
}
