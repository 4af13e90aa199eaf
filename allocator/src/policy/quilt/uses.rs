//! The last uses of free memory.

use std::collections::BTreeMap;

use crate::policy::free_runs::Run;

use super::streams::Mark;

#[derive(Clone, Debug)]
struct Use {
    end: u64,
    marks: Vec<Mark>,
}

/// The marks that later users of free memory must be ordered after, by position. Any stream can use memory without an
/// entry at once.
#[derive(Debug, Default)]
pub(super) struct Uses(BTreeMap<u64, Use>);

impl Uses {
    /// Whether there are no entries, as while there is one stream.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes the last uses of a run, which has no entry.
    pub(super) fn set(&mut self, run: Run, marks: Vec<Mark>) {
        if let Some((_, before)) = self.0.range_mut(..run.start).next_back()
            && before.end == run.start
            && before.marks == marks
        {
            before.end = run.end();
            return;
        }
        let end = run.end();
        self.0.insert(run.start, Use { end, marks });
    }

    /// The marks of a run.
    pub(super) fn of(&self, run: Run) -> impl Iterator<Item = Mark> {
        self.parts(run).flat_map(|(_, marks)| marks.iter().copied())
    }

    /// The parts of a run that have marks, by position. The first mark is of the stream that freed the part.
    pub(super) fn parts(&self, run: Run) -> impl Iterator<Item = (Run, &[Mark])> {
        let before = self.0.range(..run.start).next_back();
        let before = before.filter(|(_, last)| last.end > run.start);
        let uses = before.into_iter().chain(self.0.range(run.start..run.end()));
        uses.map(move |(&start, last)| {
            let part = Run::between(start.max(run.start), last.end.min(run.end()));
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
        let before = self.0.range_mut(..run.start).next_back();
        if let Some((_, last)) = before
            && last.end > run.start
        {
            let rest = (run.end() < last.end).then(|| last.clone());
            last.end = run.start;
            if let Some(rest) = rest {
                self.0.insert(run.end(), rest);
            }
        }
        while let Some((&start, _)) = self.0.range(run.start..run.end()).next() {
            if let Some(last) = self.0.remove(&start)
                && last.end > run.end()
            {
                self.0.insert(run.end(), last);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::driver::StreamId;

    use super::super::streams::Streams;
    use super::*;

    proptest! {
        #[test]
        fn each_position_keeps_the_marks_that_were_set_last(
            ranges in prop::collection::vec((0_u64..40, 1_u64..16, prop::option::of(0_u32..3)), 0..64),
        ) {
            let (mut uses, mut model) = (Uses::default(), [None; 64]);
            for (start, bytes, stream) in ranges {
                let run = Run { start, bytes };
                uses.forget(run);
                let mark = stream.map(|stream| Streams::default().end_of(StreamId::nth(stream)));
                if let Some(mark) = mark {
                    uses.set(run, vec![mark]);
                }
                model[start as usize..run.end() as usize].fill(mark);
                let is_unwanted = |marks: &[Mark]| marks.iter().any(|mark| mark.is_of(StreamId::nth(1)));
                let left = uses.without(Run { start: 0, bytes: 64 }, is_unwanted);
                for (start, expected) in (0..).zip(&model) {
                    let is_left = left.iter().any(|run| run.contains(Run { start, bytes: 1 }));
                    prop_assert_eq!(is_left, expected.is_none_or(|mark| !mark.is_of(StreamId::nth(1))));
                    let marks: Vec<Mark> = uses.of(Run { start, bytes: 1 }).collect();
                    prop_assert_eq!(marks, Vec::from_iter(*expected));
                }
            }
        }
    }
}
