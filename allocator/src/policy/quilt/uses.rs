//! The last uses of free memory.

use std::cell::Cell;

use crate::policy::free_runs::Run;

use super::streams::Mark;

/// The work that used memory last: a mark of the stream that freed it, and of each other stream that used it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Marks {
    One(Mark),
    /// The first is of the stream that freed it.
    Several(Box<[Mark]>),
}

impl Marks {
    /// Returns whether any became another.
    fn replace(&mut self, later: impl Fn(Mark) -> Mark) -> bool {
        let marks = match self {
            Self::One(mark) => std::slice::from_mut(mark),
            Self::Several(marks) => marks,
        };
        let replace = |changes, mark: &mut Mark| {
            let before = std::mem::replace(mark, later(*mark));
            changes | (before != *mark)
        };
        marks.iter_mut().fold(false, replace)
    }

    pub(super) fn as_slice(&self) -> &[Mark] {
        match self {
            Self::One(mark) => std::slice::from_ref(mark),
            Self::Several(marks) => marks,
        }
    }
}

#[derive(Clone, Debug)]
struct Use {
    run: Run,
    marks: Marks,
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
}

impl Uses {
    /// Whether there are no entries, as while there is one stream.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Notes the last uses of a run, which has no entry.
    pub(super) fn set(&mut self, run: Run, marks: Marks) {
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

    /// Replaces marks by later ones, and joins adjacent runs that then have the same.
    pub(super) fn replace(&mut self, later: impl Fn(Mark) -> Mark) {
        let replace = |changes, last: &mut Use| changes | last.marks.replace(&later);
        if !self.list.iter_mut().fold(false, replace) {
            return;
        }
        self.list.dedup_by(|next, last| {
            let joins = last.run.end() == next.run.start && last.marks == next.marks;
            last.run.bytes += if joins { next.run.bytes } else { 0 };
            joins
        });
    }

    /// The marks of a run.
    pub(super) fn of(&self, run: Run) -> impl Iterator<Item = Mark> {
        self.parts(run).flat_map(|(_, marks)| marks.iter().copied())
    }

    /// Whether a condition holds for all marks of a run.
    pub(super) fn all(&self, run: Run, is_so: impl Fn(Mark) -> bool) -> bool {
        for last in &self.list[self.first_reaching(run.start)..] {
            if last.run.start >= run.end() {
                break;
            }
            let holds = match &last.marks {
                Marks::One(mark) => is_so(*mark),
                Marks::Several(marks) => marks.iter().all(|&mark| is_so(mark)),
            };
            if !holds {
                return false;
            }
        }
        true
    }

    /// The parts of a run that have marks, by position. The first mark is of the stream that freed the part.
    pub(super) fn parts(&self, run: Run) -> impl Iterator<Item = (Run, &[Mark])> {
        let uses = self.list[self.first_reaching(run.start)..].iter();
        let overlapping = uses.take_while(move |last| last.run.start < run.end());
        overlapping.map(move |last| {
            let (start, end) = (last.run.start, last.run.end());
            let part = Run::between(start.max(run.start), end.min(run.end()));
            (part, last.marks.as_slice())
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
        let ends_after = |index: usize| {
            let last = self.list.get(index);
            last.is_none_or(|last| last.run.end() > position)
        };
        let found = self.found.get();
        if ends_after(found) && (found == 0 || !ends_after(found - 1)) {
            return found;
        }
        let found = self.list.partition_point(|last| last.run.end() <= position);
        self.found.set(found);
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::streams::{StreamNumber, UsedStreams};
    use super::*;

    proptest! {
        #[test]
        fn each_position_keeps_the_marks_that_were_set_last(
            ranges in prop::collection::vec((0_u64..40, 1_u64..16, prop::option::of(0_u16..3)), 0..64),
        ) {
            let (mut uses, mut model) = (Uses::default(), [None; 64]);
            for (start, bytes, stream) in ranges {
                let run = Run { start, bytes };
                uses.forget(run);
                let mark = stream.map(|stream| UsedStreams::default().end_of(StreamNumber(stream)));
                if let Some(mark) = mark {
                    uses.set(run, Marks::One(mark));
                }
                model[start as usize..run.end() as usize].fill(mark);
                let is_unwanted = |marks: &[Mark]| marks.iter().any(|mark| mark.is_of(StreamNumber(1)));
                let left = uses.without(Run { start: 0, bytes: 64 }, is_unwanted);
                for (start, expected) in (0..).zip(&model) {
                    let is_left = left.iter().any(|run| run.contains(Run { start, bytes: 1 }));
                    prop_assert_eq!(is_left, expected.is_none_or(|mark| !mark.is_of(StreamNumber(1))));
                    let marks: Vec<Mark> = uses.of(Run { start, bytes: 1 }).collect();
                    prop_assert_eq!(marks, Vec::from_iter(*expected));
                }
            }
        }
    }
}
