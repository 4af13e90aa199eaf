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
        if is_live {
            Err(format!("id {id} is already live"))
        } else {
            Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MOST_USES;

    #[test]
    fn uses_of_live_allocations_have_a_limit() {
        const FEW: usize = 5;
        let mut slots = Slots::default();
        assert_eq!([slots.take(7), slots.take(8)], [Ok(0), Ok(1)]);
        for _ in 0..FEW {
            assert_eq!(slots.record_use(1), Ok(8));
        }
        // As if the first were used most often.
        slots.all_uses = MOST_USES - 1;
        assert_eq!(slots.record_use(0), Ok(7));
        let error = slots.record_use(0).unwrap_err();
        assert!(error.contains("more than 16777216 times"), "{error}");
        // Those of the second are forgotten with it; one was too many.
        assert_eq!(slots.release(1), Ok(8));
        assert_eq!(slots.take(9), Ok(1));
        for _ in 1..FEW {
            assert_eq!(slots.record_use(1), Ok(9));
        }
        slots.record_use(1).unwrap_err();
        assert_eq!(slots.release(1), Ok(9));
        assert_eq!(slots.take(9), Ok(1));
        slots.record_use(1).unwrap();
    }

    #[test]
    fn the_slot_that_became_free_last_is_taken_first() {
        let mut slots = Slots::default();
        let taken = [4, 6, 8, 10].map(|id| slots.take(id).unwrap());
        assert_eq!(taken, [0, 1, 2, 3]);
        assert_eq!([slots.release(2), slots.release(0)], [Ok(8), Ok(4)]);
        let found = slots.release(2);
        assert_eq!(found, Err("no allocation is in slot 2".to_owned()));
        let found = slots.id(u64::MAX);
        assert_eq!(found, Err(format!("no allocation is in slot {}", u64::MAX)));
        // Below the highest id: live ones are known from here on, and those that become free are forgotten.
        let is_live = |id| Err(format!("id {id} is already live"));
        let found = [slots.ensure_new(6), slots.ensure_new(10)];
        assert_eq!(found, [6, 10].map(is_live));
        let found = [slots.ensure_new(8), slots.ensure_new(11)];
        assert_eq!(found, [Ok(()), Ok(())]);
        let found = [6, 10].map(|id| slots.take(id).map(|_| ()));
        assert_eq!(found, [6, 10].map(is_live));
        let found = [slots.take(8), slots.take(3), slots.take(20)];
        assert_eq!(found, [Ok(0), Ok(2), Ok(4)]);
        assert_eq!(slots.ensure_new(3), is_live(3));
        assert_eq!(slots.take(20).map(|_| ()), is_live(20));
        let found = [0, 1, 2, 3, 4].map(|slot| slots.id(slot).unwrap());
        assert_eq!(found, [8, 6, 3, 10, 20]);
        assert_eq!(slots.release(1), Ok(6));
        let found = [slots.ensure_new(6), slots.ensure_new(8)];
        assert_eq!(found, [Ok(()), is_live(8)]);
        assert_eq!(slots.take(6), Ok(1));
    }
}
