//! The last uses of free memory.

use std::cell::Cell;
use std::slice;

use crate::policy::free_runs::{Run, count_from_last};

use super::streams::{Mark, PackedMark};

/// The work that used memory last: a mark of the stream that freed it, and of each other stream that used it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Marks {
    One(Mark),
    /// The first is of the stream that freed it.
    Several(Box<[Mark]>),
}

/// The marks of a run, in 16 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kept {
    One(PackedMark),
    Several(Box<[PackedMark]>),
}

impl From<Marks> for Kept {
    fn from(marks: Marks) -> Self {
        match marks {
            Marks::One(mark) => Self::One(mark.pack()),
            Marks::Several(marks) => Self::Several(marks.iter().map(|mark| mark.pack()).collect()),
        }
    }
}

#[derive(Clone, Debug)]
struct Use {
    run: Run,
    marks: Kept,
}

/// The marks that later users of free memory must be ordered after, by position. Any stream can use memory without an
/// entry at once.
///
/// A sorted list, like the free runs, and for the same reason.
#[derive(Debug, Default)]
pub(super) struct Uses {
    list: Vec<Use>,
    /// What the last search found: a place is asked about several times before it is used.
    found: Cell<usize>,
    /// The least mark of each stream, by its number. A mark in the list that is less counts as this one.
    least: Vec<PackedMark>,
    /// How often these were raised since the entries were.
    raises: u32,
}

/// Entries that become alike are joined after this many raises, as looking at all of them takes long.
const RAISES: u32 = 8;

impl Uses {
    /// Whether there are no entries, as while there is one stream.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes the last uses of a run, which has no entry.
    pub(super) fn set(&mut self, run: Run, marks: Marks) {
        let marks = Kept::from(marks);
        let after = self.first_reaching(run.start);
        let before = after.checked_sub(1).map(|before| &mut self.list[before]);
        match before.filter(|before| before.run.end() == run.start && before.marks == marks) {
            Some(before) => before.run.bytes += run.bytes,
            None => match self.list.get_mut(after) {
                Some(behind) if behind.run.start == run.end() && behind.marks == marks => {
                    behind.run = Run::between(run.start, behind.run.end());
                }
                _ => self.list.insert(after, Use { run, marks }),
            },
        }
    }

    /// Replaces the marks that are less than that of their stream among these.
    pub(super) fn raise(&mut self, by_stream: impl Iterator<Item = Mark>) {
        for (index, mark) in by_stream.map(Mark::pack).enumerate() {
            match self.least.get_mut(index) {
                Some(least) => *least = mark.max(*least),
                None => self.least.push(mark),
            }
        }
        self.raises += 1;
        if self.raises == RAISES {
            self.raises = 0;
            self.join();
        }
    }

    /// Joins adjacent runs that have the same marks.
    fn join(&mut self) {
        for last in &mut self.list {
            let marks = match &mut last.marks {
                Kept::One(mark) => slice::from_mut(mark),
                Kept::Several(marks) => marks,
            };
            for mark in marks {
                *mark = raised(*mark, &self.least);
            }
        }
        self.list.dedup_by(|next, last| {
            let joins = last.run.end() == next.run.start && last.marks == next.marks;
            last.run.bytes += if joins { next.run.bytes } else { 0 };
            joins
        });
    }

    /// The entries of a run.
    fn entries(&self, run: Run) -> impl Iterator<Item = &Use> {
        let entries = self.list[self.first_reaching(run.start)..].iter();
        entries.take_while(move |last| last.run.start < run.end())
    }

    /// The marks of an entry. The first is of the stream that freed the memory.
    #[inline]
    fn marks(&self, last: &Use) -> impl Iterator<Item = Mark> {
        let marks = match &last.marks {
            Kept::One(mark) => slice::from_ref(mark),
            Kept::Several(marks) => marks,
        };
        let marks = marks.iter();
        marks.map(|&mark| raised(mark, &self.least).unpack())
    }

    /// The marks of a run.
    pub(super) fn of(&self, run: Run) -> impl Iterator<Item = Mark> {
        self.entries(run).flat_map(|last| self.marks(last))
    }

    /// Whether a condition holds for all marks of a run.
    pub(super) fn all(&self, run: Run, mut is_so: impl FnMut(Mark) -> bool) -> bool {
        let mut entries = self.entries(run);
        entries.all(|last| self.marks(last).all(&mut is_so))
    }

