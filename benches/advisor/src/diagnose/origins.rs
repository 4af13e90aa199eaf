//! Who requests the memory in a log.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use coalesce_workloads::formats::snapshot::{Stack, StackId};

use super::call_site::CallSite;
use super::log::{Allocation, Log};
use super::recorded::RecordedRequests;

/// Who requests memory: an operator, with its call stack if that was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Origin {
    tag: u32,
    stack: Option<StackId>,
}

/// Totals of the requests with one tag.
#[derive(Clone, Copy, Default)]
struct TagSum {
    count: u64,
    bytes: u64,
    /// Bytes of the largest origin, and its index.
    largest: (u64, u32),
}

/// The origins of the allocations in a log, without duplicates.
pub(super) struct Origins {
    origins: Vec<Origin>,
    /// The origin of each allocation, as an index of `origins`.
    of: Vec<u32>,
}

impl Origins {
    pub fn of(log: &Log, recorded: Option<&RecordedRequests<'_>>) -> Self {
        let by_tag = recorded
            .map(RecordedRequests::stacks_by_tag)
            .unwrap_or_default();
        let stack_of = |allocation: &Allocation| match recorded?.entry_of(allocation) {
            Some(entry) => recorded?.recording.entry_stacks.get(entry).copied(),
            None => by_tag.get(log.tags.get(allocation.tag as usize)?).copied(),
        };
        let mut origins = Vec::new();
        let mut indices: HashMap<Origin, u32> = HashMap::new();
        let mut index_of = |origin: Origin| {
            *indices.entry(origin).or_insert_with(|| {
                origins.push(origin);
                u32::try_from(origins.len() - 1).unwrap_or(u32::MAX)
            })
        };
        let of = log
            .allocations
            .iter()
            .map(|allocation| {
                index_of(Origin {
                    tag: allocation.tag,
                    stack: stack_of(allocation),
                })
            })
            .collect();
        Self { origins, of }
    }

    /// Numbers the origin of each allocation.
    pub fn numbers(&self) -> &[u32] {
        &self.of
    }

    /// The call stack of an allocation.
    pub fn stack_of(&self, allocation: usize) -> Option<StackId> {
        let origin = *self.of.get(allocation)?;
        self.origins.get(origin as usize)?.stack
    }

    /// The call sites of some allocations, given by their numbers with the bytes to attribute to each: at most
    /// [`CallSite::MOST`], largest first.
    pub fn call_sites(
        &self,
        allocations: impl IntoIterator<Item = (usize, u64)>,
        tags: &[String],
        stacks: &[Stack],
    ) -> Vec<CallSite> {
        let mut by_origin: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (index, attributed) in allocations {
            if let Some(&origin) = self.of.get(index) {
                let (count, bytes) = by_origin.entry(origin).or_default();
                *count += 1;
                *bytes = bytes.saturating_add(attributed);
            }
        }
        // Many call stacks can lead to one operator: they are reported together, with the largest of them.
        let mut by_tag: BTreeMap<u32, TagSum> = BTreeMap::new();
        for (index, (count, bytes)) in by_origin {
            let origin = self.origins.get(index as usize);
            let sum = by_tag
                .entry(origin.map_or(0, |origin| origin.tag))
                .or_default();
            sum.count += count;
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.largest = sum.largest.max((bytes, index));
        }
        let mut sums: Vec<TagSum> = by_tag.into_values().collect();
        sums.sort_by_key(|sum| Reverse(sum.bytes));
        let largest = sums.into_iter().take(CallSite::MOST);
        let call_site = |sum: TagSum| {
            let (_, origin) = sum.largest;
            let origin = self.origins.get(origin as usize)?;
            let stack = origin.stack.and_then(|id| stacks.get(id.0 as usize));
            let tag = tags.get(origin.tag as usize)?;
            Some(CallSite::new(tag, stack, sum.count, sum.bytes))
        };
        largest.filter_map(call_site).collect()
    }
}
