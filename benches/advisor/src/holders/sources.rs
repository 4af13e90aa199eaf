//! The holder of every allocation, from which a viewer adds up any moment itself.

use std::collections::HashMap;

use serde::Serialize;

use super::{Holder, Holders, Key, Sites, Sum};

/// Who holds the allocations of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sources {
    /// The holders. Their bytes, blocks, operators and frames are left out: these depend on the moment.
    pub holders: Vec<Holder>,
    /// What distinguishes the allocations of a holder.
    pub sources: Vec<Source>,
    /// The source of each allocation, as an index of `sources`.
    #[serde(skip)]
    pub of: Vec<u32>,
}

/// Allocations of one holder with the same call stack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Source {
    /// The holder, as an index of [`Sources::holders`].
    pub holder: u32,
    /// The operator that requested the memory; empty if unknown.
    pub operator: String,
    /// The number of the call stack in the recording, if known.
    pub stack: Option<u32>,
}

impl Sources {
    /// The holder of each allocation.
    #[must_use]
    pub fn of(holders: &Holders<'_>) -> Self {
        let mut found = Self::default();
        let mut sites = Sites::default();
        let mut holder_numbers: HashMap<Key, u32> = HashMap::new();
        let mut source_numbers: HashMap<(u32, Option<u32>), u32> = HashMap::new();
        for (index, allocation) in holders.evidence.allocations() {
            let (key, origin) = holders.key(index, allocation, &mut sites);
            let holder = *holder_numbers.entry(key).or_insert_with_key(|key| {
                let holder = holders.holder(&sites, key.clone(), Sum::default());
                found.holders.push(holder);
                found.holders.len() as u32 - 1
            });
            let stack = origin.stack.map(|(id, _)| id.0);
            let source = *source_numbers.entry((holder, stack)).or_insert_with(|| {
                found.sources.push(Source {
                    holder,
                    operator: origin.operator(),
                    stack,
                });
                found.sources.len() as u32 - 1
            });
            found.of.push(source);
        }
        found
    }
}
