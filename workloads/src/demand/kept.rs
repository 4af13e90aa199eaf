//! The memory that private pools keep.
//!
//! A CUDA graph writes to the memory of its pool whenever it is launched, also to memory that the program freed during the
//! capture. So until a pool is released, what was live in it at once serves no other request, and no allocator can do with
//! less than that and all other live requests.

use std::collections::HashMap;

use coalesce_alloc::{MempoolId, PoolCall};

#[derive(Debug, Default)]
struct Pool {
    /// Bytes of live requests.
    live: u64,
    /// The most bytes that were live at once, or the live ones if it is released.
    kept: u64,
    is_released: bool,
}

/// Live requests, and what pools keep beyond them.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pools: HashMap<MempoolId, Pool>,
    /// The pools that requests are directed to. The last one serves them.
    directed_to: Vec<MempoolId>,
    /// The pools of live requests that are in one.
    pool_of: HashMap<u64, MempoolId>,
    /// Bytes of live requests that are in no pool, and bytes kept by all pools.
    bytes: u64,
}

impl Kept {
    /// Bytes of all live requests, and of what pools keep beyond them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn malloc(&mut self, id: u64, bytes: u64) {
        let Some(&pool) = self.directed_to.last() else {
            self.bytes = self.bytes.saturating_add(bytes);
            return;
        };
        self.pool_of.insert(id, pool);
        self.change(pool, |pool| pool.live = pool.live.saturating_add(bytes));
    }

    pub(super) fn free(&mut self, id: u64, bytes: u64) {
        match self.pool_of.remove(&id) {
            Some(pool) => self.change(pool, |pool| pool.live = pool.live.saturating_sub(bytes)),
            None => self.bytes = self.bytes.saturating_sub(bytes),
        }
    }

    pub(super) fn call(&mut self, call: PoolCall) {
        match call {
            PoolCall::Begin(id) => {
                self.directed_to.push(id);
                self.change(id, |pool| pool.is_released = false);
            }
            PoolCall::End(id) => {
                let newest = self.directed_to.iter().rposition(|&other| other == id);
                if let Some(newest) = newest {
                    self.directed_to.remove(newest);
                }
            }
            PoolCall::Release(id) => self.change(id, |pool| pool.is_released = true),
            PoolCall::Empty(_) | PoolCall::BeginCapture | PoolCall::EndCapture => {}
        }
    }

    fn change(&mut self, id: MempoolId, change: impl FnOnce(&mut Pool)) {
        let pool = self.pools.entry(id).or_default();
        let before = pool.kept;
        change(pool);
        pool.kept = if pool.is_released {
            pool.live
        } else {
            pool.kept.max(pool.live)
        };
        self.bytes = (self.bytes - before).saturating_add(pool.kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::formats::snapshot::fixture::pool_call;

    /// A case is operations, with the bytes of requests; found is what must be kept after each.
    #[test]
    fn a_pool_keeps_what_was_live_at_once_until_it_is_released() {
        cases::check("src/demand/cases/kept.txt", |text| {
            let mut kept = Kept::default();
            let after = text.split(", ").map(|text| {
                match *text.split(' ').collect::<Vec<_>>() {
                    ["malloc", id, bytes] => {
                        kept.malloc(id.parse().unwrap(), bytes.parse().unwrap())
                    }
                    ["free", id, bytes] => kept.free(id.parse().unwrap(), bytes.parse().unwrap()),
                    _ => kept.call(pool_call(text)),
                }
                kept.bytes().to_string()
            });
            after.collect::<Vec<_>>().join(" ")
        });
    }
}
