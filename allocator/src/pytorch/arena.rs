//! Storage for values that refer to each other by 32-bit ids instead of pointers.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// The id of a `T` in its arena. `Option<Id<T>>` has the same size.
///
/// Ids are reused: an id is valid as long as its value is stored.
pub(super) struct Id<T> {
    /// The index plus 1.
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The smallest id, a lower bound for searches.
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

    #[inline]
    fn index(self) -> usize {
        self.number.get() as usize - 1
    }
}

/// Values of one type, each in its slot.
#[derive(Debug)]
pub(super) struct Arena<T> {
    slots: Vec<T>,
    /// Slots whose value was removed.
    vacant: Vec<Id<T>>,
    /// The number of values at which the arena is full. Below 2^32, with room for the values of one allocator operation.
    full: usize,
}

/// More values than one allocator operation creates.
const HEADROOM: usize = 1 << 24;
const FULL: usize = u32::MAX as usize - HEADROOM;

impl<T> Arena<T> {
    /// Whether there is room for all values that one operation creates.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.slots.len() - self.vacant.len() < self.full
    }

    /// Inserts a value.
    #[inline(always)]
    pub(super) fn insert(&mut self, value: T) -> Id<T> {
        match self.vacant.pop() {
            Some(id) => {
                self.slots[id.index()] = value;
                id
            }
            None => self.push(value),
        }
    }

    /// Adds a slot. Inlined, because a value that is passed to a function is first built in memory and then copied.
    #[inline(always)]
    fn push(&mut self, value: T) -> Id<T> {
        let slots = self.slots.len();
        if slots == self.slots.capacity() {
            self.grow();
        }
        self.slots.push(value);
        Id::of_index(slots)
    }

    /// Makes room. Growing by an eighth wastes less memory than doubling.
    #[cold]
    fn grow(&mut self) {
        self.slots.reserve_exact((self.slots.len() / 8).max(64));
    }

    /// Removes a value. It keeps its memory until its slot is reused.
    #[inline]
    pub(super) fn remove(&mut self, id: Id<T>) {
        self.vacant.push(id);
    }

    /// Reuses the slot and the value of a removed entry, or inserts a new value.
    pub(super) fn reuse_or_insert_with(&mut self, make: impl FnOnce() -> T) -> Id<T> {
        self.vacant.pop().unwrap_or_else(|| self.push(make()))
    }

    /// All values in slot order, which has no meaning.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        let occupied = self.occupied();
        let slots = self.slots.iter().enumerate().zip(occupied);
        slots.filter_map(|((index, value), occupied)| {
            occupied.then_some((Id::of_index(index), value))
        })
    }

    /// All values, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let occupied = self.occupied();
        let slots = self.slots.iter_mut().zip(occupied);
        slots.filter_map(|(value, occupied)| occupied.then_some(value))
    }

    /// Whether each slot is occupied.
    fn occupied(&self) -> Vec<bool> {
        let mut occupied = vec![true; self.slots.len()];
        for id in &self.vacant {
            occupied[id.index()] = false;
        }
        occupied
    }
}

/// The values of an [`Arena`] while none is inserted, for the steps of every malloc and free.
///
/// The compiler keeps the place of these values in registers. That of an arena's values, it loads and checks again
/// after each change of a value.
#[derive(Debug)]
pub(super) struct Slots<'a, T>(&'a [T]);

/// As [`Slots`], mutable.
#[derive(Debug)]
pub(super) struct SlotsMut<'a, T> {
    slots: &'a mut [T],
    vacant: &'a mut Vec<Id<T>>,
}

impl<T> Arena<T> {
    /// The values.
    #[inline]
    pub(super) fn slots(&self) -> Slots<'_, T> {
        Slots(&self.slots)
    }

    /// The values, mutable.
    #[inline]
    pub(super) fn slots_mut(&mut self) -> SlotsMut<'_, T> {
        SlotsMut {
            slots: &mut self.slots,
            vacant: &mut self.vacant,
        }
    }
}

impl<T> SlotsMut<'_, T> {
    /// The values for reading.
    #[inline]
    pub(super) fn slots(&self) -> Slots<'_, T> {
        Slots(self.slots)
    }

    /// Removes a value. It keeps its memory until its slot is reused.
    #[inline]
    pub(super) fn remove(&mut self, id: Id<T>) {
        self.vacant.push(id);
    }
}

