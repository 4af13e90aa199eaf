//! A plain allocator that never changes, to compare others with.
//!
//! A lower clock, or another program on the same core, slows the yardstick about as much as an allocator. So the ratio of
//! their times differs far less between runs than either time. Ratios can be compared only as long as the yardstick stays as
//! it is: **do not improve it.**

use std::collections::BTreeSet;

/// Sizes are rounded to a multiple of this, in bytes.
const GRANULE: u64 = 512;

/// Statistics kept at every call, about as many as PyTorch keeps. Without them the yardstick would mostly wait for memory,
/// and a program on the same core would slow it less than an allocator.
const COUNTERS: usize = 16;

/// A best fit over pieces of memory that are neither split nor merged.
#[derive(Clone, Debug, Default)]
pub struct Yardstick {
    free: BTreeSet<Piece>,
    /// The live piece of each slot.
    live: Vec<Piece>,
    /// The end of the memory in use, in bytes.
    end: u64,
    counters: [Counter; COUNTERS],
}

/// Ordered as a best fit searches. Both are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Piece {
    size: u64,
    address: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    current: u64,
    peak: u64,
    total: u64,
}

impl Yardstick {
    /// An allocator without memory, for this many slots.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self {
            live: vec![Piece::default(); slots],
            ..Self::default()
        }
    }

    /// Takes the smallest free piece of up to twice the size, or new memory.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn malloc(&mut self, slot: usize, bytes: u64) {
        let size = bytes.next_multiple_of(GRANULE);
        let smallest = |size| Piece { size, address: 0 };
        let fits = smallest(size)..smallest(2 * size);
        let found = self.free.range(fits).next().copied();
        let piece = found.unwrap_or(Piece {
            size,
            address: self.end,
        });
        if !self.free.remove(&piece) {
            self.end += size;
        }
        for counter in &mut self.counters {
            counter.current += piece.size;
            counter.peak = counter.peak.max(counter.current);
            counter.total += bytes;
        }
        self.live[slot] = piece;
    }

    /// Frees the piece of a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn free(&mut self, slot: usize) {
        let piece = self.live[slot];
        for counter in &mut self.counters {
            counter.current -= piece.size;
            counter.total += 1;
        }
        self.free.insert(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_piece_of_up_to_twice_the_size_serves() {
        let mut yardstick = Yardstick::new(5);
        for (slot, bytes) in [(0, 1024), (1, 2048), (2, 4096)] {
            yardstick.malloc(slot, bytes);
        }
        (0..3).for_each(|slot| yardstick.free(slot));
        let served = [(3, 1100), (3, 1536), (4, 512), (4, 513)].map(|(slot, bytes)| {
            yardstick.malloc(slot, bytes);
            let Piece { size, address } = yardstick.live[slot];
            (size, address, yardstick.end)
        });
        let expected = [
            (2048, 1024, 7168),
            (1536, 7168, 8704),
            // A piece of twice the size is too large.
            (512, 8704, 9216),
            (1024, 0, 9216),
        ];
        assert_eq!(served, expected);
        let bytes = 1024 + 2048 + 4096 + 1100 + 1536 + 512 + 513;
        let current = 2048 + 1536 + 512 + 1024;
        for counter in yardstick.counters {
            assert_eq!((counter.current, counter.total), (current, bytes + 3));
            assert_eq!(counter.peak, 7168);
        }
        assert_eq!(yardstick.free.len(), 1);
    }
}