    /// The parts of a run that have marks, by position. The first mark is of the stream that freed the part.
    pub(super) fn parts(&self, run: Run) -> impl Iterator<Item = (Run, Vec<Mark>)> {
        self.entries(run).map(move |last| {
            let (start, end) = (last.run.start, last.run.end());
            let part = Run::between(start.max(run.start), end.min(run.end()));
            (part, self.marks(last).collect())
        })
    }

    /// What is left of a run without the parts whose marks are `unwanted`.
    pub(super) fn without(&self, run: Run, unwanted: impl Fn(&[Mark]) -> bool) -> Vec<Run> {
        let mut left = Vec::new();
        let mut from = run.start;
        for (part, _) in self.parts(run).filter(|(_, marks)| unwanted(marks)) {
            if from < part.start {
                left.push(Run::between(from, part.start));
            }
            from = part.end();
        }
        if from < run.end() {
            left.push(Run::between(from, run.end()));
        }
        left
    }

    /// Forgets a run.
    pub(super) fn forget(&mut self, run: Run) {
        if self.is_empty() {
            return;
        }
        let mut first = self.first_reaching(run.start);
        let Some(at_start) = self.list.get_mut(first) else {
            return;
        };
        if at_start.run.start < run.start {
            let rest = Use {
                run: Run::between(run.start, at_start.run.end()),
                marks: at_start.marks.clone(),
            };
            at_start.run = Run::between(at_start.run.start, run.start);
            first += 1;
            self.list.insert(first, rest);
        }
        let ending = |last: &Use| last.run.end() <= run.end();
        let covered = self.list[first..]
            .iter()
            .take_while(|last| ending(last))
            .count();
        if covered > 0 {
            self.list.drain(first..first + covered);
        }
        if let Some(last) = self.list.get_mut(first)
            && last.run.start < run.end()
        {
            last.run = Run::between(run.end(), last.run.end());
        }
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// The index of the first entry that ends after a position.
    fn first_reaching(&self, position: u64) -> usize {
        count_from_last(&self.list, &self.found, |last| last.run.end() <= position)
    }
}

/// What a mark counts as.
fn raised(mark: PackedMark, least: &[PackedMark]) -> PackedMark {
    let least = least.get(mark.stream().index());
    least.map_or(mark, |least| mark.max(*least))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::streams::StreamNumber;
    use super::*;

    proptest! {
        #[test]
        fn each_position_keeps_the_marks_that_were_set_last(
            ranges in prop::collection::vec((0_u64..40, 1_u64..16, prop::option::of((0_u16..3, 0_u64..9))), 0..64),
            raise_by in 0_u64..3,
        ) {
            let mark = |stream: u16, number: u64| PackedMark::new(StreamNumber(stream), number).unpack();
            let (mut uses, mut model) = (Uses::default(), [None; 64]);
            for (time, (start, bytes, set)) in (0..).zip(ranges) {
                let run = Run { start, bytes };
                uses.forget(run);
                let set = set.map(|(stream, number)| (stream, time * raise_by / 4 + number));
                if let Some((stream, number)) = set {
                    uses.set(run, Marks::One(mark(stream, number)));
                }
                model[start as usize..run.end() as usize].fill(set);
                // The marks of streams 0 and 1 are raised.
                let least = time * raise_by / 4;
                uses.raise((0..2).map(|stream| mark(stream, least)));
                for (stream, number) in model.iter_mut().flatten() {
                    *number = if *stream < 2 { least.max(*number) } else { *number };
                }
                let is_unwanted = |marks: &[Mark]| marks.iter().any(|mark| mark.is_of(StreamNumber(1)));
                let left = uses.without(Run { start: 0, bytes: 64 }, is_unwanted);
                for (start, expected) in (0..).zip(&model) {
                    let is_left = left.iter().any(|run| run.contains(Run { start, bytes: 1 }));
                    prop_assert_eq!(is_left, expected.is_none_or(|(stream, _)| stream != 1));
                    let marks: Vec<Mark> = uses.of(Run { start, bytes: 1 }).collect();
                    prop_assert_eq!(marks, Vec::from_iter(expected.map(|(stream, number)| mark(stream, number))));
                }
            }
        }
    }
}
