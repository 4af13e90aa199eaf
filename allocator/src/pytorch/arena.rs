//! Places for things that refer to each other, by 32-bit numbers instead of pointers.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// The place of a `T` in its arena. An `Option` of it takes no more room.
///
/// The places of things that are gone are used again: an id is good as long as its thing is.
pub(super) struct Id<T> {
    /// One more than the index.
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The smallest id, for looking things up in order.
    pub(super) const FIRST: Self = Self {
        number: NonZeroU32::MIN,
        of: PhantomData,
    };

    /// [`Arena::has_room`] keeps indices below 2^32.
    fn of_index(index: usize) -> Self {
        Self {
            number: NonZeroU32::MIN.saturating_add(index as u32),
            of: PhantomData,
        }
    }

    fn index(self) -> usize {
        self.number.get() as usize - 1
    }
}

/// Things of one kind, each in its place.
#[derive(Debug)]
pub(super) struct Arena<T> {
    places: Vec<Place<T>>,
    vacant: Vec<Id<T>>,
}

#[derive(Debug)]
struct Place<T> {
    taken: bool,
    thing: T,
}

/// More things than one operation of an allocator makes.
const HEADROOM: usize = 1 << 24;

impl<T> Arena<T> {
    /// Whether any one operation finds room for the things it makes.
    pub(super) fn has_room(&self) -> bool {
        self.places.len() - self.vacant.len() < u32::MAX as usize - HEADROOM
    }

    /// Puts a thing in.
    pub(super) fn insert(&mut self, thing: T) -> Id<T> {
        let place = Place { taken: true, thing };
        if let Some(id) = self.vacant.pop() {
            self.places[id.index()] = place;
            return id;
        }
        self.places.push(place);
        Id::of_index(self.places.len() - 1)
    }

    /// Takes a thing out. It stays where it is, with its memory, until its place is taken.
    pub(super) fn remove(&mut self, id: Id<T>) {
        self.places[id.index()].taken = false;
        self.vacant.push(id);
    }

    /// Takes the place of a thing that is gone, as it was left, or puts in a new one.
    pub(super) fn reuse_or_insert_with(&mut self, make: impl FnOnce() -> T) -> Id<T> {
        match self.vacant.pop() {
            Some(id) => {
                self.places[id.index()].taken = true;
                id
            }
            None => self.insert(make()),
        }
    }

    /// All things, by place: an order that means nothing.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, place)| place.taken)
            .map(|(index, place)| (Id::of_index(index), &place.thing))
    }

    /// All things, to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let taken = self.places.iter_mut().filter(|place| place.taken);
        taken.map(|place| &mut place.thing)
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;

    fn index(&self, id: Id<T>) -> &T {
        &self.places[id.index()].thing
    }
}

impl<T> IndexMut<Id<T>> for Arena<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        &mut self.places[id.index()].thing
    }
}

// Derived, these would ask the same of T.

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.index())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_may_keep_their_thing() {
        let mut arena = Arena::default();
        let a = arena.insert("a");
        let b = arena.insert("b");
        arena.remove(a);
        assert_eq!(arena.iter().collect::<Vec<_>>(), [(b, &"b")]);
        let again = arena.reuse_or_insert_with(|| "new");
        assert_eq!((again, arena[again]), (a, "a"));
        assert_eq!(arena.insert("c"), Id::of_index(2));
    }

    #[test]
    fn an_optional_id_is_four_bytes() {
        assert_eq!(size_of::<Option<Id<String>>>(), 4);
    }
}
