//! A hash table with the iteration order of PyTorch's.
//!
//! PyTorch keeps streams with pending events, the streams of a block and its private pools in
//! `ska::flat_hash_map` and iterates over them. The table layout decides which stream is polled first,
//! and therefore which block is coalesced first, so this table reproduces the layout: Fibonacci
//! hashing, robin-hood probing of at most max(4, log2 of the slots) steps, doubling from 4 slots before
//! the table would be more than half full, and removal that shifts the following entries back. If all
//! keys collide, PyTorch's table grows until memory is exhausted; this one probes further. (Source:
//! `c10/util/flat_hash_map.h`, checked against the binary with several recorded streams.)

/// A key with PyTorch's hash.
pub(super) trait FlatKey: Copy + Eq {
    /// The hash before Fibonacci multiplication.
    fn flat_hash(self) -> u64;
}

#[derive(Clone, Debug)]
struct Entry<K, V> {
    /// Steps from the slot that its hash points to.
    distance: u32,
    key: K,
    value: V,
}

/// A map from `K` to `V`.
#[derive(Clone, Debug)]
pub(super) struct FlatHashMap<K, V> {
    /// `buckets` slots that hashes point to, and further ones for what the last of them cannot hold.
    slots: Vec<Option<Entry<K, V>>>,
    /// A power of two, or 0.
    buckets: usize,
    len: usize,
    /// The memory of the table before it last grew.
    spare: Vec<Option<Entry<K, V>>>,
}

/// The smallest non-empty table.
const MIN_BUCKETS: usize = 4;
/// Probe steps that are always allowed.
const MIN_LOOKUPS: u32 = 4;
/// From this many buckets on, a nearly empty table does not grow.
const HUGE: usize = 1 << 16;
/// 2^64 divided by the golden ratio.
pub(super) const FIBONACCI: u64 = 11_400_714_819_323_198_485;

impl<K, V> Default for FlatHashMap<K, V> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            buckets: 0,
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<K: FlatKey, V: Copy> FlatHashMap<K, V> {
    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all entries and resets the table size but keeps its memory. Later insertions go where
    /// they would in a new table.
    pub(super) fn reset(&mut self) {
        // The first insertion into a new table makes one of this size.
        if self.is_empty() && self.buckets <= MIN_BUCKETS {
            return;
        }
        self.slots.clear();
        self.buckets = 0;
        self.len = 0;
    }

    /// Removes all entries and keeps the size of the table, as `clear` of PyTorch's table does.
    pub(super) fn clear(&mut self) {
        self.slots.fill_with(|| None);
        self.len = 0;
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: K) -> Option<V> {
        let slot = self.find(key).ok()?;
        self.slots[slot].as_ref().map(|entry| entry.value)
    }

    /// Inserts `key` unless it is present.
    pub(super) fn insert(&mut self, key: K, value: V) {
        let mut new = Entry {
            distance: 0,
            key,
            value,
        };
        while let Err((slot, distance)) = self.find(new.key) {
            if self.is_full() || distance >= self.max_lookups() {
                self.grow();
                continue;
            }
            if slot == self.slots.len() {
                self.slots.push(None);
            }
            new.distance = distance;
            match self.place(slot, new) {
                Ok(()) => {
                    self.len += 1;
                    return;
                }
                Err(refused) => {
                    self.grow();
                    new = refused;
                }
            }
        }
    }

    /// Removes `key` if present.
    pub(super) fn remove(&mut self, key: K) {
        if let Ok(slot) = self.find(key) {
            self.remove_at(slot);
        }
    }

    /// The first occupied slot at or after `slot`, with its entry.
    pub(super) fn at_or_after(&self, slot: usize) -> Option<(usize, K, V)> {
        if self.is_empty() {
            return None; // the usual case, on the path of every malloc
        }
        let tail = self.slots.iter().enumerate().skip(slot);
        tail.flat_map(|(slot, entry)| entry.as_ref().map(|e| (slot, e.key, e.value)))
            .next()
    }

    /// Empties a slot. The following entries move up, so the next entry is at or after the same slot.
    pub(super) fn remove_at(&mut self, slot: usize) {
        if self.slots.get_mut(slot).and_then(Option::take).is_none() {
            return;
        }
        self.len -= 1;
        let mut hole = slot;
        while let Some(Some(follower)) = self.slots.get_mut(hole + 1)
            && follower.distance > 0
        {
            follower.distance -= 1;
            self.slots.swap(hole, hole + 1);
            hole += 1;
        }
    }

    /// The keys in order.
    pub(super) fn keys(&self) -> impl Iterator<Item = K> {
        self.slots.iter().flatten().map(|entry| entry.key)
    }

    /// Whether another entry would fill more than half of the buckets.
    fn is_full(&self) -> bool {
        2 * (self.len + 1) > self.buckets
    }

    /// The number of probe steps that no entry may reach.
    fn max_lookups(&self) -> u32 {
        let is_nearly_empty = self.buckets >= HUGE && self.len < self.buckets / 64;
        if is_nearly_empty {
            return u32::MAX;
        }
        self.buckets.trailing_zeros().max(MIN_LOOKUPS)
    }

    fn desired_slot(&self, key: K) -> usize {
        let shift = 64 - self.buckets.trailing_zeros();
        (key.flat_hash().wrapping_mul(FIBONACCI) >> shift) as usize
    }

    /// The slot of `key`; otherwise the slot where the search ended and the steps it took. A table without slots ends it
    /// at once.
    fn find(&self, key: K) -> Result<usize, (usize, u32)> {
        let (mut slot, mut distance) = (self.desired_slot(key), 0);
        while let Some(Some(entry)) = self.slots.get(slot)
            && entry.distance >= distance
        {
            if entry.key == key {
                return Ok(slot);
            }
            slot += 1;
            distance += 1;
        }
        Err((slot, distance))
    }

    /// Puts `new` into a slot. The displaced entry moves on and takes the slot of the next entry that
    /// is closer to its own. If that takes too many steps, the last displaced entry takes the slot of
    /// `new`, which is returned.
    fn place(&mut self, slot: usize, new: Entry<K, V>) -> Result<(), Entry<K, V>> {
        let Some(mut moving) = self.slots[slot].replace(new) else {
            return Ok(());
        };
        let max = self.max_lookups();
        moving.distance += 1;
        for place in slot + 1.. {
            match self.slots.get_mut(place) {
                Some(empty @ None) => {
                    *empty = Some(moving);
                    return Ok(());
                }
                Some(Some(other)) if other.distance < moving.distance => {
                    std::mem::swap(other, &mut moving);
                    moving.distance += 1;
                    continue;
                }
                Some(_) => moving.distance += 1,
                None => {
                    self.slots.push(Some(moving));
                    return Ok(());
                }
            }
            if moving.distance >= max {
                break;
            }
        }
        match self.slots[slot].replace(moving) {
            Some(new) => Err(new),
            None => Ok(()),
        }
    }

    fn grow(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        let mut old = std::mem::replace(&mut self.slots, spare);
        self.buckets = (2 * self.buckets).max(MIN_BUCKETS);
        self.slots.resize_with(self.buckets, || None);
        self.len = 0;
        for entry in old.drain(..).flatten() {
            self.insert(entry.key, entry.value);
        }
        self.spare = old;
    }
}

#[cfg(test)]
mod tests;