impl<T> Index<Id<T>> for Slots<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: Id<T>) -> &T {
        &self.0[id.index()]
    }
}

impl<T> Index<Id<T>> for SlotsMut<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: Id<T>) -> &T {
        &self.slots[id.index()]
    }
}

impl<T> IndexMut<Id<T>> for SlotsMut<'_, T> {
    #[inline]
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        &mut self.slots[id.index()]
    }
}

impl<T> Clone for Slots<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slots<'_, T> {}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            full: FULL,
        }
    }
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;

    fn index(&self, id: Id<T>) -> &T {
        &self.slots[id.index()]
    }
}

impl<T> IndexMut<Id<T>> for Arena<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        &mut self.slots[id.index()]
    }
}

// Derived implementations would require the same traits of `T`.

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
    use crate::driver::sim::{SimConfig, SimDevice};
    use crate::driver::{Driver, StreamId};
    use crate::error::Error;
    use crate::pytorch::in_parts::Progress;
    use crate::settings::Settings;
    use crate::{MempoolId, PyTorch};

    #[test]
    fn slots_are_reused_and_may_keep_their_value() {
        let mut arena = Arena::default();
        let a = arena.insert("a");
        let b = arena.insert("b");
        arena.remove(a);
        assert_eq!(arena.iter().collect::<Vec<_>>(), [(b, &"b")]);
        let again = arena.reuse_or_insert_with(|| "new");
        assert_eq!((again, arena[again]), (a, "a"));
        assert_eq!(arena.insert("c"), Id::of_index(2));
        arena.remove(b);
        assert_eq!(arena.iter_mut().collect::<Vec<_>>(), [&"a", &"c"]);
    }

    #[test]
    fn there_is_room_for_fewer_values_than_ids() {
        for (slots, vacant, has_room) in [
            (FULL - 1, 0, true),
            (FULL, 0, false),
            (FULL, 1, true),
            (FULL + 1, 1, false),
        ] {
            let arena = Arena {
                slots: vec![(); slots],
                vacant: vec![Id::FIRST; vacant],
                ..Arena::default()
            };
            assert_eq!(arena.has_room(), has_room, "{slots}, {vacant} vacant");
        }
    }

    /// A request or a checkpoint that comes when the table is full changes nothing.
    #[test]
    fn a_full_table_of_blocks_refuses_requests() {
        const POOL: MempoolId = MempoolId(1, 0);
        const BYTES: u64 = 2 << 20;
        let stream = StreamId::DEFAULT;
        let device = SimDevice::new(&SimConfig::with_capacity(1 << 30));
        let mut allocator = PyTorch::new(device, Settings::default());
        let begun = allocator.begin_allocate_to_pool(POOL, Box::new(|_| true));
        begun.unwrap();
        let addr = allocator.malloc(BYTES, stream).unwrap();
        allocator.end_allocate_to_pool(POOL).unwrap();
        let saved = allocator.checkpoint_pool(POOL).unwrap();
        allocator.free(addr).unwrap();
        let progress = allocator.begin_uncached(BYTES, stream, false);
        let Ok(Progress::NeedsSegment(pending)) = progress else {
            panic!("a block is cached");
        };
        let answer = allocator.driver_mut().malloc(pending.segment_size());

        let before = allocator.segments();
        // The segment is one free block.
        allocator.blocks.full = 1;
        let errors = [
            allocator.malloc(BYTES, stream).err(),
            allocator.malloc_cached(BYTES, stream).err(),
            allocator.begin_uncached(BYTES, stream, true).err(),
            allocator.restore_pool(&saved).err(),
            allocator.resume(pending, answer).err(),
        ];
        assert_eq!(errors, [const { Some(Error::TooManyBlocks) }; 5]);
        assert_eq!(allocator.segments(), before);
        allocator.check().unwrap();

        allocator.blocks.full = 2;
        allocator.malloc(BYTES, stream).unwrap();
        let refused = allocator.malloc(BYTES, stream);
        assert_eq!(refused, Err(Error::TooManyBlocks));
    }

    #[test]
    fn ids_are_ordered_and_shown_by_their_slots() {
        let [low, high] = [0, 7].map(Id::<String>::of_index);
        assert!(low < high && low <= low && Id::FIRST == low);
        assert_eq!(format!("{low:?} {high:?}"), "#0 #7");
    }

    #[test]
    fn an_optional_id_is_four_bytes() {
        assert_eq!(size_of::<Option<Id<String>>>(), 4);
    }
}
