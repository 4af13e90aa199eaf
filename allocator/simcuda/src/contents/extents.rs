//! The contents of a piece of memory, as extents.

use std::collections::BTreeMap;
use std::sync::Arc;

use coalesce_alloc::driver::contents::{WORD, word};

/// The contents of one write, from some byte on.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A repeated pattern of four bytes.
    Pattern { bytes: [u8; 4], skipped: u64 },
    /// The words of a seed.
    Words { seed: u64, skipped: u64 },
    /// Bytes copied by the program.
    Bytes { bytes: Arc<[u8]>, skipped: u64 },
}

impl Content {
    /// The contents of memory before any write.
    pub(crate) const ZERO: Self = Self::Pattern {
        bytes: [0; 4],
        skipped: 0,
    };

    /// The same without the first bytes.
    fn after(mut self, bytes: u64) -> Self {
        let (Self::Pattern { skipped, .. }
        | Self::Words { skipped, .. }
        | Self::Bytes { skipped, .. }) = &mut self;
        *skipped = skipped.wrapping_add(bytes);
        self
    }

    /// The byte at `index`.
    pub(crate) fn byte(&self, index: u64) -> u8 {
        let cyclic = |bytes: &[u8], at: u64| bytes.get(at as usize).copied().unwrap_or(0);
        match self {
            Self::Pattern { bytes, skipped } => cyclic(bytes, skipped.wrapping_add(index) % 4),
            Self::Words { seed, skipped } => {
                let at = skipped.wrapping_add(index);
                cyclic(&word(*seed, at / WORD).to_le_bytes(), at % WORD)
            }
            Self::Bytes { bytes, skipped } => cyclic(bytes, skipped.wrapping_add(index)),
        }
    }

    /// The seed plus the index of the first word, if the contents start with a whole word of a seed.
    fn first_word(&self) -> Option<u64> {
        match self {
            Self::Words { seed, skipped } if skipped.is_multiple_of(WORD) => {
                Some(seed.wrapping_add(skipped / WORD))
            }
            _ => None,
        }
    }
}

/// A range of memory with its contents.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Length in bytes.
    pub(crate) bytes: u64,
    pub(crate) content: Content,
}

/// The contents of one piece of memory, by offset in bytes. Extents do not overlap; gaps were never
/// written.
#[derive(Debug, Default)]
pub(crate) struct Extents(BTreeMap<u64, Extent>);

impl Extents {
    pub(crate) fn write(&mut self, at: u64, extent: Extent) {
        let end = at + extent.bytes;
        self.cut(at);
        self.cut(end);
        let covered: Vec<u64> = self.0.range(at..end).map(|(&start, _)| start).collect();
        for start in covered {
            self.0.remove(&start);
        }
        if extent.bytes > 0 {
            self.0.insert(at, extent);
        }
    }

    /// Returns the contents of `bytes` from `at` on, in order.
    pub(crate) fn read(&self, at: u64, bytes: u64) -> Vec<Extent> {
        let end = at + bytes;
        let first = self
            .0
            .range(..=at)
            .next_back()
            .map_or(at, |(&start, _)| start);
        let mut read = Vec::new();
        let mut reached = at;
        for (&start, extent) in self.0.range(first..end) {
            let stop = end.min(start + extent.bytes);
            if stop <= reached {
                continue;
            }
            if start > reached {
                read.push(Extent {
                    bytes: start - reached,
                    content: Content::ZERO,
                });
                reached = start;
            }
            read.push(Extent {
                bytes: stop - reached,
                content: extent.content.clone().after(reached - start),
            });
            reached = stop;
        }
        if reached < end {
            read.push(Extent {
                bytes: end - reached,
                content: Content::ZERO,
            });
        }
        read
    }

    /// Splits the extent that contains `at`.
    fn cut(&mut self, at: u64) {
        let Some((&start, extent)) = self.0.range_mut(..at).next_back() else {
            return;
        };
        let Some(rest) = (start + extent.bytes)
            .checked_sub(at)
            .filter(|&rest| rest > 0)
        else {
            return;
        };
        extent.bytes -= rest;
        let rest = Extent {
            bytes: rest,
            content: extent.content.clone().after(at - start),
        };
        self.0.insert(at, rest);
    }
}

/// The number of the first word in `extents` that is not `word`.
pub(crate) fn first_other(extents: &[Extent], word: u64) -> Option<u64> {
    let word = word.to_le_bytes();
    let mut start = 0_u64;
    for extent in extents {
        let is_whole = matches!(&extent.content, Content::Pattern { bytes, .. } if word == [bytes[0]; 8] && *bytes == [bytes[0]; 4]);
        let differs = |at: &u64| {
            let expected = word.get(((start + at) % WORD) as usize);
            expected != Some(&extent.content.byte(*at))
        };
        let bytes = if is_whole { 0 } else { extent.bytes };
        if let Some(at) = (0..bytes).find(differs) {
            return Some((start + at) / WORD);
        }
        start += extent.bytes;
    }
    None
}

