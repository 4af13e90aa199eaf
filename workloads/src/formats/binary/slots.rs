//! The slots of live allocations.

use std::collections::HashSet;

use foldhash::fast::FixedState;

use crate::budget::{check_live, check_uses};
use crate::formats::buffered::Reason;

/// The ids of live allocations by slot. A slot that becomes free is taken again before those that became free earlier.
#[derive(Debug, Default)]
pub(super) struct Slots {
    ids: Vec<Option<u64>>,
    /// Uses on other streams, by slot, and of all live allocations.
    uses: Vec<u32>,
    all_uses: usize,
    /// The free slots; the one to take next is the last.
    free: Vec<usize>,
    /// The highest id so far.
    highest: Option<u64>,
    /// The live ids, once an id came that is not the highest. An id above all others is new without a search.
    live: Option<HashSet<u64, FixedState>>,
}

impl Slots {
    /// Gives a slot to an allocation, and returns it.
    pub(super) fn take(&mut self, id: u64) -> Result<usize, Reason> {
        if self.highest.is_some_and(|highest| id <= highest) {
            let ids = &self.ids;
            self.live
                .get_or_insert_with(|| ids.iter().flatten().copied().collect());
        }
        if let Some(live) = &mut self.live
            && !live.insert(id)
        {
            return Err(format!("id {id} is already live"));
        }
        self.highest = self.highest.max(Some(id));
        let slot = self.free.pop().unwrap_or(self.ids.len());
        match self.ids.get_mut(slot) {
            Some(place) => *place = Some(id),
            None => self.ids.push(Some(id)),
        }
        // There are as many slots as allocations were ever live at once.
        check_live(self.ids.len())?;
        Ok(slot)
    }

    /// Fails if an id is live.
    pub(super) fn ensure_new(&self, id: u64) -> Result<(), Reason> {
        let is_above = self.highest.is_none_or(|highest| id > highest);
        let is_live = !is_above
            && match &self.live {
                Some(live) => live.contains(&id),
                None => self.ids.contains(&Some(id)),
            };
        match is_live {
            true => Err(format!("id {id} is already live")),
            false => Ok(()),
        }
    }

    /// The id of the allocation in a slot.
    pub(super) fn id(&self, slot: u64) -> Result<u64, Reason> {
        let index = usize::try_from(slot).unwrap_or(usize::MAX);
        let id = self.ids.get(index).copied().flatten();
        id.ok_or_else(|| format!("no allocation is in slot {slot}"))
    }

    /// Notes that the allocation in a slot is used on another stream, and returns its id.
    pub(super) fn record_use(&mut self, slot: u64) -> Result<u64, Reason> {
        let id = self.id(slot)?;
        // It has an allocation, so it is an index.
        let index = slot as usize;
        if self.uses.len() <= index {
            self.uses.resize(self.ids.len(), 0);
        }
        self.uses[index] = self.uses[index].saturating_add(1);
        self.all_uses += 1;
        check_uses(self.all_uses)?;
        Ok(id)
    }

    /// Frees the allocation in a slot, and returns its id.
    pub(super) fn release(&mut self, slot: u64) -> Result<u64, Reason> {
        let id = self.id(slot)?;
        // It has an allocation, so it is an index.
        let index = slot as usize;
        self.ids[index] = None;
        if let Some(uses) = self.uses.get_mut(index) {
            self.all_uses -= std::mem::take(uses) as usize;
        }
        self.free.push(index);
        if let Some(live) = &mut self.live {
            live.remove(&id);
        }
        Ok(id)
    }
}
