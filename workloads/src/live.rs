//! A table of live requests by id, made for ids that count up.

use std::collections::HashMap;
use std::mem;

use foldhash::fast::FixedState;

/// Values by id. An id has the place of its lower bits; if another live id is there, it is among the others. So most ids
/// of a program that numbers its requests are found at once, and any ids are found soon.
#[derive(Debug)]
pub(crate) struct LiveTable<T> {
    /// Places; their number is a power of two, at least twice that of the live ids.
    places: Vec<Option<(u64, T)>>,
    others: HashMap<u64, T, FixedState>,
    /// The number of live ids.
    live: usize,
}

impl<T> Default for LiveTable<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            others: HashMap::default(),
            live: 0,
        }
    }
}

impl<T> LiveTable<T> {
    /// The place of an id; there is one as soon as an id was inserted.
    fn place(&self, id: u64) -> usize {
        id as usize & self.places.len().wrapping_sub(1)
    }

    /// Inserts the value of an id, and returns the one before.
    #[inline]
    pub(crate) fn insert(&mut self, id: u64, value: T) -> Option<T> {
        const PLACES_PER_ID: usize = 2;
        if PLACES_PER_ID * self.live >= self.places.len() {
            self.grow();
        }
        let place = self.place(id);
        let before = match self.places.get_mut(place) {
            Some(place @ None) => {
                *place = Some((id, value));
                // It may have come while another id had the place.
                self.take_other(id)
            }
            Some(Some((there, old))) if *there == id => Some(mem::replace(old, value)),
            _ => self.others.insert(id, value),
        };
        self.live += usize::from(before.is_none());
        before
    }

    /// Removes an id, and returns its value.
    #[inline]
    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let place = self.place(id);
        let removed = match self.places.get_mut(place) {
            Some(place) if place.as_ref().is_some_and(|(there, _)| *there == id) => {
                place.take().map(|(_, value)| value)
            }
            _ => self.take_other(id),
        };
        self.live -= usize::from(removed.is_some());
        removed
    }

    #[inline]
    fn take_other(&mut self, id: u64) -> Option<T> {
        if self.others.is_empty() {
            None
        } else {
            self.others.remove(&id)
        }
    }

    /// The number of live ids.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// The value of an id, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let place = self.place(id);
        match self.places.get_mut(place) {
            Some(Some((there, value))) if *there == id => Some(value),
            _ => self.others.get_mut(&id),
        }
    }

    /// The value of an id.
    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<&T> {
        match self.places.get(self.place(id)) {
            Some(Some((there, value))) if *there == id => Some(value),
            _ => self.others.get(&id),
        }
    }

    #[cold]
    fn grow(&mut self) {
        const FEWEST: usize = 64;
        let places = (2 * self.places.len()).max(FEWEST);
        let grown = (0..places).map(|_| None).collect();
        let in_places = mem::replace(&mut self.places, grown).into_iter().flatten();
        self.live = 0;
        for (id, value) in in_places.chain(mem::take(&mut self.others)) {
            self.insert(id, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_map(
            steps in prop::collection::vec((0..3_u8, 0..40_u64, 0..4_u32), 0..300),
        ) {
            let mut table = LiveTable::default();
            let mut map = HashMap::new();
            for (number, (choice, low, high)) in steps.into_iter().enumerate() {
                // Ids that share a place, however large the table is.
                let id = low | u64::from(high) << 32;
                match choice {
                    0 => prop_assert_eq!(table.insert(id, number), map.insert(id, number)),
                    1 => prop_assert_eq!(table.remove(id), map.remove(&id)),
                    _ => prop_assert_eq!(table.get(id), map.get(&id)),
                }
                prop_assert_eq!(table.live, map.len());
            }
        }
    }

    #[test]
    fn a_program_that_numbers_its_requests_keeps_a_small_table() {
        let mut table = LiveTable::default();
        for id in 0..100_000 {
            assert_eq!(table.insert(id, ()), None);
            if let Some(old) = u64::checked_sub(id, 100) {
                assert_eq!(table.remove(old), Some(()));
            }
        }
        assert_eq!((table.live, table.others.len()), (100, 0));
        assert!(table.places.len() <= 512, "{}", table.places.len());
    }
}