/// Counts the whole words in `extents` that differ from those of a seed. Different sums of seed and
/// index always give different words, so whole words of seeds are compared by their sums.
pub(crate) fn mismatches(extents: &[Extent], seed: u64) -> u64 {
    let mut wrong = 0;
    // The number of words compared, and the bytes of a word that spans extents.
    let (mut index, mut partial) = (0_u64, Vec::with_capacity(8));
    for extent in extents {
        let mut at = 0;
        while at < extent.bytes {
            let content = extent.content.clone().after(at);
            let whole = (extent.bytes - at) / WORD;
            if partial.is_empty()
                && whole > 0
                && let Some(first) = content.first_word()
            {
                wrong += if first == seed.wrapping_add(index) {
                    0
                } else {
                    whole
                };
                index += whole;
                at += whole * WORD;
                continue;
            }
            partial.push(content.byte(0));
            at += 1;
            if let Ok(bytes) = <[u8; 8]>::try_from(partial.as_slice()) {
                wrong += u64::from(u64::from_le_bytes(bytes) != word(seed, index));
                index += 1;
                partial.clear();
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: u64, seed: u64) -> Extent {
        let content = Content::Words { seed, skipped: 0 };
        Extent { bytes, content }
    }

    fn bytes_of(extents: &[Extent]) -> Vec<u8> {
        let bytes = |extent: &Extent| -> Vec<u8> {
            (0..extent.bytes)
                .map(|at| extent.content.byte(at))
                .collect()
        };
        extents.iter().flat_map(bytes).collect()
    }

    /// Compares with the same writes on an array of bytes.
    #[test]
    fn extents_are_the_bytes_that_were_written() {
        const ROOM: usize = 200;
        let mut state = 1;
        let mut draw = |below: u64| {
            state += 1;
            word(7, state) % below
        };
        for _ in 0..300 {
            let (mut extents, mut array) = (Extents::default(), vec![0; ROOM]);
            for _ in 0..10 {
                let at = draw(ROOM as u64);
                let bytes = draw(ROOM as u64 - at + 1);
                let content = match draw(3) {
                    0 => Content::Words {
                        seed: draw(9),
                        skipped: 0,
                    },
                    1 => Content::Pattern {
                        bytes: [1, 2, 3, 4],
                        skipped: draw(4),
                    },
                    _ => Content::Bytes {
                        bytes: (0..200).collect(),
                        skipped: 0,
                    },
                };
                for offset in 0..bytes {
                    array[(at + offset) as usize] = content.byte(offset);
                }
                extents.write(at, Extent { bytes, content });
                let from = draw(ROOM as u64);
                let bytes = draw(ROOM as u64 - from + 1);
                let read = bytes_of(&extents.read(from, bytes));
                assert_eq!(read, array[from as usize..(from + bytes) as usize]);
            }
        }
    }

    /// The fast comparison by sums and the slow one by bytes agree.
    #[test]
    fn words_of_other_seeds_are_counted() {
        let mut extents = Extents::default();
        extents.write(0, words(800, 5));
        assert_eq!(mismatches(&extents.read(0, 800), 5), 0);
        assert_eq!(
            mismatches(&extents.read(80, 720), 15),
            0,
            "the words from the tenth on"
        );
        assert_eq!(mismatches(&extents.read(0, 800), 6), 100);
        extents.write(81, words(8, 5));
        assert_eq!(
            mismatches(&extents.read(0, 800), 5),
            2,
            "one word across two"
        );
        let copied = bytes_of(&extents.read(0, 400));
        let content = Content::Bytes {
            bytes: copied.into(),
            skipped: 0,
        };
        extents.write(
            0,
            Extent {
                bytes: 400,
                content,
            },
        );
        assert_eq!(mismatches(&extents.read(0, 800), 5), 2);
        assert_eq!(mismatches(&Extents::default().read(0, 80), 5), 10);
    }

    #[test]
    fn the_first_word_that_differs_is_found() {
        let pattern = |byte| Content::Pattern {
            bytes: [byte; 4],
            skipped: 0,
        };
        let mut extents = Extents::default();
        let find = |extents: &Extents| first_other(&extents.read(0, 80 << 30), u64::MAX);
        assert_eq!(find(&extents), Some(0));
        let (bytes, content) = (80 << 30, pattern(0xff));
        extents.write(0, Extent { bytes, content });
        assert_eq!(find(&extents), None);
        for (at, found) in [(4096, 512), (31, 3)] {
            let (bytes, content) = (1, pattern(0xfe));
            extents.write(at, Extent { bytes, content });
            assert_eq!(find(&extents), Some(found));
        }
    }

    #[test]
    fn a_seed_takes_constant_room() {
        let mut extents = Extents::default();
        extents.write(0, words(80 << 30, 5));
        assert_eq!(mismatches(&extents.read(0, 80 << 30), 5), 0);
        assert_eq!(extents.0.len(), 1);
    }
}
